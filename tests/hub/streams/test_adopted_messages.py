"""Messages of replicated streams are written to the log once: in the entry that brings them."""

import errno
import struct
from collections import Counter
from pathlib import PurePath

import pytest

from headwater.edge.storage.format.record_layout import Header, read_header
from tests.edge.storage.format.store_decoder import Decoder
from tests.hub.streams.stream_cluster import ClusterNode, StreamCluster

MESSAGE, DELTA, ADOPT = 1, 7, 15
ENTRIES = b"\0raft"
ADOPTION = struct.Struct("<IIIIQ")


def filled(
    count: int = 60, size: int = 100, **fields: str
) -> tuple[StreamCluster, ClusterNode]:
    """A stream of three replicas with messages, of which some are out again; its leader."""
    cluster = StreamCluster()
    cluster.make(max_msgs_per_subject=10, **fields)
    leader = cluster.leader()
    for n in range(count):
        leader.publish(f"s.{n % 7}", b"message %d " % n + b"." * size)
        if n % 50 == 49:
            leader.ask("s.z", b"in between")
    leader.ask("s.z", b"the last")
    leader.ask("$JS.API.STREAM.MSG.DELETE.S", b'{"seq":%d,"no_erase":true}' % (count - 5))
    leader.ask("$JS.API.STREAM.MSG.DELETE.S", b'{"seq":%d}' % (count - 4))
    cluster.settle()
    return cluster, leader


def records(node: ClusterNode) -> list[tuple[Header, bytes]]:
    """Records of the node's log, with their bodies."""
    log = node.jetstream.store().log
    found = []
    for segment in log.live:
        data, at = segment.bytes_at(0, segment.end), 512
        while header := read_header(data, at, log.seed):
            found.append((header, data[at + 64 : at + 64 + header.length]))
            at += header.size
    return found


def equal_rows(cluster: StreamCluster) -> list[tuple[object, ...]]:
    """What each replica holds: the same."""
    cluster.settle()
    rows = [node.replica_rows(2) for node in cluster.nodes.values()]
    assert rows[0] == rows[1] == rows[2]
    return rows[0]


def test_a_message_of_a_group_is_written_once() -> None:
    cluster, _ = filled()
    for node in cluster.nodes.values():
        found = records(node)
        kinds = Counter(header.kind for header, _ in found)
        assert kinds[ADOPT] and not kinds[MESSAGE]
        bytes_of_it = sum(body.count(b"message 7 ") for _, body in found)
        assert bytes_of_it == 1


def test_compressed_messages_have_records_of_their_own() -> None:
    """In the log, in their own form: the entry has them as they came."""
    cluster, leader = filled(compression="s2")
    kinds = Counter(header.kind for header, _ in records(leader))
    assert kinds[MESSAGE] and not kinds[ADOPT]
    before = equal_rows(cluster)
    for node in cluster.nodes.values():
        node.crash("everything")
        node.open()
    cluster.leader()
    assert equal_rows(cluster)[: len(before)] == before


def test_records_in_memory_fill_a_segment_of_the_log() -> None:
    """What a segment holds in its file and beside it is bounded by its size."""
    cluster, leader = filled(700, 200)
    log = leader.jetstream.store().log
    assert log.live[0].number > 1
    for segment in log.live:
        beside = segment.adopted.bytes if segment.adopted is not None else 0
        assert segment.end + beside <= segment.capacity


def test_the_page_of_the_format_is_enough_to_read_them() -> None:
    cluster, leader = filled()
    equal_rows(cluster)
    store = leader.store.replicas[2].store
    assert store is not None
    leader.crash("nothing")
    found = Decoder(leader.disk.root / "data")
    found.read()
    (stream,) = [number for number, name in found.names.items() if name == "S"]
    rows = [row for row in leader.replica_rows(2)[1:] if isinstance(row[0], int)]
    assert len(rows) > 20
    assert [
        (sequence, row["timestamp"], *row["parts"])
        for sequence, row in sorted(found.streams[stream].items())
    ] == rows


@pytest.mark.parametrize("lose", ["nothing", "some", "everything"])
def test_a_power_cut_of_all_nodes_loses_none(lose: str) -> None:
    cluster, _ = filled()
    before = equal_rows(cluster)
    for node in cluster.nodes.values():
        node.crash(lose)
    for node in cluster.nodes.values():
        node.open()
        assert not node.jetstream.store().problems
    cluster.leader()
    assert equal_rows(cluster)[: len(before)] == before
    assert cluster.leader().ask("s.x", b"after")["seq"] == 63


def test_messages_move_from_entries_to_segments() -> None:
    cluster, leader = filled(700, 200)
    rows = equal_rows(cluster)
    for node in cluster.nodes.values():
        store = node.store.replicas[2].store
        assert store is not None and store.segments
        assert node.jetstream.store().log.live[0].number > 1
    for node in cluster.nodes.values():
        node.crash("everything")
        node.open()
    cluster.leader()
    assert equal_rows(cluster)[: len(rows)] == rows


def flip(node: ClusterNode, header: Header, at: int) -> None:
    """Flip a bit of a record in the file that a stopped node's log has it in."""
    log = node.jetstream.store().log
    path = next(s.slot.path for s in log.live if s.number == header.segment)
    node.disk.flip(tuple(PurePath(str(path)).parts[1:]), header.offset + 64 + at, 3)


@pytest.mark.parametrize("what", ["entry", "adoption"])
def test_a_damaged_entry_is_told_and_asked_of_the_others(what: str) -> None:
    cluster, leader = filled()
    rows = equal_rows(cluster)
    hurt = next(node for node in cluster.nodes.values() if node is not leader)
    found = records(hurt)
    header, body = next(row for row in found if row[0].kind == ADOPT)
    if what == "entry":
        at = ADOPTION.unpack(body)[0]
        header = next(each for each, _ in found if (each.offset, each.kind) == (at, DELTA))
    hurt.crash("nothing")
    flip(hurt, header, header.length - 4)
    hurt.open()
    store = hurt.jetstream.store()
    assert any(str(header.offset) in each.text for each in store.problems)
    assert equal_rows(cluster)[1:] == rows[1:]
    assert hurt.streams.status(2) is not None


def test_what_a_failed_sync_left_is_written_again() -> None:
    cluster, leader = filled()
    log = leader.jetstream.store().log

    def fail(what: str, path: str) -> None:
        if what == "sync":
            leader.disk.watch = None
            raise OSError(errno.EIO, "planted")

    leader.disk.watch = fail
    for n in range(60, 90):
        leader.publish("s.y", b"message %d" % n)
    cluster.wait(lambda: bool(log.sync_failures))
    cluster.wait(lambda: log.failure is None)
    rows = equal_rows(cluster)
    for node in cluster.nodes.values():
        node.crash("everything")
        node.open()
    cluster.leader()
    assert equal_rows(cluster)[: len(rows)] == rows




def acked_until_cut(seed: int, operation: int) -> tuple[StreamCluster, dict[int, bytes]]:
    """Publish until the disks have done so many operations together, and cut the power of all."""
    cluster = StreamCluster(seed=seed)
    cluster.make(max_msgs=150)
    cluster.leader()
    acked: dict[int, bytes] = {}
    done = [0]

    def count(what: str, path: str) -> None:
        if what not in ("read", "list"):
            done[0] += 1

    for node in cluster.nodes.values():
        node.disk.watch = count
    for n in range(400):
        leader = cluster.leader()
        for more in range(4):
            leader.publish(f"s.{more}", b"beside %d" % n * 30)
        body = b"asked %d" % n * 30
        acked[leader.ask("s.asked", body)["seq"]] = body
        if done[0] >= operation:
            break
    for node in cluster.nodes.values():
        node.disk.watch = None
        node.crash()
    return cluster, acked


@pytest.mark.parametrize("seed", range(12))
def test_wherever_the_power_goes_what_was_acked_is_there(seed: int) -> None:
    """From the first messages to some checkpoints later; a replica that doubts itself asks."""
    cluster, acked = acked_until_cut(seed, 40 + 90 * seed)
    for node in cluster.nodes.values():
        node.open()
    cluster.leader()
    rows = equal_rows(cluster)
    kept = {row[0]: row[4] for row in rows[1:] if isinstance(row[0], int)}
    first = min(kept)
    assert {n: body for n, body in acked.items() if n >= first}.items() <= kept.items()
    assert cluster.leader().ask("s.after", b"after")["seq"] > max(acked)
