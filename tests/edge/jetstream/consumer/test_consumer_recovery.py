"""Consumers after a restart: exactly where they were, and never ahead of the data."""

from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.edge.jetstream.progress import delta
from tests.edge.storage.format.store_decoder import Decoder, consumer_progress

SECOND = 1_000_000_000
DROP = ("ts", "created", "last_active", "num_waiting")


def stable(info: dict[str, Any]) -> dict[str, Any]:
    """What of a consumer's info must not change over a restart."""
    kept = {k: v for k, v in info.items() if k not in DROP}
    for place in ("delivered", "ack_floor"):
        kept[place] = {k: v for k, v in kept[place].items() if k not in DROP}
    return kept


async def test_positions_pending_and_redeliveries_come_back(
    disk_worlds: Callable[[], Any],
) -> None:
    world = disk_worlds()
    await world.stream(storage="file")
    world.publish(10)
    await world.consumer(max_deliver=5)
    inbox = world.listen("_INBOX.x")
    world.pull("_INBOX.x", "6")
    await world.until(lambda: len(inbox) == 6)
    for at in (0, 1, 3):
        world.send(inbox[at].reply)
    world.send(inbox[4].reply, "-NAK")
    world.pull("_INBOX.x", "1")
    await world.until(lambda: len(inbox) == 7)
    answers = world.listen("answer")
    world.send(inbox[5].reply, "", "answer")
    await world.until(lambda: bool(answers))
    before = await world.info()
    pending = world.js.streams["S"].consumers["C"].pending.entries()

    world = disk_worlds()
    after = await world.info()
    assert stable(after) == stable(before)
    assert world.js.streams["S"].consumers["C"].pending.entries() == pending
    inbox = world.listen("_INBOX.x")
    world.pull("_INBOX.x", "9")
    await world.until(lambda: len(inbox) == 4)
    assert [m.payload for m in inbox] == [b"7", b"8", b"9", b"10"]


async def test_a_start_that_is_yet_to_come_stays(disk_worlds: Callable[[], Any]) -> None:
    """It was taken for what is ahead of the data, and messages before it were delivered."""
    world = disk_worlds()
    await world.stream(storage="file")
    world.publish(1)
    await world.consumer(deliver_policy="by_start_sequence", opt_start_seq=4)
    before = await world.info()

    world = disk_worlds()
    assert stable(await world.info()) == stable(before)
    world.publish(4)
    inbox = world.listen("_INBOX.x")
    world.pull("_INBOX.x", "9")
    await world.until(lambda: len(inbox) == 2)
    assert [m.numbers[1] for m in inbox] == [4, 5]


async def test_unacknowledged_messages_are_delivered_again(
    disk_worlds: Callable[[], Any],
) -> None:
    world = disk_worlds()
    await world.stream(storage="file")
    world.publish(2)
    await world.consumer(ack_wait=50_000_000)
    inbox = world.listen("_INBOX.x")
    world.pull("_INBOX.x", "1")
    await world.until(lambda: len(inbox) == 1)
    await world.info()

    world = disk_worlds()
    inbox = world.listen("_INBOX.x")
    world.pull("_INBOX.x", "9")
    # Which comes first depends on how long the start took: the first is due again 50 ms after it
    # was delivered. Both may be due once more meanwhile.
    await world.until(lambda: {(1, 2), (2, 1)} <= {tuple(m.numbers[:2]) for m in inbox})


async def test_what_was_refused_comes_at_once(disk_worlds: Callable[[], Any]) -> None:
    """A start knows of it, and does not let the ack wait pass."""
    world = disk_worlds()
    await world.stream(storage="file")
    world.publish(2)
    await world.consumer(ack_wait=3600 * SECOND)
    inbox = world.listen("_INBOX.x")
    world.pull("_INBOX.x", "2")
    await world.until(lambda: len(inbox) == 2)
    world.send(inbox[1].reply, "-NAK")
    await world.info()

    world = disk_worlds()
    inbox = world.listen("_INBOX.x")
    world.pull("_INBOX.x", "9")
    await world.until(lambda: len(inbox) == 1)
    assert inbox[0].numbers[:2] == [2, 2]


async def test_configuration_pause_and_deletion_survive(disk_worlds: Callable[[], Any]) -> None:
    world = disk_worlds()
    await world.stream(storage="file")
    await world.consumer("A", description="first")
    await world.consumer("A", description="second")
    await world.consumer("B")
    await world.consumer("M", mem_storage=True)
    await world.ask("CONSUMER.PAUSE.S.A", {"pause_until": "2100-01-01T00:00:00Z"})
    assert (await world.ask("CONSUMER.DELETE.S.B"))["success"] is True

    world = disk_worlds()
    assert (await world.ask("CONSUMER.NAMES.S"))["consumers"] == ["A"]
    info = await world.info("A")
    assert info["config"]["description"] == "second"
    assert info["paused"] is True


async def test_a_watch_goes_on_where_it_was(disk_worlds: Callable[[], Any]) -> None:
    world = disk_worlds()
    await world.stream(storage="file", max_msgs_per_subject=3)
    world.publish(4)
    world.publish(4)
    await world.consumer(deliver_policy="last_per_subject", filter_subject="a.>")
    inbox = world.listen("_INBOX.x")
    world.pull("_INBOX.x", "2")
    await world.until(lambda: len(inbox) == 2)
    await world.info()

    world = disk_worlds()
    inbox = world.listen("_INBOX.x")
    world.pull("_INBOX.x", "9")
    world.publish(1)
    await world.until(lambda: len(inbox) == 3)
    assert [m.numbers[1] for m in inbox] == [7, 8, 9]


async def test_an_interest_stream_keeps_what_is_needed(disk_worlds: Callable[[], Any]) -> None:
    world = disk_worlds()
    await world.stream(storage="file", retention="workqueue")
    await world.consumer()
    world.publish(3)
    inbox = world.listen("_INBOX.x")
    world.pull("_INBOX.x", "3")
    await world.until(lambda: len(inbox) == 3)
    answers = world.listen("answer")
    world.send(inbox[1].reply, "", "answer")
    await world.until(lambda: bool(answers))

    world = disk_worlds()
    info = await world.info()
    assert info["num_ack_pending"] == 2
    assert world.js.streams["S"].store.messages == 2


async def test_snapshots_equal_the_deltas(disk_worlds: Callable[[], Any]) -> None:
    world = disk_worlds()
    await world.stream(storage="file")
    await world.consumer()
    world.publish(50)
    inbox = world.listen("_INBOX.x")
    world.pull("_INBOX.x", "50")
    await world.until(lambda: len(inbox) == 50)
    for message in inbox[::2]:
        world.send(message.reply)
    consumer = world.js.streams["S"].consumers["C"]
    position, pending, exhausted = delta.replay([consumer.snapshot()])
    assert position["next_seq"] == 51
    assert [entry[:2] for entry in pending] == [(n, n) for n in range(2, 51, 2)]
    assert exhausted == {}


async def test_states_survive_the_segments_they_were_written_to(
    disk_worlds: Callable[[], Any],
) -> None:
    world = disk_worlds()
    stream = await world.stream(storage="file")
    await world.consumer("quiet")
    await world.consumer("busy", max_ack_pending=-1)
    world.publish(1)
    inbox = world.listen("_INBOX.x")
    world.pull("_INBOX.x", "1", "quiet")
    await world.until(lambda: len(inbox) == 1)
    body = b"x" * 500
    for _ in range(20):
        inbox.clear()
        for n in range(50):
            world.account.send(b"a.%d" % n, body)
        world.pull("_INBOX.x", "50", "busy")
        await world.until(lambda: len(inbox) == 50)
        for message in inbox[::3]:
            world.send(message.reply)
    answers = world.listen("answer")
    world.send(inbox[0].reply, "", "answer")
    await world.until(lambda: bool(answers))
    assert world.js.node.storage.numbers()["checkpointed_segments"] > 2
    before = {name: stable(await world.info(name)) for name in ("quiet", "busy")}
    pending = stream.consumers["busy"].pending.entries()

    world = disk_worlds()
    after = {name: stable(await world.info(name)) for name in ("quiet", "busy")}
    assert after == before
    assert world.js.streams["S"].consumers["busy"].pending.entries() == pending


NAMES = st.sampled_from(["track", "drop", "exhaust", "forgive", "floor"])
ACTIONS = st.lists(st.tuples(NAMES, st.integers(1, 40)), max_size=60)


@given(actions=ACTIONS)
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_applying_twice_changes_nothing(actions: list[tuple[str, int]]) -> None:
    parts = [delta.made([action], next_seq=41) for action in actions]
    once = delta.replay(parts)
    assert delta.replay([*parts, *parts]) == once
    for cut in range(len(parts)):
        assert delta.replay([*parts, *parts[cut:]]) == once


@given(parts=st.lists(ACTIONS, max_size=6))
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_the_format_page_is_enough_to_read_deltas(parts: list[list[tuple[str, int]]]) -> None:
    deltas = [delta.made(actions, next_seq=41) for actions in [[], *parts]]
    position, pending, exhausted = delta.replay(deltas)
    found = consumer_progress(deltas)
    assert {name: found[name] for name in position} == position
    rows = {seq: (cseq, 1, times) for seq, cseq, times in pending}
    assert {seq: (row[0], 1, row[2]) for seq, row in found["pending"].items()} == rows
    assert found["exhausted"] == exhausted


async def test_a_stored_consumer_is_what_the_format_page_says(
    disk_worlds: Callable[[], Any]
) -> None:
    world = disk_worlds()
    await world.stream(storage="file")
    world.publish(9)
    await world.consumer("K", max_deliver=5)
    inbox = world.listen("_INBOX.x")
    world.pull("_INBOX.x", "6", "K")
    await world.until(lambda: len(inbox) == 6)
    answers = world.listen("answer")
    for at in (0, 1, 3):
        world.send(inbox[at].reply, "", "answer")
    await world.until(lambda: len(answers) == 3)
    decoder = Decoder(world.js.node.storage.options.directory)
    decoder.read()
    description, progress = decoder.consumers()["K"]
    assert description["config"]["max_deliver"] == 5
    assert (progress["next_seq"], progress["delivered_seq"], progress["floor_seq"]) == (7, 6, 2)
    entries = world.js.streams["S"].consumers["K"].pending.entries()
    assert sorted(progress["pending"]) == [3, 5, 6] == [entry[0] for entry in entries]
    clock = world.js.account.kernel.clock()
    for _, since, deliveries in progress["pending"].values():
        assert deliveries == 1
        assert clock - 60 * SECOND < since <= clock


def test_cut_and_foreign_data_is_refused() -> None:
    whole = delta.made([("track", 5), ("drop", 5)], next_seq=6)
    for end in range(len(whole)):
        try:
            delta.replay([whole[:end]])
        except ValueError:
            continue
        assert end > 8
    for bad in (b"", b"\x07", whole[:-1] + b"\x77\x00"):
        try:
            delta.replay([bad])
        except ValueError:
            continue
        raise AssertionError(bad)
