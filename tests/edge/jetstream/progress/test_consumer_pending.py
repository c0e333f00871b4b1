"""The table of pending acks against a plain model."""

import random

from headwater.edge.jetstream.progress.pending import PendingTable


def test_entries_stay_in_order_and_are_found() -> None:
    table = PendingTable()
    for sequence in (3, 4, 9):
        table.put(sequence, sequence - 2, 0, 1)
    assert [e[0] for e in table.entries()] == [3, 4, 9]
    assert table.pop(4)
    assert not table.pop(4)
    assert not table.pop(5)
    assert [e[0] for e in table.entries()] == [3, 9]
    table.put(4, 7, 0, 2)
    assert [e[0] for e in table.entries()] == [3, 4, 9]
    assert table.redelivered == 1


def test_queue_gives_each_sequence_once_in_the_order_of_the_requests() -> None:
    table = PendingTable()
    for sequence in range(1, 6):
        table.put(sequence, sequence, 0, 1)
    assert table.again(4)
    assert table.again(2)
    assert table.again(4)
    assert not table.again(8)
    assert table.pop(2)
    assert table.again(1)
    assert [table.pop_queued() for _ in range(3)] == [4, 1, 0]
    assert table.queued == 0


def test_what_was_refused_twice_stands_where_the_second_request_put_it() -> None:
    table = PendingTable()
    for sequence in (1, 2, 3):
        table.put(sequence, sequence, 0, 1)
    for _ in range(3):
        assert all(table.again(sequence) for sequence in (1, 2, 3))
        assert [table.pop_queued() for _ in range(3)] == [1, 2, 3]


def test_random_use_equals_a_dictionary() -> None:
    rng = random.Random(7)
    table = PendingTable()
    model: dict[int, tuple[int, int]] = {}
    queue: list[int] = []
    highest = 0
    for step in range(20_000):
        choice = rng.random()
        if choice < 0.5:
            highest += rng.choice((1, 1, 1, 2, 17))
            table.put(highest, step, 0, 1)
            model[highest] = (step, 1)
        elif choice < 0.9 and model:
            sequence = rng.choice((min(model), rng.randint(1, highest)))
            assert table.pop(sequence) == (sequence in model)
            model.pop(sequence, None)
            if sequence in queue:
                queue.remove(sequence)
        elif choice < 0.95 and model:
            sequence = rng.choice(sorted(model)[:50])
            table.again(sequence)
            if sequence not in queue:
                queue.append(sequence)
        elif queue:
            assert table.pop_queued() == queue.pop(0)
        assert table.count == len(model)
        assert table.queued == len(queue)
    assert [e[0] for e in table.entries()] == sorted(model)
