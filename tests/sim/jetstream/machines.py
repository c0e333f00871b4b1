"""A machine of the simulation: a disk, clocks, and at most one start of the shipped node on it."""

import asyncio
import errno
from collections.abc import Callable
from typing import Any

from headwater.edge.conf.options import (
    CompressionOptions,
    JetStreamOptions,
    LeafOptions,
    LeafRemoteOptions,
    Options,
)
from headwater.edge.jetstream.account import stream_lifecycle
from headwater.edge.jetstream.node.node import NodeJetStream
from headwater.edge.jetstream.stream.stream import Stream
from headwater.edge.kernel.kernel import CallbackSink
from headwater.edge.node.node import Node
from headwater.edge.storage.directory.store_options import StoreOptions
from headwater.edge.storage.format.errors import StoreError
from headwater.edge.storage.node import node_store
from headwater.federation.leaf.leaf_links import LeafLinks
from headwater.federation.leaf.leaf_listener import LeafListener
from headwater.federation.leaf.leaf_remote import LeafRemote
from headwater.federation.service import LeafService, OriginService
from tests.sim.jetstream.network import Network, SimSocket
from tests.sim.jetstream.world import MachineClock, World
from tests.sim.store_disk import StoreDisk

node_store.SEGMENT_BYTES_MIN = 4096
SEGMENT_BYTES = 16384
"""Some dozens of messages fill a segment, so that a run sees checkpoints and compaction."""
ACCOUNT = "$G"


class SimJetStream(NodeJetStream):
    """JetStream over a disk in memory."""

    disk: StoreDisk
    segment_bytes = SEGMENT_BYTES

    def store_options(self) -> StoreOptions:
        return StoreOptions(
            self.disk.twin.root / "data",
            self.segment_bytes,
            numbered_elsewhere=stream_lifecycle.numbered_elsewhere,
            clock=self.kernel.source(),
            chance=self.kernel.chance,
        )


class SimNode(Node):
    """The node as it is shipped, without listeners of its own."""

    machine: "Machine"

    def make_jetstream(self) -> NodeJetStream:
        made = SimJetStream(self.kernel, self.options, self.account)
        made.disk = self.machine.disk
        made.segment_bytes = self.machine.segment_bytes
        return made

    def _listen(self) -> None:
        """Clients call."""


class SimRemote(LeafRemote):
    """Dials through the simulated network."""

    network: Network

    async def _open(self, host: str, port: int, timeout: float) -> Any:
        return self.network.dial()


class SimLeafs(LeafService):
    """Leaf links over the simulated network: one side dials the other."""

    def __init__(self, network: Network, dials: bool, compression: str) -> None:
        super().__init__()
        self.network = network
        self.dials = dials
        self.compression = CompressionOptions(mode=compression)

    def start(self, node: Any) -> None:
        self.links = LeafLinks(node)
        if self.dials:
            options = LeafRemoteOptions(urls=["nats://hub:7422"], compression=self.compression)
            remote = SimRemote(self.links, options)
            remote.network = self.network
            self.remotes.append(remote)
            remote.start()
        else:
            self.listener = LeafListener(self.links)

    def accept(self, sock: SimSocket) -> None:
        """Serve a link that was dialled."""
        assert self.listener is not None
        self.listener._on_socket(sock, sock.getpeername())  # type: ignore[arg-type]


class Machine:
    """One disk and one clock; `node` is None while it is off."""

    segment_bytes = SEGMENT_BYTES

    def __init__(
        self, world: World, name: str, network: Network, dials: bool, compression: str = ""
    ) -> None:
        self.world = world
        self.name = name
        self.network = network
        self.dials = dials
        self.compression = compression
        """Of the link."""
        self.disk = StoreDisk()
        self.clock = MachineClock(world)
        self.chance = world.chance.fork(name)
        self.node: SimNode | None = None
        self.life = 0
        self.stopping = False
        """Whether the node was told to stop and still does things."""
        self.harm = ""
        """What happens when the disk has done so many operations: "power" or "kill"."""
        self.write_delay_s = 0.0
        self.requests = 0
        self.on_down: Callable[[Machine, str], None] = lambda machine, harm: None
        self.on_start: Callable[[Machine], None] = lambda machine: None
        world.after.append(self._after_round)
        if not dials:
            network.accept = self._accept

    # -- start and stop ---------------------------------------------------------

    @property
    def gone(self) -> bool:
        """Whether nothing that the node says now is heard by anybody."""
        return self.node is None or self.disk.is_cut

    @property
    def is_up(self) -> bool:
        """Whether there is a node that stays until somebody harms it."""
        return self.node is not None and not self.stopping

    def options(self) -> Options:
        """Its configuration."""
        options = Options(server_name=self.name, no_system_account=True)
        options.jetstream = JetStreamOptions(
            enabled=True,
            store_dir="unused",
            max_memory_store=1 << 30,
            max_file_store=1 << 30,
            domain=self.name,
        )
        options.leaf = LeafOptions(
            reconnect=0.25, compression=CompressionOptions(mode=self.compression)
        )
        return options

    def start(self) -> None:
        """Start on what is on the disk. A full disk may keep it from starting."""
        self.life += 1
        self.stopping = False
        loop = self.world.loop(self.clock)
        loop.write_delay_s = self.write_delay_s
        self.loop = loop
        chance = self.chance.fork(f"life {self.life}")
        self.node = node = SimNode(self.options(), loop, self.clock, chance)
        node.machine = self
        self.plug(node)
        try:
            self.begin(node)
        except (StoreError, OSError) as error:
            self.world.note(f"{self.name}: does not start: {error}")
            full = isinstance(error, OSError) and error.errno == errno.ENOSPC
            self.world.check(full or self.disk.full, f"{self.name} does not start: {error}")
            self._down("kill")
            return
        self._after_round()
        if not self.gone:
            self.on_start(self)

    def begin(self, node: SimNode) -> None:
        """Start a node as its own loop does."""
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self.loop)
        try:
            node.start()
        finally:
            asyncio._set_running_loop(before)

    def plug(self, node: SimNode) -> None:
        """Give a node that is about to start what connects it to others."""
        self.leafs = SimLeafs(self.network, self.dials, self.compression)
        node.services += [self.leafs, OriginService(self.leafs)]

    def unplug(self) -> None:
        """The node is off: its connections end."""
        self.network.reset()

    def start_again(self) -> None:
        """`start`, if nobody has done so."""
        if self.node is None:
            self.world.note(f"{self.name}: start")
            self.start()

    def _after_round(self) -> None:
        if self.node is not None and self.disk.is_cut:
            harm, self.harm = self.harm, ""
            self.world.note(f"{self.name}: {harm} at an operation of the disk")
            self._down(harm)

    def crash(self, harm: str) -> None:
        """The process is killed, or the power is cut, now."""
        self.world.note(f"{self.name}: {harm}")
        self._down(harm)

    def stop(self) -> None:
        """Stop as an operator does, and stay off for a while."""
        node = self.node
        assert node is not None
        self.world.note(f"{self.name}: stops")
        self.stopping = True
        task = self.loop.create_task(node.stop())
        task.add_done_callback(lambda _: self.world.later(0, self._stopped, node))

    def _stopped(self, node: SimNode) -> None:
        if self.node is node:
            self.world.note(f"{self.name}: has stopped")
            self._down("kill")

    def set_write_delay(self, seconds: float) -> None:
        """Make writes and syncs of the log take so long."""
        self.write_delay_s = seconds
        if self.node is not None:
            self.loop.write_delay_s = seconds

    def switch_off(self) -> None:
        """The run is over: nothing of the node stays."""
        if self.node is not None:
            self._forget(self.node)
            self.disk.kill(self.chance)
            self.node = None

    def _forget(self, node: SimNode) -> None:
        self.world.forget(self.loop)
        if node.jetstream is not None and node.jetstream.storage is not None:
            node.jetstream.storage.disk.close()

    def _down(self, harm: str) -> None:
        node, self.node = self.node, None
        assert node is not None
        self._forget(node)
        if harm == "power":
            self.disk.power_cut(self.chance)
            self.clock.switch_on()
        else:
            self.disk.kill(self.chance)
        self.unplug()
        self.on_down(self, harm)

    def _accept(self, sock: SimSocket) -> bool:
        if self.gone:
            return False
        self.loop.call_soon(self.leafs.accept, sock)
        return True

    # -- as a client --------------------------------------------------------------

    def stream(self, name: str) -> Stream | None:
        """A living stream."""
        if self.node is None or self.node.jetstream is None:
            return None
        account = self.node.accounts[ACCOUNT]
        return None if account.jetstream is None else account.jetstream.streams.get(name)

    def publish(self, subject: str, payload: bytes, reply: str = "", headers: bytes = b"") -> None:
        """Publish, in the next round of the node's loop."""
        node = self.node
        if node is None:
            return

        def send() -> None:
            account = node.accounts[ACCOUNT]
            taken = account.send(subject.encode(), payload, reply.encode(), headers, own=True)
            if not taken and reply:
                self.unheard(reply)
            node.kernel.turn()

        self.loop.call_soon(send)

    def unheard(self, reply: str) -> None:
        """Nobody has heard what was published with `reply`."""

    def listen(self, subject: str, told: Callable[[bytes, bytes, bytes], None]) -> CallbackSink:
        """Hear (reply, headers, payload) of what is published on a subject in this start."""

        def hear(_: bytes, reply: bytes, headers: bytes, payload: bytes, __: object) -> None:
            if not self.gone:
                told(reply, headers, payload)

        sink = CallbackSink(subject.encode(), hear)
        assert self.node is not None
        self.node.accounts[ACCOUNT].insert(sink)
        return sink

    def request(
        self,
        subject: str,
        payload: bytes,
        told: Callable[[bytes, bytes], None],
        headers: bytes = b"",
    ) -> None:
        """Publish, and hear the one answer (headers, payload) if there is any in this start."""
        if self.node is None:
            return
        node = self.node
        self.requests += 1
        inbox = f"_INBOX.{self.name}.{self.requests}"

        def once(_: bytes, block: bytes, body: bytes) -> None:
            node.accounts[ACCOUNT].remove(sink)
            told(block, body)

        sink = self.listen(inbox, once)
        self.publish(subject, payload, inbox, headers)
