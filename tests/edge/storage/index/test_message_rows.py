"""Messages as rows, and which are alive as runs."""

import pytest

from headwater.edge.kernel.kernel import Kernel
from headwater.edge.storage.format.errors import StoreError
from headwater.edge.storage.index.memory import MemoryStore
from headwater.edge.storage.index.message_rows import add_rows, alive_runs, keep_runs, pack_rows
from headwater.edge.storage.index.store import MessageStore
from tests.edge.storage.index.test_contract import QuietLoop


def empty_store() -> MemoryStore:
    return MemoryStore(Kernel(QuietLoop()))


Rows = list[tuple[int, int, bytes, bytes, bytes]]


def content(store: MessageStore) -> Rows:
    found = [store.get(n) for n in range(store.first_seq, store.last_seq + 1)]
    return [(m.sequence, m.timestamp, m.subject, m.headers, m.payload) for m in found if m]


def filled(count: int, holes: tuple[int, ...] = ()) -> MemoryStore:
    store = empty_store()
    for n in range(1, count + 1):
        headers = b"NATS/1.0\r\nN: %d\r\n\r\n" % n if n % 3 == 0 else b""
        store.add_message(b"s.%d" % (n % 5), b"payload %d" % n * (n % 7), headers, 1000 + n)
    for hole in holes:
        store.delete(hole)
    return store


@pytest.mark.parametrize("bytes_max", [1, 300, 1 << 20])
def test_a_copy_made_of_rows_is_the_same(bytes_max: int) -> None:
    store = filled(200, (1, 2, 3, 50, 51, 120, 199, 200))
    copy, reached, parts = empty_store(), 0, 0
    while reached < store.last_seq:
        rows, reached = pack_rows(store, reached, store.last_seq, bytes_max)
        add_rows(copy, rows)
        parts += 1
    assert content(copy) == content(store)
    assert copy.first_seq == 4 and reached == 200
    assert parts > 1 or bytes_max > 4096


def test_rows_end_where_they_are_told() -> None:
    rows, reached = pack_rows(filled(20), 5, 12, 1 << 20)
    copy = empty_store()
    assert add_rows(copy, rows) == 7 and reached == 12
    assert (copy.first_seq, copy.last_seq) == (6, 12)


def test_damaged_rows_are_refused() -> None:
    rows, _ = pack_rows(filled(3), 0, 3, 1 << 20)
    for cut in range(1, len(rows)):
        copy = empty_store()
        try:
            add_rows(copy, rows[:cut])
        except StoreError:
            continue
        assert content(copy) == content(filled(3))[: copy.messages] and copy.messages < 3
    with pytest.raises(StoreError):
        add_rows(empty_store(), bytes(28))


@pytest.mark.parametrize("holes", [(), (1, 2), (3, 4, 9), (10,), tuple(range(1, 11)), (1, 3, 5, 7)])
def test_what_died_meanwhile_is_taken_out(holes: tuple[int, ...]) -> None:
    now = filled(10, holes)
    for before in ((), (1,), (1, 3)):
        copy = filled(10, tuple(set(before) & set(holes)))
        keep_runs(copy, alive_runs(now))
        assert content(copy) == content(now)


def test_a_whole_store_is_one_run() -> None:
    assert len(alive_runs(filled(1000))) == 16
    assert alive_runs(empty_store()) == b""
    with pytest.raises(StoreError):
        keep_runs(filled(3), b"123")
