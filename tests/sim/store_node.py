"""A node of the simulation whose groups live in a real store: commit log, segments and hard states
on a disk in memory."""

from contextlib import suppress
from dataclasses import replace
from typing import Any

from headwater.edge.kernel.kernel import Kernel
from headwater.edge.ports.twins.loop import TwinLoop
from headwater.edge.storage.directory.store_options import StoreOptions
from headwater.edge.storage.format.errors import Damaged, StoreError
from headwater.edge.storage.index.memory import MemoryStore
from headwater.edge.storage.node import node_store
from headwater.edge.storage.node.node_store import NodeStore
from headwater.edge.storage.segments.file_store import FileStore
from headwater.hub.raft.model.config import Config
from headwater.hub.raft.model.entry import Entry
from headwater.hub.raft.model.ready import Ready, Restored, bootstrap
from headwater.hub.raft.model.snapshot import Snapshot
from headwater.hub.raft.multi_raft import MultiRaft
from headwater.hub.raft.raft import Raft
from headwater.hub.stored.group_store import GroupStore, Naming
from headwater.hub.stored.replica import Replica
from tests.sim.checks.model import rows_of
from tests.sim.checks.promises import Promises
from tests.sim.disks import Durable
from tests.sim.machine import KERNEL, StreamMachine, decode_op
from tests.sim.node import SimNode
from tests.sim.world import World

# A few dozen messages fill a segment, so that a run sees checkpointing and compaction.
node_store.SEGMENT_BYTES_MIN = 4096
node_store.CLOSE_SECONDS = 1.0
SEGMENT_BYTES = 16384
KEEP_OF_KEY = 12
MARKS = ("data/jetstream/clean", "data/jetstream/raft/clean")
"""While both are there, the orderly stop was the last thing that happened."""
COMPACT_AT = 40
# Of entries, where those that are needed go to files: few, so that many do.
KEEP_BYTES = 100
HOLD_BYTES = 1 << 20
CHUNK_BYTES = 300
FILE_BYTES = 1000
"""Applied entries behind the snapshot after which a node lets go of them."""
RESTART_US = 50_000
"""After which a node is started again that could not go on."""
ROUNDS_MAX = 400
"""Of the loop, in which an orderly stop or the removal of a group must be durable."""


def end_of(restored: Restored) -> tuple[int, int]:
    """Term and index of the last entry. A replaced tail is shorter, and of a greater term."""
    last = restored.entries[-1] if restored.entries else restored.snapshot
    return last.term, last.index


class Padded:
    """A store whose messages are greater than their payload, so that segments fill up."""

    HEADERS = b"NATS/1.0\r\nPadding: " + b"." * 150 + b"\r\n\r\n"

    def __init__(self, store: FileStore) -> None:
        self.inner = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def add_message(self, subject: bytes, payload: bytes, headers: bytes, timestamp: int) -> int:
        return int(self.inner.add_message(subject, payload, self.HEADERS, timestamp))


class StoredMachine(StreamMachine):
    """The same rules over the stream of a replica."""

    def __init__(self) -> None:
        self.replica: Replica | None = None
        self.digest = 0
        self.applying = False

    @property
    def store(self) -> Any:  # type: ignore[override]
        found = self.replica.store if self.replica else None
        return Padded(found) if found is not None else MemoryStore(KERNEL)

    @property
    def applied(self) -> int:  # type: ignore[override]
        return self.replica.applied if self.replica else 0

    @applied.setter
    def applied(self, index: int) -> None:
        """The replica counts."""

    def apply(self, index: int, data: bytes) -> int:
        """Of each key some messages are kept: what goes away leaves holes, which segments are
        rewritten for."""
        sequence = super().apply(index, data)
        if sequence:
            self.store.purge(decode_op(data).key.encode(), None, KEEP_OF_KEY)
        return sequence

    def last_for(self, key: str) -> int:
        """A client that meets damage asks elsewhere; an entry cannot."""
        try:
            return super().last_for(key)
        except Damaged:
            if self.applying:
                raise
            self.doubt()
            return 0

    def content(self) -> list[tuple[int, str, str, int]] | None:  # type: ignore[override]
        """None when something is damaged: the replica has to be made anew first."""
        try:
            return super().content()
        except Damaged:
            self.doubt()
            return None

    def doubt(self) -> None:
        if self.replica is not None:
            self.replica.doubtful = True


class Rules:
    """A machine as `GroupStore` wants it. Answers are (sequence, digest)."""

    def __init__(self, machine: StoredMachine) -> None:
        self.machine = machine

    def apply(self, store: FileStore, entry: Entry) -> tuple[int, int]:
        self.machine.applying = True
        result = self.machine.apply(entry.index, entry.data)
        self.machine.applying = False
        return result, self.machine.digest

    def state(self) -> bytes:
        return b"%d" % self.machine.digest

    def carried(self) -> bytes:
        return self.state()

    def restore(self, state: bytes) -> None:
        self.machine.digest = int(state or b"0")


class StoreNode(SimNode):
    """See the module."""

    def __init__(self, cluster: World, number: int) -> None:
        super().__init__(cluster, number)
        self.loop = TwinLoop()
        self.chance = cluster.chance.fork(f"store {number}")
        self.kept: dict[int, tuple[int, int]] = {}
        """Group -> the end of the log that was surely on the disk when the node went down."""
        self.is_open = False
        self.starts = 0

    # -- start and stop -----------------------------------------------------------------

    def start(self) -> None:
        self.starts += 1
        self.up = True
        self.paused = False
        self.waiting = []
        self.machines = {}
        self.calls = {}
        self.reads = {}
        self.durable = Durable()
        self.written = []
        self.numbers: list[int] = []
        self.heard = {}
        self.promises = {}
        self.leading = {}
        self.syncing = False
        # What a stop waited for on a clock of its own is over.
        self.clock.true_ns = self.loop.clock.true_ns = self.cluster.now_us * 1000
        orderly = self.orderly
        try:
            self.open_store()
            for group in self.cluster.groups:
                self.add_group(group)
        except (OSError, StoreError):
            self.fail()
            self.orderly = orderly and set(MARKS) <= set(self.disk.names())
            return
        self.starts += 1
        self.cluster.after(self.tick_us, self.tick, self.starts)
        self.pump()

    def follow_time(self) -> None:
        """The store's loop has a clock of its own, which does not go back."""
        now = self.cluster.now_us * 1000
        self.loop.clock.true_ns = max(self.loop.clock.true_ns, now)

    def open_store(self) -> None:
        # A loop for each life: what a crash left of the one before is thrown away at some time,
        # and reported to that loop then.
        self.loop = TwinLoop(self.loop.clock)
        options = StoreOptions(
            self.disk.twin.root / "data",
            SEGMENT_BYTES,
            numbered_elsewhere=lambda meta: True,
            clock=self.loop.clock,
            chance=self.chance,
        )
        errors: list[dict[str, Any]] = []
        self.errors = errors
        self.loop.set_exception_handler(lambda loop, context: errors.append(context))
        self.node = NodeStore(Kernel(self.loop, self.loop.clock), options)
        self.node.open()
        floor = max(self.clock.wall_ns(), self.boot_floor)
        self.store = GroupStore(self.node, int, self.naming, self.machine, floor)
        spills = self.store.spills
        spills.chunk_bytes, spills.file_bytes = CHUNK_BYTES, FILE_BYTES
        self.store.on_synced = self.numbers.append
        self.store.on_news = self.news
        self.cluster.checker.require(
            self.store.boot not in self.boots
            and (self.store.boot > self.boot or self.number == self.cluster.victim),
            "the number of a boot is reused",
        )
        self.boot = self.store.boot
        self.boots.add(self.boot)
        self.is_open = True
        self.disk.flush()
        self.multi_raft = MultiRaft(
            self.number, self.store.boot, self.cluster.chance.below, self.cluster.options
        )

    def news(self, raft: Raft) -> None:
        self.multi_raft.touch(raft)

    def naming(self, group: int) -> Naming:
        return Naming("A", f"G{group}", b"%d" % group, f"G{group}")

    def machine(self, group: int) -> Rules:
        machine = self.machines[group] = StoredMachine()
        return Rules(machine)

    def add_group(self, group: int, incarnation: int = 0) -> None:
        restored = self.store.start.groups.pop(group, None)
        first = self.number in self.cluster.first[group].voters and group not in self.begun
        self.begun.add(group)
        if restored is None and first:
            restored = bootstrap(self.cluster.first[group], self.number)
            done: list[bool] = []
            self.store.create(group, restored, lambda: done.append(True))
            self.loop.run_until(lambda: bool(done))
        if restored is None:
            restored = Restored(Snapshot(0, 0, Config()))
        restored = replace(restored, seeds=tuple(self.cluster.nodes), incarnation_floor=incarnation)
        self.check_start(group, restored)
        raft = self.multi_raft.add(group, restored)
        replica = self.store.attach(raft)
        self.machines[group].replica = replica
        checker = self.cluster.checker
        self.check_stream(group, replica)
        self.promises[group] = Promises(checker, raft, self.durable)
        checker.require(
            self.orderly or not restored.clean or self.starts == 1,
            "an unclean start is called clean",
        )
        checker.require(restored.clean or raft.recovering, "an unclean start is not recovering")

    def check_start(self, group: int, restored: Restored) -> None:
        """An honest disk has what was synced."""
        hard = restored.hard_state
        checker = self.cluster.checker
        end = end_of(restored)
        if self.number != self.cluster.victim:
            checker.restored(group, self.number, hard)
            checker.require(
                end >= self.kept.get(group, (0, 0)),
                f"the disk of node {self.number} had {self.kept.get(group)} of group {group},"
                f" a start finds {end}: {self.store.start.problems}",
            )
            checker.require(not self.store.start.problems, f"{self.store.start.problems}")
        self.durable.found(group, restored)
        checker.found(group, self.number, restored)

    def check_stream(self, group: int, replica: Replica) -> None:
        """A replica that a start goes on with is what its entries say, message by message. A start
        trusts the index of a whole segment: damage behind it is met by who reads, as here."""
        if replica.store is None:
            return
        known = self.cluster.checker.committed.get(group, {})
        entries = [known[i] for i in range(2, replica.applied + 1) if i in known]
        machine = self.machines[group]
        found = machine.content()
        if found is None and self.number == self.cluster.victim:
            return
        self.cluster.checker.require(
            found is not None and [row[:3] for row in found] == rows_of(entries, KEEP_OF_KEY),
            f"node {self.number} goes on with another stream of group {group} than its entries say",
        )

    def crash(self) -> None:
        """Most crashes happen in the middle of what the disk was asked for."""
        was_open = self.is_open
        self.end_life()
        chance = self.cluster.chance
        if was_open and chance.below(4):
            self.disk.cut_after(1 + chance.below((3, 8, 40)[chance.below(3)]))
            with suppress(StoreError, OSError):
                if not chance.below(3):
                    self.node.log.begin_next()
                self.node.log.hand_over()
            for _ in range(8):
                self.loop.run_ready()
        self.lights_out()

    def end_life(self) -> None:
        for machine in self.machines.values():
            machine.replica = None
        super().end_life()
        self.is_open = False
        self.kept = {**self.kept, **self.durable.end}

    def lights_out(self) -> None:
        self.loop.drop()
        self.disk.power_cut(self.cluster.chance)

    def fail(self) -> None:
        """The node cannot go on: its process ends, and is started again soon."""
        if self.up:
            self.end_life()
            self.loop.drop()
            self.disk.twin.kill()
            self.cluster.after(RESTART_US, self.cluster.start_again, self)

    def make_damage_known(self) -> None:
        """The log has to say that messages are lost before the start that leaves the replica."""
        lsn = self.node.log.hand_over()
        with suppress(TimeoutError):
            self.loop.run_until(lambda: self.is_durable(lsn), ROUNDS_MAX)
        raise StoreError("a message that is needed cannot be read")

    def stop(self) -> None:
        """An orderly stop."""
        self.follow_time()
        whole = all(raft.whole for raft in self.multi_raft.groups.values())
        self.end_life()
        try:
            self.store.pump()
            self.loop.run_until(lambda: self.store.idle, ROUNDS_MAX)
            if whole:
                self.store.record_clean_stop()
            self.loop.run_until_complete(self.node.close())
        except (TimeoutError, OSError, StoreError):
            whole = False
        self.orderly = whole
        self.lights_out()

    def flush_lies(self) -> None:
        self.disk.flush()

    # -- events ---------------------------------------------------------------

    def tick(self, starts: int) -> None:
        if starts == self.starts and not self.paused and not self.syncing:
            self.run_loop()
        super().tick(starts)

    def run_loop(self) -> None:
        """One round of what the store wants done; a crash of it is a finding."""
        self.follow_time()
        self.node.log.hand_over()
        self.loop.run_ready()
        for context in self.errors:
            raise context.get("exception") or RuntimeError(str(context))
        self.take_numbers()

    def retire(self) -> None:
        for group, raft in list(self.multi_raft.groups.items()):
            if raft.removed and not self.syncing and not self.written and self.store.idle:
                self.multi_raft.drop(group)
                self.cluster.checker.cast.pop((group, self.number), None)
                self.reads = {k: v for k, v in self.reads.items() if v[0] != group}
                self.kept.pop(group, None)
                self.durable.end.pop(group, None)
                try:
                    self.store.erase(group)
                    lsn = self.node.log.hand_over()
                    self.loop.run_until(lambda at=lsn: self.is_durable(at), ROUNDS_MAX)
                    self.add_group(group, raft.incarnation + 1)
                except (TimeoutError, OSError, StoreError):
                    self.fail()
                    return

    def is_durable(self, lsn: int) -> bool:
        return bool(self.node.log.durable_lsn >= lsn and self.store.hard.synced)

    def pump(self) -> None:
        if not self.up:
            return
        try:
            self._pump_store()
        except (OSError, StoreError):
            self.fail()

    def _pump_store(self) -> None:
        self.store.pump()
        self.take_numbers()
        for raft in self.multi_raft.groups.values():
            self.apply(raft, Ready(0))
        while self.up and self.multi_raft.has_ready() and self.multi_raft.can_write():
            write_set = self.multi_raft.ready()
            self.send(write_set.packets)
            for raft, ready in write_set.groups:
                self.cluster.written(self, raft, ready)
            if write_set.groups:
                self.written.append((write_set.number, write_set))
            self.store.write(write_set)
            for raft, ready in write_set.groups:
                self.store.carry(raft, ready)
                self.apply(raft, ready)
                self.judge(raft)
            self.take_numbers()
        if not self.store.idle and not self.syncing:
            self.syncing = True
            delay = self.sync_us + self.cluster.chance.below(self.sync_us)
            self.cluster.after(delay, self.finish_sync, self.starts, 0)

    def finish_sync(self, starts: int, count: int) -> None:
        if starts != self.starts or (self.paused and self.hold_sync(starts, count)):
            return
        self.syncing = False
        self.run_loop()
        self.pump()

    def take_numbers(self) -> None:
        """Batches that the store told to be durable."""
        while self.numbers and self.up:
            number = self.numbers.pop(0)
            done: dict[int, Raft] = {}
            while self.written and self.written[0][0] <= number:
                for raft, ready in self.written.pop(0)[1].groups:
                    self.record_durable(raft.group, ready)
                    done[raft.group] = raft
            self.send(self.multi_raft.synced(number))
            # At once: the next batch may make true what this one wrongly took for durable.
            for raft in done.values():
                self.judge(raft)

    # -- the state machine ----------------------------------------------------

    def apply(self, raft: Raft, ready: Ready) -> None:
        replica = self.store.replicas[raft.group]
        machine = self.machines[raft.group]
        checker = self.cluster.checker
        digest = machine.digest
        for entry, told in replica.apply(ready.committed):
            result, digest = told or (0, digest)
            checker.require(
                self.durable.last[raft.group] >= entry.index, f"{entry.index} applied too early"
            )
            checker.applied(raft.group, self.number, entry, result, digest)
            waiting = self.calls.pop((raft.group, entry.index), None)
            if waiting is not None and waiting[:2] == (entry.term, entry.data):
                self.answer(waiting[2], result, entry.index, entry.term, entry.data)
        if replica.doubtful:
            self.make_damage_known()
        for state in ready.reads:
            found = self.reads.get(state.context)
            if found is not None and state.index is None:
                del self.reads[state.context]
            elif found is not None:
                checker.may_read(state.context, state.index)
                self.reads[state.context] = (*found[:2], state.index)
        self.serve_reads(raft.group, machine)
        if self.cluster.spills:
            self.store.trim(raft, KEEP_BYTES, HOLD_BYTES)
        elif replica.applied - raft.log.base_index >= COMPACT_AT:
            self.store.compact(raft)
