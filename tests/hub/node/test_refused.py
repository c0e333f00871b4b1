"""What the cluster decides and the storage of one node refuses is done there when there is room."""

from pathlib import Path
from shutil import disk_usage
from typing import Any

import pytest

from bench.faults.filling import Hungry, take
from headwater.edge.jetstream.model.models import StreamConfig
from headwater.edge.ports.twins.chance import SeededRandom
from headwater.edge.storage.format.errors import StoreFull
from headwater.edge.storage.node.node_store import NodeStore
from headwater.hub.api.stream_requests import raw
from headwater.hub.meta.assignment import NEW_GROUP, Assignment, Gone, Operation, encode
from headwater.hub.meta.state import MetaState
from headwater.hub.raft.model.config import Config
from headwater.hub.raft.model.entry import Entry, EntryKind
from headwater.hub.stored.mark import Mark
from headwater.hub.stored.replica import Replica
from tests.edge.storage.twin_harness import TwinHarness
from tests.hub.lab import Lab, api
from tests.small_device import small_device
from tests.waiting import until

REFUSED = 2
"""Index of the node whose storage refuses."""
GROUPS = 8
"""A block of the hard states' file has room for fewer."""
NO_ROOM = "no room, says the test"
ENTRIES = 400
BIG = "x" * 4000
ROOM = 512 << 10


def store_of(lab: Lab) -> NodeStore:
    """Storage of that node."""
    found: NodeStore = lab.cluster(REFUSED).jetstream.store()
    return found


def health(lab: Lab) -> list[str]:
    """What that node says is wrong with it."""
    return list(lab.cluster(REFUSED).jetstream.cluster_view.health())


async def is_whole(lab: Lab, name: str) -> bool:
    """Whether three replicas have everything."""
    place = (await api(lab.clients[0], f"STREAM.INFO.{name}"))["cluster"]
    return [row["current"] for row in place.get("replicas", ())] == [True, True]


async def test_a_replica_is_made_when_a_full_disk_has_room(
    tmp_path: Path, lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    """Also by a start that finds no room, and of a stream that lived there alone."""
    names = [f"T{number}" for number in range(GROUPS)]
    (tmp_path / "mount").mkdir()
    with small_device(tmp_path / "mount", 48) as device:
        (device / "store").mkdir()
        (tmp_path / f"n{REFUSED}").symlink_to(device / "store")
        await lab.formed()
        client = await lab.connect(0)
        alone = {"name": "ALONE", "subjects": ["alone"], "placement": {"tags": [f"az:{REFUSED}"]}}
        await api(client, "STREAM.CREATE.ALONE", **alone)
        await client.jetstream().publish("alone", b"1")
        take(device / "foreign", 48 << 20)
        eater = Hungry(device / "foreign")
        eater.start()
        try:
            await until(lambda: not disk_usage(device).free, "no room")
            # The first have room in what the log and the hard states' file have on the device.
            for name in names:
                made = await api(client, f"STREAM.CREATE.{name}", name=name, num_replicas=3)
                assert "error" not in made, made
            del alone["placement"]
            await api(client, "STREAM.UPDATE.ALONE", **alone, num_replicas=3)
            waits = "waits here for storage: it cannot begin here"
            await until(lambda: any(waits in each for each in health(lab)), "health says it")
            await lab.stop_node(REFUSED)
            lab.start(REFUSED)
            await until(lambda: isinstance(store_of(lab).log.failure, StoreFull), "so is the next")
        finally:
            eater.end()
        (device / "foreign").unlink()
        for name in (*names, "ALONE"):
            await until(lambda name=name: is_whole(lab, name), f"{name} is whole")
        await until(lambda: not health(lab), "nothing is wrong any more")
        said = [each.getMessage() for each in caplog.records]
        # A node says it once, and so does the one that starts on that disk.
        causes = {"cannot begin here": 1, "files cannot be written": 2}
        for cause, times in causes.items():
            lines = [each for each in said if cause in each]
            assert 0 < len(lines) <= times * len(set(lines)), lines
        await lab.stop()


def refuse(*args: Any) -> None:
    """A device is full."""
    raise StoreFull(NO_ROOM)


async def test_a_creation_that_storage_refuses_is_tried_again(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The other two begin without that node, and it says why once."""
    await lab.formed()
    client = await lab.connect(0)
    waits = f"stream '$G > S' is not as assigned on this node: {NO_ROOM}"
    with monkeypatch.context() as planted:
        planted.setattr(store_of(lab), "create_stream", refuse)
        made = await api(client, "STREAM.CREATE.S", name="S", subjects=["s"], num_replicas=3)
        assert "error" not in made, made
        assert (await client.jetstream().publish("s", b"1")).seq == 1
        await until(lambda: any(NO_ROOM in each for each in health(lab)), "health says it")
    await until(lambda: is_whole(lab, "S"), "it is made")
    await until(lambda: not health(lab), "nothing is wrong any more")
    assert [waits in each.getMessage() for each in caplog.records].count(True) == 1


async def test_a_deletion_that_storage_refuses_is_tried_again(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever follows the metadata goes on meanwhile."""
    await lab.formed()
    client = await lab.connect(0)
    for name, replicas in (("S", 3), ("ONE", 1)):
        place = {} if replicas > 1 else {"placement": {"tags": [f"az:{REFUSED}"]}}
        body = {"name": name, "subjects": [name], "num_replicas": replicas, **place}
        assert "error" not in await api(client, f"STREAM.CREATE.{name}", **body)
    await until(lambda: is_whole(lab, "S"))

    storage = store_of(lab)
    before = len(storage.stores())
    with monkeypatch.context() as planted:
        planted.setattr(storage, "delete_stream", refuse)
        for name in ("S", "ONE"):
            assert (await api(client, f"STREAM.DELETE.{name}"))["success"]
        made = await api(client, "STREAM.CREATE.S", name="S", subjects=["s"], num_replicas=3)
        assert "error" not in made, made
        await until(lambda: is_whole(lab, "S"), "the next stream of that name is whole")
        left = [each for each in health(lab) if "a deleted stream is not removed yet" in each]
        assert len(left) == 2, health(lab)
        assert len(storage.stores()) == before + 1
    await until(lambda: len(storage.stores()) == before - 1, "what was left is removed")
    await until(lambda: not health(lab), "nothing is wrong any more")


def entries() -> list[Entry]:
    """Streams that are made, changed and deleted, as the metadata has them."""
    chance = SeededRandom(7)
    there: dict[str, Assignment] = {}
    found: list[Operation] = []
    while len(found) < ENTRIES:
        name = f"S{chance.below(12)}"
        known = there.get(name)
        if known is not None and chance.below(3) == 0:
            found.append(Gone(account="A", name=name, incarnation=known.incarnation))
            del there[name]
            continue
        config = StreamConfig(name=name, subjects=[name], description=BIG, num_replicas=3)
        there[name] = Assignment(
            account="A",
            name=name,
            incarnation=known.incarnation if known else f"{len(found):032x}",
            created_ns=1,
            config=raw(config),
            group=known.group if known else NEW_GROUP,
            version=known.version + 1 if known else 0,
        )
        found.append(there[name])
    return [Entry(1, index, EntryKind.NORMAL, encode(each)) for index, each in enumerate(found, 1)]


def applied(full: bool) -> tuple[list[tuple[int, bytes, bytes]], int]:
    """What the metadata's stream has after all entries, and how often storage refused one; `full`:
    on a disk without room, which gets a little with each refusal."""
    harness = TwinHarness(segment_bytes=32 << 10)
    harness.open()
    store = harness.create("meta")
    state = MetaState()
    state.load_store = lambda: store
    assert harness.node is not None
    log = harness.node.log
    replica = Replica(log, state, store, Mark(0, 0, Config()))
    refused = 0
    for entry in entries():
        harness.disk.capacity = harness.disk.used if full else 0
        replica.apply([entry])
        while replica.waiting:
            refused += 1
            harness.disk.capacity = harness.disk.used + ROOM
            harness.loop.run_until(lambda: log.failure is None and harness.resting())
            replica.apply([])
        harness.kernel.turn()
        harness.loop.run_ready()
    rows = [store.get(at) for at in range(store.first_seq, store.last_seq + 1)]
    return [(row.sequence, row.subject, row.payload) for row in rows if row is not None], refused


def test_what_a_full_disk_refuses_is_in_the_metadata_once() -> None:
    wanted, never = applied(False)
    found, refused = applied(True)
    assert found == wanted
    assert len({subject for _, subject, _ in found}) == len(found)
    assert refused > 10 > never
