"""One node of the simulation: real groups, real journal, real stream store; twin disk and clock."""

from dataclasses import replace
from typing import TYPE_CHECKING

from headwater.edge.ports.twins.clock import ManualClock
from headwater.edge.ports.twins.disk import TwinDisk
from headwater.hub.journal.journal import CLEAN, Journal
from headwater.hub.raft import membership, reads
from headwater.hub.raft.config import Config
from headwater.hub.raft.entry import EntryKind
from headwater.hub.raft.message import FROM_LEADER, Kind
from headwater.hub.raft.multi_raft import MultiRaft, Packet, WriteSet
from headwater.hub.raft.raft import Raft
from headwater.hub.raft.ready import Ready, Restored, bootstrap
from headwater.hub.raft.snapshot import Snapshot
from tests.sim.disks import Durable
from tests.sim.history import NEVER, Call
from tests.sim.machine import StreamMachine
from tests.sim.promises import Promises

if TYPE_CHECKING:
    from tests.sim.cluster import Cluster

RESTART_US = 50_000
"""After which a node is started again whose disk failed."""
COMPACT_AT = 40
"""Applied entries behind the snapshot after which a node makes another."""


def end_of(restored: Restored) -> tuple[int, int]:
    """Term and index of the last entry. A replaced tail is shorter, and of a greater term."""
    last = restored.entries[-1] if restored.entries else restored.snapshot
    return last.term, last.index


class SimNode:
    """`up` is false between a crash and the next start."""

    def __init__(self, cluster: "Cluster", number: int) -> None:
        self.cluster = cluster
        self.number = number
        self.disk = TwinDisk()
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
        self.durable = self.before = Durable()
        self.tick_us = 10_000
        self.dozing: set[int] = set()
        """Groups that sleep."""
        self.multi_raft: MultiRaft
        self.journal: Journal

    # -- start and stop -----------------------------------------------------------------

    def start(self) -> None:
        """A start that the disk refuses is tried again later; as long as it took no mark away,
        the stop before it was the last."""
        self.starts += 1
        self.up = True
        orderly = self.orderly
        try:
            self._start()
        except OSError:
            self.fail()
            self.orderly = orderly and CLEAN in self.disk.files

    def fail(self) -> None:
        """The disk failed: the node ends, as the journal demands, and is started again."""
        if self.up:
            self.crash(power_cut=False)
            self.cluster.after(RESTART_US, self.cluster.start_again, self)

    def _start(self) -> None:
        self.paused = False
        self.waiting = []
        self.clock.true_ns = self.cluster.now_us * 1000
        self.journal = Journal(self.disk, max(self.clock.wall_ns(), self.boot_floor))
        self.boot_floor = 0
        # The victim's disk may be another one by now, and its clock set back: others tell it.
        self.cluster.checker.require(
            self.journal.boot not in self.boots
            and (self.journal.boot > self.boot or self.number == self.cluster.victim),
            "the number of a boot is reused",
        )
        self.boots.add(self.journal.boot)
        # A disk begins to lie only after the start: see the assumptions in docs/RAFT.md.
        self.boot = self.journal.boot
        self.disk.flush()
        self.multi_raft = MultiRaft(
            self.number, self.journal.boot, self.cluster.chance.below, self.cluster.options
        )
        self.machines: dict[int, StreamMachine] = {}
        self.calls: dict[tuple[int, int], tuple[int, bytes, Call]] = {}
        self.reads: dict[int, tuple[int, Call, int | None]] = {}
        self.before, self.durable = self.durable, Durable()
        self.written: list[tuple[int, WriteSet]] = []
        self.heard: dict[tuple[int, int], int] = {}
        self.promises: dict[int, Promises] = {}
        self.leading: dict[int, tuple[int, object]] = {}
        self.syncing = False
        for group in self.cluster.groups:
            self.add_group(group)
        self.cluster.after(self.tick_us, self.tick, self.starts)
        self.pump()

    def add_group(self, group: int, incarnation: int = 0) -> None:
        """`incarnation`: above that of a replica that was removed."""
        restored = self.journal.start.groups.pop(group, None)
        first = self.number in self.cluster.first[group].voters and group not in self.begun
        self.begun.add(group)
        if restored is None and first:
            restored = bootstrap(self.cluster.first[group], self.number)
            self.journal.create(group, restored)
        if restored is None:
            restored = Restored(Snapshot(0, 0, Config()))
        restored = replace(restored, seeds=tuple(self.cluster.nodes), incarnation_floor=incarnation)
        hard = restored.hard_state
        checker = self.cluster.checker
        if self.number != self.cluster.victim:
            checker.restored(group, self.number, hard)
            checker.require(
                end_of(restored) >= self.before.end.get(group, (0, 0)),
                f"the disk of node {self.number} lost entries of group {group}",
            )
        self.durable.found(group, restored)
        checker.found(group, self.number, restored)
        self.machines[group] = StreamMachine()
        self.machines[group].restore(restored.snapshot.index, restored.snapshot.data)
        raft = self.multi_raft.add(group, restored)
        self.promises[group] = Promises(checker, raft, self.durable)
        checker.require(
            self.orderly or not restored.clean or self.starts == 1,
            "an unclean start is called clean",
        )
        checker.require(restored.clean or raft.recovering, "an unclean start is not recovering")

    def crash(self, power_cut: bool = True) -> None:
        self.up = False
        self.starts += 1
        self.orderly = False
        for _, _, call in self.calls.values():
            call.end = NEVER
        if power_cut:
            self.disk.power_cut(self.cluster.chance)

    def stop(self) -> None:
        """An orderly stop."""
        whole = all(raft.whole for raft in self.multi_raft.groups.values())
        try:
            if whole:
                self.journal.record_clean_stop()
        except OSError:
            pass  # the mark may be there or not; the stop was orderly in either case
        self.crash(power_cut=False)
        self.orderly = whole
        self.disk.power_cut(self.cluster.chance)

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
            self.disturb()
            self.retire()
            if self.up:
                self.pump()
            if self.up and self.multi_raft.stale_boot:
                self.boot_floor = self.multi_raft.stale_boot
                self.crash()
                self.start()

    def disturb(self) -> None:
        """Some who lead groups that have just fallen asleep are asked for something soon."""
        asleep = {raft.group for raft in self.multi_raft.groups.values() if raft.sleep.asleep}
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

    def retire(self) -> None:
        try:
            self._retire()
        except OSError:
            self.fail()

    def _retire(self) -> None:
        """A group that was told to go makes room for another incarnation of itself."""
        for group, raft in list(self.multi_raft.groups.items()):
            if raft.removed and not self.syncing and not self.written:
                self.multi_raft.drop(group)
                self.journal.erase(group)
                self.cluster.checker.cast.pop((group, self.number), None)
                self.before.end.pop(group, None)
                self.durable.end.pop(group, None)
                self.journal.sync()
                self.reads = {k: v for k, v in self.reads.items() if v[0] != group}
                self.add_group(group, raft.incarnation + 1)

    def pump(self) -> None:
        try:
            self._pump()
        except OSError:
            self.fail()

    def _pump(self) -> None:
        while self.up and self.multi_raft.has_ready() and self.multi_raft.can_write():
            write_set = self.multi_raft.ready()
            for raft, _ in write_set.groups:
                self.judge(raft)
            self.send(write_set.packets)
            self.journal.write([(raft.group, ready) for raft, ready in write_set.groups])
            for raft, ready in write_set.groups:
                self.cluster.written(self, raft, ready)
                if ready.snapshot is not None:
                    self.restore(raft.group, ready.snapshot)
                self.apply(raft, ready)
                self.judge(raft)
            if write_set.groups:
                self.written.append((write_set.number, write_set))
            quick = self.written and not self.syncing
            if quick and not any(each.writes for _, each in self.written):
                self.finish_sync(self.starts, len(self.written))
        if self.written and not self.syncing:
            self.syncing = True
            delay = self.sync_us + self.cluster.chance.below(self.sync_us)
            self.cluster.after(delay, self.finish_sync, self.starts, len(self.written))

    def finish_sync(self, starts: int, count: int) -> None:
        if starts != self.starts or (self.paused and self.hold_sync(starts, count)):
            return
        self.syncing = False
        try:
            self.journal.sync()
        except OSError:
            self.fail()
            return
        done, self.written = self.written[:count], self.written[count:]
        for _, write_set in done:
            for raft, ready in write_set.groups:
                self.record_durable(raft.group, ready)
        packets = self.multi_raft.synced(done[-1][0])
        for raft in self.multi_raft.groups.values():
            self.judge(raft)
        self.send(packets)
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
        self.multi_raft.receive(packet)
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

    def apply(self, raft: Raft, ready: Ready) -> None:
        machine = self.machines[raft.group]
        checker = self.cluster.checker
        for entry in ready.committed:
            result = 0
            if entry.kind == EntryKind.NORMAL:
                result = machine.apply(entry.index, entry.data)
            machine.applied = entry.index
            checker.require(
                self.durable.last[raft.group] >= entry.index, f"{entry.index} applied too early"
            )
            checker.applied(raft.group, self.number, entry, result, machine.digest)
            waiting = self.calls.pop((raft.group, entry.index), None)
            if waiting is not None and waiting[:2] == (entry.term, entry.data):
                self.answer(waiting[2], result, entry.index, entry.term, entry.data)
        for state in ready.reads:
            found = self.reads.get(state.context)
            if found is not None and state.index is None:
                del self.reads[state.context]
            elif found is not None:
                checker.may_read(state.context, state.index)
                self.reads[state.context] = (*found[:2], state.index)
        self.serve_reads(raft.group, machine)
        if machine.applied - raft.log.base_index >= COMPACT_AT:
            self.compact(raft, machine)

    def restore(self, group: int, snapshot: Snapshot) -> None:
        """A leader's snapshot: the state is that of its index."""
        machine = self.machines[group]
        machine.restore(snapshot.index, snapshot.data)
        self.cluster.checker.restored_to(group, self.number, snapshot.index, machine.digest)

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

    def compact(self, raft: Raft, machine: StreamMachine) -> None:
        index = machine.applied
        term = raft.log.term(index) or 0
        snapshot = Snapshot(index, term, raft.log.config_at(index), machine.snapshot())
        self.journal.save_snapshot(raft.group, snapshot)
        raft.compact(snapshot)
        self.journal.reclaim()
