"""A member that is behind gets the log's old entries, which its leader keeps in files and not in
memory."""

from typing import Any

import pytest

from headwater.edge.ports.twins.files import TwinFiles
from headwater.hub.stored import group_store, spill
from headwater.hub.streams import stream_group
from tests.hub.streams.stream_cluster import StreamCluster
from tests.hub.streams.test_replicated_streams import equal_replicas

KEEP, HOLD, COUNT = 2_000, 100_000, 400
SAID = b"%03d what is said to a group, again and again and again, " * 3
BYTES = COUNT * len(SAID)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds that a short story reaches."""
    monkeypatch.setattr(stream_group, "KEEP_BYTES", KEEP)
    monkeypatch.setattr(stream_group, "HOLD_BYTES", HOLD)
    monkeypatch.setattr(spill, "CHUNK_BYTES", 1_000)
    monkeypatch.setattr(spill, "FILE_BYTES", 8_000)


def pairs(cluster: StreamCluster, number: int) -> set[tuple[int, int]]:
    """The links of a node."""
    return {pair for n in cluster.nodes for pair in ((n, number), (number, n))}


def behind() -> tuple[StreamCluster, Any, Any]:
    """A cluster, its leader, and a node that is cut off while the others take messages: more than
    memory may hold of them."""
    cluster = StreamCluster()
    cluster.make()
    leader = cluster.leader()
    leader.ask("s.a", b"known to all")
    cluster.settle()
    away = next(node for node in cluster.nodes.values() if node is not leader)
    cluster.cut = pairs(cluster, away.number)
    said(cluster, leader)
    return cluster, leader, away


def said(cluster: StreamCluster, leader: Any) -> None:
    """Publish, and look at what memory holds all the time."""
    for n in range(COUNT):
        leader.publish("s.a", SAID % (n, n, n))
        if n % 4 == 3:
            cluster.sleep(0.01)
            for node in cluster.nodes.values():
                assert node.streams.groups[2].raft.log.bytes < 4 * KEEP
    leader.ask("s.a", b"end")


def kept(node: Any) -> bytes:
    """What is in a node's files of old entries."""
    folder = node.store.spills.folder
    if not folder.is_dir():
        return b""
    return b"".join(path.read_bytes() for path in folder.iterdir())


def test_memory_is_bounded_and_the_log_is_enough() -> None:
    cluster, leader, away = behind()
    assert BYTES > 20 * KEEP
    assert leader.store.spills.size == len(kept(leader)) > BYTES - 10_000
    store = away.store.replicas[2].store
    cluster.cut = set()
    assert equal_replicas(cluster)[0] == (1, COUNT + 2, COUNT + 2)
    assert away.store.replicas[2].store is store, "it got the state"
    cluster.sleep(1)
    assert [kept(node) for node in cluster.nodes.values()] == [b""] * 3
    assert leader.store.spills.size == 0


def test_files_go_as_soon_as_the_member_has_what_is_in_them() -> None:
    cluster, leader, away = behind()
    files, seen = leader.store.spills.folder, set()
    cluster.cut = set()

    def caught_up() -> bool:
        seen.add(len(list(files.iterdir())))
        return away.store.replicas[2].applied == leader.store.replicas[2].applied

    cluster.wait(caught_up)
    assert max(seen) > 6 and 0 < min(seen) < 5, seen


def test_a_member_that_started_again_gets_the_log() -> None:
    cluster, leader, away = behind()
    cluster.cut = set()
    away.crash()
    away.open()
    store = away.store.replicas[2].store
    assert equal_replicas(cluster)[0] == (1, COUNT + 2, COUNT + 2)
    assert away.store.replicas[2].store is store, "it got the state"


def test_damaged_files_are_not_used() -> None:
    cluster, leader, away = behind()
    disk: TwinFiles = leader.disk
    for parts, file in disk.walk():
        if "old" in parts:
            disk.flip(parts, len(file.content) // 2, 3)
    store = away.store.replicas[2].store
    cluster.cut = set()
    assert equal_replicas(cluster)[0] == (1, COUNT + 2, COUNT + 2)
    assert away.store.replicas[2].store is not store, "it got the log"
    assert kept(leader) == b""


@pytest.mark.parametrize("why", ["files", "device", "write"])
def test_too_much_for_files_means_the_state(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if why == "files":
        monkeypatch.setattr(group_store, "SPILL_BYTES", 1_000)
    elif why == "device":
        monkeypatch.setattr(spill, "FREE_BYTES", 1 << 60)
    else:
        monkeypatch.setattr(spill.Spills, "write", refuse)
    monkeypatch.setattr(stream_group, "HOLD_BYTES", 3 * KEEP)
    cluster, leader, away = behind()
    assert leader.store.spills.size == 0
    assert leader.streams.groups[2].raft.log.bytes < 4 * KEEP
    store = away.store.replicas[2].store
    cluster.cut = set()
    assert equal_replicas(cluster)[0] == (1, COUNT + 2, COUNT + 2)
    assert away.store.replicas[2].store is not store, "it got the log"


def refuse(self: object, path: object, offset: int, pieces: list[bytes]) -> None:
    """A device that takes nothing."""
    raise OSError(28, "No space left on device")


def test_a_start_removes_what_is_left() -> None:
    cluster, leader, _ = behind()
    assert kept(leader)
    leader.crash("nothing")
    leader.open()
    assert kept(leader) == b""


def test_a_leader_that_leads_no_more_keeps_nothing() -> None:
    cluster, leader, away = behind()
    other = next(n for n in cluster.nodes.values() if n not in (leader, away))
    leader.streams.groups[2].hand_over(other.number)
    cluster.wait(lambda: other.streams.groups[2].raft.is_leader)
    cluster.sleep(1)
    assert kept(leader) == b""
    cluster.cut = set()
    assert equal_replicas(cluster)[0] == (1, COUNT + 2, COUNT + 2)


def test_a_deleted_stream_leaves_no_files() -> None:
    cluster, leader, _ = behind()
    leader.driver.drop(2)
    leader.store.erase(2)
    cluster.sleep(0.1)
    assert kept(leader) == b""
