"""Drives the Raft groups of a running node: ticks, packets over routes, write sets to the store.

All groups share one `MultiRaft`, so one tick, one write set with one sync, and one packet for each
other node. Whoever owns a group adds it with a handler, and is told what to apply. A group that
breaks is stopped on this node and told of; the others go on.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Protocol

from headwater.edge.kernel.kernel import Kernel
from headwater.edge.ports.ports import Clock, Random
from headwater.edge.storage.format.errors import StoreError
from headwater.hub.cluster.read_questions import ReadQuestions
from headwater.hub.cluster.transport import Transport
from headwater.hub.raft.codec import decode_packet, packet_pieces
from headwater.hub.raft.model.errors import Contradiction
from headwater.hub.raft.model.options import Options
from headwater.hub.raft.model.ready import Ready, Restored
from headwater.hub.raft.multi_raft import MultiRaft, Packet
from headwater.hub.raft.raft import Raft
from headwater.hub.stored.group_store import GroupStore

log = logging.getLogger("headwater.raft")

FRAME_BYTES = 1 << 20
"""A packet with more entries than this is sent in parts."""
PACKETS_VERSIONS = ((10, 3), (3, 2), (0, 1))
"""Of what a node says of itself to routes, and the version of packets that it knows then."""
TELL_SECONDS = 0.001
"""That a commit waits for entries to go with. Publishers that wait for their acks send the next
message within less."""
CONTRADICTED = (
    "%s stops on this node and keeps what it has: its leader has lost or replaced it (%s); compare "
    "them, and if the others are right, empty this node's folder"
)
STOP_SECONDS = 3.0
"""That a stop waits for what was written to be durable; later the stop is not a clean one."""


class Handler(Protocol):
    """The owner of a group."""

    @property
    def name(self) -> str:
        """What the group is of, for people."""

    @property
    def tag(self) -> int:
        """The same as a number, for other nodes; 0 where a node has but one."""

    def ready(self, raft: Raft, ready: Ready) -> None:
        """A write set was handed to the store. Apply what is committed, and end reads."""

    def changed(self, raft: Raft) -> None:
        """Role, term or leader are others than before."""

    def tidy(self, raft: Raft) -> None:
        """Called when something happened, and with each tick while the group is awake: let go of
        entries that are applied, make snapshots."""

    def broken(self) -> None:
        """The group was stopped here, because it or its handler raised what nobody expects."""


class Driver:
    """Not thread-safe; made when the node's store is open."""

    def __init__(
        self,
        kernel: Kernel,
        store: GroupStore,
        transport: Transport,
        clock: Clock,
        chance: Random,
        options: Options | None = None,
    ) -> None:
        self.kernel = kernel
        self.store = store
        self.transport = transport
        self.clock = clock
        self.number = transport.number
        options = options or Options(lease_reads=True, defer_commits=True)
        self.multi_raft = MultiRaft(self.number, store.boot, chance.below, options)
        self.multi_raft.on_fault = self._stop_broken
        self.questions = ReadQuestions(transport, self.multi_raft, clock)
        self.handlers: dict[int, Handler] = {}
        self.broken: dict[int, str] = {}
        """By group: why it was stopped on this node, which only a start of the node ends."""
        self.stopping = False
        self.before_round: list[Callable[[], None]] = []
        """Called when a round begins: what waits to be proposed is proposed."""
        self._seen: dict[int, tuple[object, ...]] = {}
        self._due = False
        self._unannounced: dict[int, Raft] = {}
        """Groups whose newest commit waits for entries to go with."""
        self._ticker: asyncio.TimerHandle | None = None
        self._tick_due = 0
        self._stale_announced = False
        store.on_synced = self._synced
        store.on_news = self.touch
        store.transfers.name_of = self.name_of
        transport.handlers[b"raft"] = self._receive

    # -- groups -----------------------------------------------------------------

    def name_of(self, group: int) -> str:
        """What a group is of, for people; its number where nobody owns it."""
        handler = self.handlers.get(group)
        return handler.name if handler is not None else f"Raft group {group}"

    def add(self, group: int, restored: Restored, handler: Handler) -> Raft:
        """Start a group of this node."""
        raft = self.multi_raft.add(group, restored, handler.tag)
        self.handlers[group] = handler
        self.store.attach(raft)
        self.soon()
        return raft

    def drop(self, group: int) -> None:
        """Stop a group here; what is stored of it stays."""
        self.store.let_go(group)
        self.multi_raft.drop(group)
        self.questions.forget(group)
        self.handlers.pop(group, None)
        self._seen.pop(group, None)
        self.broken.pop(group, None)

    def _stop_broken(self, raft: Raft, error: Exception) -> None:
        """A group, or its handler, raised what nobody expects. What was half done of it is told by
        no mark, so that the next start asks the other replicas."""
        group = raft.group
        handler = self.handlers.get(group)
        name = handler.name if handler is not None else f"group {group}"
        if isinstance(error, Contradiction):
            log.critical(CONTRADICTED, name, error)
        else:
            log.critical(
                "%s is broken and stops on this node, other replicas go on without it: start the "
                "node again, then it asks them for what it lacks",
                name,
                exc_info=error,
            )
        self.drop(group)
        self.broken[group] = f"{name} stopped on this node ({error or type(error).__name__})"
        replica = self.store.replicas.get(group)
        if replica is not None:
            replica.doubtful = True
        if handler is None:
            return
        try:
            handler.broken()
        except Exception:
            log.exception(
                "%s: what was left of it could not be ended; the node serves on; report this fault",
                name,
            )

    def touch(self, raft: Raft) -> None:
        """Something was asked of a group: it is looked at in this round of the loop."""
        self.multi_raft.touch(raft)
        self.soon()

    # -- rounds -----------------------------------------------------------------

    def start(self) -> None:
        """Begin to tick."""
        self._tick()

    def _tick(self) -> None:
        if self.stopping:
            return
        now, pace = self.clock.monotonic_ns(), self.multi_raft.pace
        if self._tick_due:
            pace.ticked(now - self._tick_due)
        interval = pace.interval_ns()
        self._tick_due = now + interval
        self._ticker = self.kernel.loop.call_later(interval / 1e9, self._tick)
        self.multi_raft.tick(now)
        if self.multi_raft.stale_boot and not self._stale_announced:
            self._stale_announced = True
            log.critical(
                "other nodes know a later start of this node, so they refuse it: start it again"
            )
        self._round()

    def soon(self) -> None:
        """Do what is to be done when the present callback has ended."""
        if not self._due and not self.stopping:
            self._due = True
            self.kernel.loop.call_soon(self._round)

    def _round(self) -> None:
        self._due = False
        if self.stopping:
            return
        try:
            for propose in self.before_round:
                propose()
            self.pump()
        except Exception:
            log.exception(
                "a round of %d Raft groups failed; the next one goes on; report this fault",
                len(self.multi_raft.groups),
            )
        self.kernel.turn()

    def pump(self) -> None:
        """Write, send and apply all that can be now."""
        store, multi = self.store, self.multi_raft
        store.pump()
        looked_at = {raft.group: raft for raft in multi.touched()}
        while multi.has_ready() and multi.can_write():
            write_set = multi.ready()
            self._send(write_set.packets)
            store.write(write_set)
            for raft, ready in write_set.groups:
                looked_at[raft.group] = raft
                self._guard(raft, store.carry, raft, ready)
                handler = self.handlers.get(raft.group)
                if handler is not None:
                    self._guard(raft, handler.ready, raft, ready)
        for group, raft in looked_at.items():
            if multi.groups.get(group) is raft and group in self.handlers:
                self._guard(raft, self._look_at, raft, self.handlers[group])

    def _guard(self, raft: Raft, work: Callable[..., None], *of: Any) -> None:
        """Do a group's work; what it raises is the end of this group here, and of no other."""
        try:
            work(*of)
        except Exception as error:
            self._stop_broken(raft, error)

    def _look_at(self, raft: Raft, handler: Handler) -> None:
        """Tell a handler what is different, and let it tidy up."""
        self._report_changes(raft, handler)
        if raft.commit_due:
            self._announce_later(raft)
        try:
            handler.tidy(raft)
        except StoreError as error:
            log.debug("%s keeps its log: %s", handler.name, error)

    def _announce_later(self, raft: Raft) -> None:
        if not self._unannounced:
            self.kernel.loop.call_later(TELL_SECONDS, self._announce_commits)
        self._unannounced[raft.group] = raft

    def _announce_commits(self) -> None:
        """Commits have waited long enough."""
        waiting, self._unannounced = self._unannounced, {}
        for group, raft in waiting.items():
            if raft.commit_due and self.multi_raft.groups.get(group) is raft:
                self._guard(raft, raft.tell_commit)
                self.touch(raft)

    def _report_changes(self, raft: Raft, handler: Handler) -> None:
        now = (raft.role, raft.term, raft.leader, raft.removed)
        if self._seen.get(raft.group) != now:
            self._seen[raft.group] = now
            handler.changed(raft)

    def _synced(self, number: int) -> None:
        packets = self.multi_raft.synced(number)
        self._send(packets)
        if packets or self.multi_raft.has_ready():
            self.soon()

    # -- packets ----------------------------------------------------------------

    def _send(self, packets: list[Packet]) -> None:
        pace_ns = self.multi_raft.pace.own_ns if packets else 0
        for packet in packets:
            packet.pace_ns = pace_ns
            known = self.transport.version(packet.to)
            version = next(packets for least, packets in PACKETS_VERSIONS if known >= least)
            for part in parts(packet):
                self.transport.send(packet.to, b"raft", *packet_pieces(part, version))

    def _receive(self, sender: int, body: memoryview) -> None:
        packet = decode_packet(body)
        if packet.sender != sender or packet.to != self.number:
            raise ValueError("a packet of somebody else")
        self.multi_raft.receive(packet, self.clock.monotonic_ns())
        if self.multi_raft.has_ready():
            self.soon()

    # -- end --------------------------------------------------------------------

    async def stop(self) -> None:
        """Leave the store so that the next start may vote at once, if time allows."""
        if self._ticker is not None:
            self._ticker.cancel()
        self.store.pump()
        clean = all(raft.whole for raft in self.multi_raft.groups.values())
        self.stopping = True
        try:
            async with asyncio.timeout(STOP_SECONDS):
                while not self.store.idle:
                    self.kernel.turn()
                    await asyncio.sleep(0.005)
            if clean:
                self.store.record_clean_stop()
        except (TimeoutError, OSError, StoreError) as error:
            log.warning(
                "the clean stop is not written (%s): the next start has to ask the other nodes",
                error or "no time left",
            )
        self.store.close()


def parts(packet: Packet) -> list[Packet]:
    """A packet as packets of a bounded size; a single greater message stays whole."""
    found = [packet]
    size = 0
    messages, packet.messages = packet.messages, []
    for message in messages:
        weight = len(message.part) + sum(len(entry.data) + 32 for entry in message.entries)
        if size and size + weight > FRAME_BYTES:
            of = (packet.sender, packet.to, packet.boot)
            found.append(Packet(*of, [], packet.known_boot, packet.pace_ns))
            size = 0
        found[-1].messages.append(message)
        size += weight
    return found
