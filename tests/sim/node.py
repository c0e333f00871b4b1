"""One node of the simulation among the others: ticks, what it hears and says, and what is checked.
What touches its disk is in `store_node`."""

from abc import ABC, abstractmethod
from typing import Any

from headwater.edge.ports.twins.clock import ManualClock
from headwater.hub.raft import membership, reads
from headwater.hub.raft.model.message import FROM_LEADER, Kind
from headwater.hub.raft.model.ready import Ready
from headwater.hub.raft.multi_raft import MultiRaft, Packet, WriteSet
from headwater.hub.raft.raft import Raft
from tests.sim.checks.history import NEVER, Call
from tests.sim.checks.promises import Promises
from tests.sim.disks import Durable
from tests.sim.machine import StreamMachine
from tests.sim.store_disk import StoreDisk
from tests.sim.world import World


class SimNode(ABC):
    """`up` is false between a crash and the next start."""

    def __init__(self, cluster: World, number: int) -> None:
        self.cluster = cluster
        self.number = number
        self.disk = StoreDisk()
        self.clock = ManualClock()
        self.starts = 0
        self.up = False
        self.orderly = True
        self.paused = False
        self.waiting: list[Packet] = []
        self.sync_us = 300
        self.boot_floor = 0
        self.boot = 0
        self.boots: set[int] = set()
        self.begun: set[int] = set()
        self.durable = Durable()
        self.tick_us = 10_000
        self.dozing: set[int] = set()
        """Groups that sleep."""
        self.multi_raft: MultiRaft
        self.machines: dict[int, Any]
        self.calls: dict[tuple[int, int], tuple[int, bytes, Call]]
        self.reads: dict[int, tuple[int, Call, int | None]]
        self.written: list[tuple[int, WriteSet]]
        self.heard: dict[tuple[int, int], int]
        self.promises: dict[int, Promises]
        self.leading: dict[int, Any]

    # -- of the disk ---------------------------------------------------------------------

    @abstractmethod
    def start(self) -> None:
        """Begin with what is on the disk; a start that it refuses is tried again later."""

    @abstractmethod
    def stop(self) -> None:
        """An orderly stop."""

    @abstractmethod
    def crash(self) -> None:
        """The power goes."""

    @abstractmethod
    def pump(self) -> None:
        """Write, send and apply what can be now."""

    @abstractmethod
    def retire(self) -> None:
        """A group that was told to go makes room for another incarnation of itself."""

    @abstractmethod
    def finish_sync(self, starts: int, count: int) -> None:
        """The disk is done with what it was asked to sync."""

    # -- start and stop -----------------------------------------------------------------

    def end_life(self) -> None:
        """Whatever it was doing is over."""
        self.up = False
        self.starts += 1
        self.orderly = False
        for _, _, call in self.calls.values():
            call.end = NEVER

    # -- events ---------------------------------------------------------------

    def tick(self, starts: int) -> None:
        if starts != self.starts:
            return
        self.cluster.after(self.tick_us, self.tick, starts)
        if not self.paused:
            self.clock.true_ns = self.cluster.now_us * 1000
            self.multi_raft.tick(self.clock.monotonic_ns())
            for raft in self.multi_raft.groups.values():
                self.check_quorum(raft)
                self.promises[raft.group].handing_over()
            self.meet_sleepers()
            self.retire()
            if self.up:
                self.pump()
            if self.up and self.multi_raft.stale_boot:
                self.boot_floor = self.multi_raft.stale_boot
                self.crash()
                self.start()

    def meet_sleepers(self) -> None:
        """Groups that have just fallen asleep are looked at: the product looks at them no more.
        Some who lead such groups are asked for something soon."""
        groups = self.multi_raft.groups
        asleep = {raft.group for raft in groups.values() if raft.sleep.asleep}
        for group in sorted(asleep - self.dozing):
            self.judge(groups[group])
        if asleep - self.dozing and not self.cluster.chance.below(4):
            self.cluster.after(self.cluster.chance.below(60_000), self.cluster.ask, self)
        self.dozing = asleep

    def read_clock(self) -> None:
        """The clock jumped: whoever reads it notices."""
        now_ns = self.clock.monotonic_ns()
        for raft in self.multi_raft.groups.values() if self.up else ():
            if now_ns < raft.now_ns:
                self.promises[raft.group].told.forget_rounds()
            reads.clock(raft, now_ns)

    def receive(self, packet: Packet) -> None:
        if not self.up:
            return
        if self.paused:
            if len(self.waiting) < 1000:
                self.waiting.append(packet)
            return
        self.hear(packet)
        self.pump()

    def resume(self) -> None:
        self.paused = False
        waiting, self.waiting = self.waiting, []
        if self.up:
            for raft in self.multi_raft.groups.values():
                if raft.is_leader:
                    self.cluster.read(self, raft, "a")
            for packet in waiting:
                self.hear(packet)
            if self.up:
                self.pump()

    def hold_sync(self, starts: int, count: int) -> bool:
        self.cluster.after(5000, self.finish_sync, starts, count)
        return True

    def record_durable(self, group: int, ready: Ready) -> None:
        self.durable.record(group, ready)
        self.cluster.checker.record_durable(group, self.number, ready)

    def judge(self, raft: Raft) -> None:
        self.cluster.checker.state(raft)
        self.promises[raft.group].state()

    def send(self, packets: list[Packet]) -> None:
        for packet in packets:
            for m in packet.messages:
                raft = self.multi_raft.groups[m.group]
                self.cluster.checker.sent(m, self.durable)
                if m.kind is Kind.VOTE:
                    self.cluster.checker.stands(m, raft.log.config.voters)
                elif m.kind is Kind.APPEND_REPLY and not m.reject:
                    self.cluster.checker.record_acked(m, raft.log.term(m.index), self.durable)
                    other = self.cluster.nodes[m.to]
                    leader = other.multi_raft.groups.get(m.group) if other.up else None
                    self.cluster.checker.agreed(m, raft, leader)
            self.cluster.send(packet)

    def hear(self, packet: Packet) -> None:
        """Let the product hear it, and note who was heard."""
        self.multi_raft.receive(packet, self.clock.monotonic_ns())
        for m in packet.messages:
            raft = self.multi_raft.groups.get(m.group)
            late = raft is None or self.multi_raft._boots.get(m.sender) != m.boot
            if late or membership.fenced(raft, m):
                continue
            self.heard[m.group, m.sender] = raft.ticks
            if m.kind in FROM_LEADER and raft.leader == m.sender and raft.term == m.term:
                self.promises[m.group].led = raft.ticks

    def check_quorum(self, raft: Raft) -> None:
        """A leader that is awake has heard a majority of the same voters in the last three
        election timeouts."""
        voters = raft.log.config.voters
        if not raft.is_leader or raft.sleep.asleep:
            self.leading.pop(raft.group, None)
            return
        since, same = self.leading.get(raft.group, (raft.ticks, voters))
        if same != voters:
            since = raft.ticks
        self.leading[raft.group] = since, voters
        early = raft.ticks - 3 * raft.options.election_ticks
        if since > early:
            return
        heard = sum(
            node == self.number or self.heard.get((raft.group, node), -1) >= early
            for node in voters
        )
        self.cluster.checker.require(
            2 * heard > len(voters), f"node {self.number} leads {raft.group} without a quorum"
        )

    # -- the state machine ----------------------------------------------------

    def answer(self, call: Call, result: int, index: int, term: int, data: bytes) -> None:
        call.sequence = result
        call.end = self.cluster.next_moment()
        self.cluster.checker.kept(call.group, index, term, data)

    def serve_reads(self, group: int, machine: StreamMachine) -> None:
        for context, (of, call, index) in list(self.reads.items()):
            if of == group and index is not None and index <= machine.applied:
                del self.reads[context]
                call.sequence, call.seen = machine.read(call.key)
                call.end = self.cluster.next_moment()
