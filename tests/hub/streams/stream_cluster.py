"""Nodes with JetStream on disks, clocks and a network in memory, whose streams are replicated.

Each node is a whole store with its API; packets of the groups go through the Raft codec. Time goes
on only when somebody waits. Clients publish and ask in the account of one node.
"""

import json
from collections.abc import Callable
from typing import Any

import msgspec

from headwater.edge.broker.account import Account
from headwater.edge.conf.options import JetStreamOptions, Options
from headwater.edge.jetstream.account import stream_lifecycle
from headwater.edge.jetstream.config import stream_config
from headwater.edge.jetstream.model.models import StreamConfig
from headwater.edge.jetstream.node.node import NodeJetStream
from headwater.edge.jetstream.stream.stream import Stream
from headwater.edge.kernel.kernel import CallbackSink, Kernel
from headwater.edge.ports.twins.chance import SeededRandom
from headwater.edge.ports.twins.files import TwinFiles
from headwater.edge.ports.twins.loop import TwinLoop
from headwater.edge.storage.directory.store_options import StoreOptions
from headwater.edge.storage.node import node_store
from headwater.hub.cluster.driver import Driver
from headwater.hub.cluster.transport import OF_GROUPS, Transport
from headwater.hub.raft.model.options import Options as RaftOptions
from headwater.hub.raft.multi_raft import MultiRaft
from headwater.hub.raft.raft import Raft
from headwater.hub.routes.routes import FRAMES_VERSION
from headwater.hub.stored.group_store import GroupStore
from headwater.hub.streams.stream_groups import StreamGroups

node_store.SEGMENT_BYTES_MIN = 4096
SEGMENT_BYTES = 65536
LATENCY_S = 0.0005
ACCOUNT = "A"
IDENTITY = 77
"""Of the cluster."""
BOOT = 1000
"""The start in which the first members were taken in."""


class Wanted(msgspec.Struct):
    """What the cluster says of a stream."""

    name: str
    stream_config: StreamConfig
    group: int
    peers: list[int]
    boots: list[int]
    account: str = ACCOUNT
    incarnation: str = "ab" * 16
    created_ns: int = 1
    founders: dict[int, int] = {}
    change: None = None
    version: int = 0


class OneLife:
    """The loop as one start of a node sees it: what it asked for ends with it."""

    def __init__(self, loop: TwinLoop, alive: Callable[[], bool]) -> None:
        self.loop = loop
        self.clock = loop.clock
        self.alive = alive
        self.stopped: list[tuple[Callable[..., Any], tuple[Any, ...]]] | None = None
        """What waits for the process to go on; None while it runs."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loop, name)

    def _run(self, callback: Callable[..., Any], *arguments: Any) -> None:
        if self.stopped is not None:
            self.stopped.append((callback, arguments))
        elif self.alive():
            callback(*arguments)

    def go_on(self, before: Callable[[], None]) -> None:
        """The process runs again: `before` happens, then all that waited."""
        waited, self.stopped = self.stopped or [], None
        before()
        for callback, arguments in waited:
            self._run(callback, *arguments)

    def call_soon(self, callback: Callable[..., Any], *arguments: Any) -> Any:
        return self.loop.call_soon(self._run, callback, *arguments)

    def call_later(self, delay: float, callback: Callable[..., Any], *arguments: Any) -> Any:
        return self.loop.call_later(delay, self._run, callback, *arguments)

    def call_at(self, when: float, callback: Callable[..., Any], *arguments: Any) -> Any:
        return self.loop.call_at(when, self._run, callback, *arguments)


class TwinJetStream(NodeJetStream):
    """JetStream over a disk in memory."""

    def __init__(self, node: "ClusterNode", lookup: Callable[[str], Account]) -> None:
        options = Options(server_name=f"n{node.number}")
        options.jetstream = JetStreamOptions(
            enabled=True, store_dir="unused", max_memory_store=1 << 30, max_file_store=1 << 30
        )
        self.twin = node
        super().__init__(node.kernel, options, lookup)

    def store_options(self) -> StoreOptions:
        return StoreOptions(
            self.twin.disk.root / "data",
            SEGMENT_BYTES,
            numbered_elsewhere=stream_lifecycle.numbered_elsewhere,
            clock=self.twin.loop.clock,
            chance=self.twin.chance,
        )


class TwinTransport(Transport):
    """Frames over the cluster's network in memory."""

    def __init__(self, node: "ClusterNode") -> None:
        super().__init__("")
        self.number = node.number
        self.identity = IDENTITY
        self.node = node
        self.life = node.life

    def send(self, number: int, kind: bytes, *body: bytes) -> bool:
        """As of Transport: whether there is a route."""
        node = self.node
        if not node.up or node.life != self.life:
            return False
        return node.cluster.send(node.number, number, (kind, self.identity, b"".join(body)))

    def version(self, number: int) -> int:
        """As of Transport: all nodes run the same program."""
        return FRAMES_VERSION

    def arrive(self, sender: int, kind: bytes, identity: int, body: bytes) -> None:
        """A frame of another node."""
        if kind not in OF_GROUPS or self._is_ours(sender, identity):
            self.handlers[kind](sender, memoryview(body))


class StrictDriver(Driver):
    """The driver that is shipped; what it lives through is a finding here."""

    errors: list[object]

    def _stop_broken(self, raft: Raft, error: Exception) -> None:
        self.errors.append(error)
        super()._stop_broken(raft, error)

    def pump(self) -> None:
        try:
            super().pump()
        except Exception as error:
            self.errors.append(error)
            raise


class ClusterNode:
    """One disk, and at most one start of a node on it."""

    def __init__(self, cluster: "StreamCluster", number: int) -> None:
        self.cluster = cluster
        self.number = number
        self.loop: Any = None
        self.disk = TwinFiles()
        self.chance = SeededRandom(cluster.seed * 100 + number)
        self.taken_in = BOOT
        self.up = False
        self.life = 0

    # -- start and stop ---------------------------------------------------------

    def open(self) -> None:
        """Start on what is on the disk."""
        self.life += 1
        self.up = True
        life = self.life
        self.loop = OneLife(self.cluster.loop, lambda: self.up and self.life == life)
        self.kernel = Kernel(self.loop, self.loop.clock)
        self.account = Account(ACCOUNT, self.kernel)
        self.jetstream = TwinJetStream(self, lambda name: self.account)
        self.jetstream.on_stored = lambda found: [
            each for each in found if not stream_lifecycle.group_of(each.meta)
        ]
        self.jetstream.open()
        self.jetstream.enable(self.account)
        self.streams = StreamGroups(self.jetstream)
        self.streams.member_boot = lambda: self.taken_in
        self.store = GroupStore(
            self.jetstream.store(),
            stream_lifecycle.group_of,
            self.naming,
            self.machine,
            self.loop.clock.wall_ns(),
        )
        self.transport = TwinTransport(self)
        self.driver = StrictDriver(
            self.kernel,
            self.store,
            self.transport,
            self.loop.clock,
            self.chance,
            self.cluster.options,
        )
        self.driver.errors = self.cluster.errors
        self.streams.run(self.driver)
        self.begin()
        self.driver.start()

    def naming(self, group: int) -> Any:
        """Account, name and description of the stream of a group."""
        return self.streams.naming(group)

    def machine(self, group: int) -> Any:
        """What the entries of a group mean."""
        return self.streams.machine(group)

    def begin(self) -> None:
        """The store is open: have the streams that are wanted."""
        for wanted in self.cluster.wanted:
            if self.number in wanted.peers:
                self.streams.start(wanted)

    def crash(self, lose: str = "some") -> None:
        """The power is cut."""
        self.up = False
        self.life += 1
        self.disk.power_cut(self.chance, lose)

    def wipe(self) -> None:
        """Another disk; the cluster takes the node in anew."""
        self.disk = TwinFiles()
        self.taken_in = -1

    @property
    def multi_raft(self) -> MultiRaft:
        """All groups that run here."""
        return self.driver.multi_raft

    def stop_process(self) -> None:
        """As SIGSTOP does: nothing happens here, and what arrives waits."""
        if self.loop.stopped is None:
            self.loop.stopped = []

    def go_on(self, before: Callable[[], None] = lambda: None) -> None:
        """As SIGCONT does; `before` is what the node does first."""
        if self.loop.stopped is not None:
            self.loop.go_on(before)

    def hear(self, sender: int, kind: bytes, identity: int, body: bytes) -> None:
        """A frame arrives."""
        self.transport.arrive(sender, kind, identity, body)

    # -- as a client ----------------------------------------------------------------

    def publish(self, subject: str, payload: bytes, reply: str = "", headers: bytes = b"") -> None:
        """Publish in the account, in the next round of the loop."""

        def send() -> None:
            self.account.send(subject.encode(), payload, reply.encode(), headers, own=True)
            self.kernel.turn()

        self.loop.call_soon(send)

    def listen(self, subject: str, told: Callable[[bytes], None]) -> CallbackSink:
        """Hear what is published on a subject."""
        sink = CallbackSink(subject.encode(), lambda s, r, h, payload, o: told(payload))
        self.account.insert(sink)
        return sink

    def ask(self, subject: str, payload: bytes = b"", seconds: float = 5.0) -> dict[str, Any]:
        """One request of the API, or a publish, and its answer."""
        found: list[bytes] = []
        inbox = f"_INBOX.{self.number}.{self.cluster.number()}"
        sink = self.listen(inbox, found.append)
        self.publish(subject, payload, inbox)
        self.cluster.wait(lambda: bool(found), seconds)
        self.account.remove(sink)
        answer: dict[str, Any] = json.loads(found[0])
        return answer

    def replica_rows(self, group: int) -> list[tuple[Any, ...]]:
        """Everything that this node's replica holds, its states included."""
        replica = self.store.replicas[group]
        store = replica.store
        if store is None:
            return []
        rows: list[tuple[Any, ...]] = [(store.first_seq, store.last_seq, store.messages)]
        for sequence in range(store.first_seq, store.last_seq + 1):
            m = store.get(sequence)
            if m is not None:
                rows.append((m.sequence, m.timestamp, m.subject, m.headers, m.payload))
        states = self.jetstream.store().log.states(store.incarnation.encode())
        for key, (value, deltas) in sorted(states.items()):
            if key != b"raft":
                rows.append((key, value, *deltas))
        return rows


class StreamCluster:
    """All nodes, on one loop, and the network between them."""

    node_type: Any = ClusterNode

    def __init__(
        self, size: int = 3, seed: int = 1, part_bytes: int = 256 << 10, leases: bool = False
    ) -> None:
        """`part_bytes`: of a part of a state. `leases`: as nodes that are shipped have them."""
        self.seed = seed
        self.loop = TwinLoop()
        self.errors: list[object] = []
        self.loop.set_exception_handler(lambda loop, context: self.errors.append(context))
        self.options = RaftOptions(
            snapshot_part_bytes=part_bytes, defer_commits=True, lease_reads=leases
        )
        self.cut: set[tuple[int, int]] = set()
        """(from, to): what is sent there is lost."""
        self.slow: dict[tuple[int, int], float] = {}
        """(from, to): seconds that frames take besides."""
        self.wanted: list[Wanted] = []
        self.nodes = {number: self.node_type(self, number) for number in range(1, size + 1)}
        self._number = 0
        for node in self.nodes.values():
            node.open()

    def number(self) -> int:
        self._number += 1
        return self._number

    def send(self, sender: int, to: int, frame: tuple[bytes, int, bytes]) -> bool:
        """Deliver a frame after a while, if the node is still up then."""
        node = self.nodes[to]
        if not node.up:
            return False
        life = node.life

        def arrive() -> None:
            if node.up and node.life == life:
                node.loop._run(node.hear, sender, *frame)

        if (sender, to) not in self.cut:
            self.loop.call_later(LATENCY_S + self.slow.get((sender, to), 0.0), arrive)
        return True

    def wait(self, condition: Callable[[], bool], seconds: float = 10.0) -> None:
        """Let time go on until something is true."""
        end = self.loop.time() + seconds
        self.loop.run_until(lambda: condition() or self.loop.time() > end)
        assert self.errors == [], self.errors
        assert condition(), "it did not happen"

    def sleep(self, seconds: float) -> None:
        """Let time go on."""
        end = self.loop.time() + seconds
        self.loop.call_at(end, lambda: None)
        self.loop.run_until(lambda: self.loop.time() >= end)
        assert self.errors == [], self.errors

    def make(self, name: str = "S", group: int = 2, **fields: Any) -> Wanted:
        """A stream on the first nodes, three unless `num_replicas` says another number."""
        size = fields.setdefault("num_replicas", 3)
        wanted = StreamConfig(
            name=name, **{"subjects": [f"{name.lower()}.>"], **fields}
        )
        config = stream_config.checked(
            wanted, self.nodes[1].jetstream.account_js(ACCOUNT).scope(False, size)
        )
        found = Wanted(name, config, group, list(range(1, size + 1)), [BOOT] * size)
        self.wanted.append(found)
        for number in found.peers:
            self.nodes[number].streams.start(found)
        return found

    def leader(self, group: int = 2, besides: int = 0) -> ClusterNode:
        """The node on which a stream lives."""

        def lives() -> list[ClusterNode]:
            return [
                node
                for node in self.nodes.values()
                if node.up and node.number != besides and node.streams.stream(group) is not None
            ]

        self.wait(lambda: bool(lives()))
        return max(lives(), key=lambda node: node.streams.groups[group].raft.term)

    def stream(self, group: int = 2) -> Stream:
        """The living stream."""
        found = self.leader(group).streams.stream(group)
        assert found is not None
        return found

    def settle(self, group: int = 2) -> None:
        """Wait until all replicas that are up have applied the same."""

        def same() -> bool:
            rows = [node.streams.status(group) for node in self.nodes.values() if node.up]
            return (
                all(row is not None for row in rows)
                and len({row.applied for row in rows if row}) == 1
                and all(row.applied == row.last for row in rows if row)
            )

        self.wait(same, 30)
