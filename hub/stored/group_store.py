"""All Raft groups of a node in its store: entries and marks in the commit log, hard state in two
copies.

One batch of the log makes the entries of all groups durable, with the messages of streams that
nobody replicates. A batch of `MultiRaft.ready` is `write`n; `on_synced` is called with its number
when the log and the hard states are durable, in the order of numbers. What storage refuses waits in
memory and is tried again by `pump`; the driver stops asking for batches meanwhile
(`MultiRaft.can_write`).

    jetstream/raft/raft.hard   hard state, see `hub.stored.hard_state_file`; group 0: the boot
    jetstream/raft/clean       the last stop was orderly: boot, digest of the hard states
    jetstream/raft/run         in which run of the machine it began, see `hub.stored.run_record`
"""

import logging
import struct
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headwater.edge.storage.format.crc import checksum
from headwater.edge.storage.format.errors import StoreError
from headwater.edge.storage.format.record_layout import HEADER_BYTES
from headwater.edge.storage.node.node_store import NodeStore
from headwater.edge.storage.segments.file_store import FileStore
from headwater.hub.raft.model.entry import ENTRY_OVERHEAD_BYTES, Entry
from headwater.hub.raft.model.errors import invariant
from headwater.hub.raft.model.hard_state import HardState
from headwater.hub.raft.model.ready import Ready, Restored
from headwater.hub.raft.model.snapshot import Snapshot
from headwater.hub.raft.multi_raft import WriteSet
from headwater.hub.raft.progress import State
from headwater.hub.raft.raft import Raft
from headwater.hub.stored.causes import Causes
from headwater.hub.stored.directory_disk import DirectoryDisk
from headwater.hub.stored.group_log import OWNER, encode_run, run_pieces
from headwater.hub.stored.hard_states import RETRY_SECONDS, HardStates
from headwater.hub.stored.mark import Mark
from headwater.hub.stored.replica import Machine, Replica
from headwater.hub.stored.run_record import RunRecord
from headwater.hub.stored.spill import Spill, Spills
from headwater.hub.stored.start import BOOT_GROUP, CLEAN, FoundGroup, StartReport, read_groups
from headwater.hub.stored.transfers import Transfers

CLEAN_STOP = struct.Struct("<Q8sI")
OTHER_NODE = (
    "%s was written by another node of a cluster, not by one with this node's server_name: start "
    "each node on its own folder; an empty one lets it join as a new node"
)
HOLD_BYTES = 16 << 20
"""Of entries that wait for a snapshot on its way to a member."""
NODE_BYTES = 128 << 20
"""Of entries in memory, of all groups of a node: beyond it each group has its share."""
SPILL_BYTES = 1 << 30
"""Of entries in files, of all groups of a node, for members that are behind."""

log = logging.getLogger("headwater.raft")


@dataclass(frozen=True)
class Naming:
    """Account, name and meta of the stream that holds a group's state."""

    account: str
    name: str
    meta: bytes
    label: str
    """What the group is of, for people."""


@dataclass(slots=True)
class PendingWrite:
    """A batch on its way to the disk."""

    number: int
    groups: deque[tuple[Raft, Ready]]
    writes: bool
    lsn: int = 0
    hard_writes: int = 0
    """How often hard states had been written then."""


class GroupStore:
    """Made when the node's store is open; not thread-safe. Whoever uses it calls `pump` after each
    tick, and `on_synced` gets numbers for `MultiRaft.synced`."""

    def __init__(
        self,
        node: NodeStore,
        group_of: Callable[[bytes], int],
        naming: Callable[[int], Naming],
        machine: Callable[[int], Machine],
        boot_floor: int = 0,
        number: int = 0,
        run: bytes = b"",
    ) -> None:
        """Read what is there. `group_of`: of a stream's meta, 0 for a stream of no group.
        `boot_floor`: the number of this start is above it, as the wall clock is above all earlier
        starts. `number`: this node's, 0 for any. `run` names the machine's run, empty for an
        unknown one. Raises StoreError when another node wrote the store."""
        self.node = node
        self.log = node.log
        node.expect_entries()
        self.naming = naming
        self.machine = machine
        self.on_synced: Callable[[int], None] = lambda number: None
        self.files = DirectoryDisk(node.directory.root / "raft")
        self.hard = HardStates(self.files, node)
        before = self.hard.file.found.get(BOOT_GROUP, HardState())
        if number and before.vote not in (0, number):
            raise StoreError(OTHER_NODE % node.directory.root)
        self._run = RunRecord(self.files, run)
        stopped = self._consume_clean() and node.clean_start
        clean = (stopped or self._run.continues(before.term)) and not self.hard.file.suspect
        self.boot = 1 + max(boot_floor, before.term)
        self.before = 0 if self.hard.file.suspect else before.term
        """The start before this one, as the folder has it; 0 when it does not say."""
        self.start = StartReport(self.boot, clean)
        self.replicas: dict[int, Replica] = {}
        self._doubtful: dict[int, FileStore] = {}
        self._behind: set[int] = set()
        """Groups whose log ends before their mark: a crash came when a snapshot was installed, and
        before the log said so."""
        self._rafts: dict[int, Raft] = {}
        self._unmarked: dict[int, Replica] = {}
        """Replicas whose newest mark storage did not take."""
        self.delays = Causes()
        """Groups that cannot begin here, or whose state from another node cannot be put in place,
        and why; each is tried again."""
        self._queue: deque[PendingWrite] = deque()
        self._unsynced: deque[PendingWrite] = deque()
        self.on_news: Callable[[Raft], None] = lambda raft: None
        """A group has something to say: look at it in this round."""
        self.transfers = Transfers(node, self.replicas, self.make_stream, self._news_of)
        self._installing: tuple[int, FileStore, FileStore | None] | None = None
        """The group whose state is being put into force, its stream, and the one of before."""
        self._installed: set[int] = set()
        self.hard.on_durable = self._report_synced
        self._waits = False
        self._commits: dict[int, int] = {}
        self._sizes: dict[int, int] = {}
        """Bytes of each group's entries in memory when it was looked at last."""
        self._size = 0
        """Of all of them."""
        self.spills = Spills(
            self.files.directory / "old", node.background, node.log.table, node.kernel.loop.time
        )
        self._spilled: dict[int, Spill] = {}
        self._gave_up: dict[int, int] = {}
        """The term in which a group's entries were too many for files."""
        self._read(group_of, stopped)
        self._write_boot(number)

    def _news_of(self, raft: Raft) -> None:
        """A state on its way has news for its group; who hears of it is named later."""
        self.on_news(raft)

    # -- the start ------------------------------------------------------------

    def _read(self, group_of: Callable[[bytes], int], stopped: bool) -> None:
        """Read all groups; `stopped`: the stop before was orderly."""
        found = read_groups(self.node, group_of, self.hard.file.found, self.start)
        for group, each in found.items():
            self._enter(group, each)
        if not (stopped and self.start.clean):
            self.hard.write_again()

    def _write_boot(self, number: int) -> None:
        self.hard.write(BOOT_GROUP, HardState(term=self.boot, vote=number))
        self.hard.sync_now()
        self._run.begin(self.boot)
        self.files.sync_names()

    def _consume_clean(self) -> bool:
        """Whether the record of a clean stop is there and fits; it is taken away before anything
        else happens."""
        if CLEAN not in self.files.names():
            return False
        data = self.files.read(CLEAN)
        self.files.remove(CLEAN)
        self.files.sync_names()
        if len(data) != CLEAN_STOP.size:
            return False
        boot, digest, crc = CLEAN_STOP.unpack(data)
        hard = self.hard.file.found.get(BOOT_GROUP)
        here = (hard.term if hard else 0, self.hard.file.digest())
        return crc == int(checksum(data[:-4])) and (boot, digest) == here

    def _enter(self, group: int, found: FoundGroup) -> None:
        self.start.groups[group] = found.restored
        if found.doubtful is not None:
            self._doubtful[group] = found.doubtful
        if found.behind:
            self._behind.add(group)
        self._add_replica(group, found.store, found.mark)

    def _add_replica(self, group: int, store: FileStore | None, mark: Mark | None) -> Replica:
        made = self.replicas[group] = Replica(self.log, self.machine(group), store, mark)
        made.on_unmarked = lambda replica: self._unmarked.update({group: replica})
        return made

    def create(
        self,
        group: int,
        restored: Restored,
        done: Callable[[], None],
        existing: FileStore | None = None,
        unfinished: bool = False,
    ) -> None:
        """Make a group that begins with `bootstrap`, and with nothing or with what is in the stream
        `existing`, which may be `unfinished` (`make_stream`); `done` is called when it is durable.
        Raises StoreError, OSError."""
        store = existing or self.make_stream(group)
        try:
            replica = self._begin(group, store, restored.snapshot)
        except StoreError:
            self.replicas.pop(group, None)
            if existing is None:
                self.transfers.discard(group, store)
            raise

        def step(work: Callable[[], None]) -> None:
            if self.replicas.get(group) is not replica:
                return  # it was erased before it was durable
            try:
                work()
            except (OSError, StoreError) as error:
                self._cannot_begin(group, error)
                self.node.kernel.loop.call_later(RETRY_SECONDS, step, work)

        def finish() -> None:
            if existing is None or unfinished:
                self.node.finish_in_log(store)
            self.log.when_durable(self.log.hand_over(), lambda: step(vote))

        def vote() -> None:
            if restored.hard_state is not None:
                self.hard.write(group, restored.hard_state)
            self.hard.when_durable(begin)

        def begin(error: BaseException | None) -> None:
            if error is not None:
                self._cannot_begin(group, error)
            elif self.replicas.get(group) is replica:
                self.delays.over(group)
                done()

        self.log.when_durable(self.log.hand_over(), lambda: step(finish))

    def _cannot_begin(self, group: int, error: BaseException) -> None:
        if self.delays.is_news(group, f"it cannot begin here: {error}"):
            log.warning(
                "%s cannot begin here (%s): this node tries again; look at its disk",
                self.naming(group).label,
                error,
            )

    def _begin(self, group: int, store: FileStore, snapshot: Snapshot) -> Replica:
        """Write that a group begins with what is in a stream. Raises StoreError."""
        replica = self._add_replica(
            group, store, Mark(snapshot.index, snapshot.term, snapshot.config)
        )
        replica.marked = 0
        replica.write_mark()
        self.log.put_state(OWNER, b"%d" % group, encode_run(snapshot.index, snapshot.term, 0, []))
        return replica

    def attach(self, raft: Raft) -> Replica:
        """A group runs: `raft` tells from now on what the log must hold of it. Its replica is
        returned; a group of which nothing is here gets an empty one."""
        group = raft.group
        self.let_go(group)
        self._rafts[group] = raft
        self._commits[group] = raft.hard_state().commit
        self.log.table.encode_with(OWNER, b"%d" % group, lambda: self._whole(raft))
        if group not in self.replicas:
            self._add_replica(group, None, None)
        return self.replicas[group]

    def _whole(self, raft: Raft) -> bytes:
        """A group's log, for the commit log to write again. While a snapshot is installed the old
        log must stay: it was acknowledged, and the new state does not count yet."""
        if self._is_installing(raft):
            raise StoreError(f"group {raft.group} installs a snapshot")
        rows = raft.log
        return encode_run(rows.base_index, rows.base_term, rows.committed, rows.entries)

    def _is_installing(self, raft: Raft) -> bool:
        return raft.log.base_index > self.replicas[raft.group].marked or any(
            ready.snapshot is not None and each is raft
            for pending in self._queue
            for each, ready in pending.groups
        )

    # -- writing --------------------------------------------------------------

    def write(self, write_set: WriteSet) -> None:
        """Take a batch of `MultiRaft.ready`; `on_synced` follows when it is durable. `carry` comes
        next for each group in it."""
        self._queue.append(
            PendingWrite(write_set.number, deque(write_set.groups), write_set.writes)
        )
        self.pump()

    def carry(self, raft: Raft, ready: Ready) -> None:
        """Keep the parts of a leader's state that are in a batch, and make those that members can
        take."""
        for m in ready.parts:
            self.transfers.keep(raft, m)
        for wanted in ready.wanted:
            self.transfers.send(raft, wanted)

    def pump(self) -> None:
        """Hand on what waits, as far as storage takes it."""
        try:
            while self._queue and self._write_pending(self._queue[0]):
                pending = self._queue.popleft()
                if pending.writes:
                    pending.lsn = self.log.hand_over()
                    pending.hard_writes = self.hard.written
                    self.log.when_durable(pending.lsn, self._report_synced)
                self._unsynced.append(pending)
            self._waits = False
        except (StoreError, OSError) as error:
            if not self._waits:
                log.warning(
                    "entries of Raft groups wait for storage (%s): this node acknowledges none, "
                    "and tries again",
                    error,
                )
            self._waits = True
        self.hard.sync()
        if self._unmarked:
            self._mark_again()
        self._report_synced()

    def _mark_again(self) -> None:
        """Write the marks that storage did not take."""
        waiting, self._unmarked = self._unmarked, {}
        for group, replica in waiting.items():
            if self.replicas.get(group) is not replica or replica.doubtful:
                continue
            try:
                replica.write_mark()
            except StoreError as error:
                self._unmarked[group] = replica
                log.debug("a mark waits for storage: %s", error)

    def _write_pending(self, pending: PendingWrite) -> bool:
        """Write one batch, group by group; False when a snapshot has to be durable first."""
        while pending.groups:
            raft, ready = pending.groups[0]
            if self._rafts.get(raft.group) is raft:
                if ready.snapshot is not None and not self._install(raft.group, ready.snapshot):
                    return False
                self._write_ready(raft, ready)
            pending.groups.popleft()
        return True

    def _write_ready(self, raft: Raft, ready: Ready) -> None:
        group = raft.group
        key = b"%d" % group
        hard = ready.hard_state
        if hard is not None:
            self._commits[group] = hard.commit
        if ready.snapshot is not None:
            snapshot = ready.snapshot
            self.log.put_state(
                OWNER, key, encode_run(snapshot.index, snapshot.term, snapshot.index, [])
            )
            self._installed.discard(group)
            self._behind.discard(group)
        if ready.entries:
            arrival = self.transfers.arrivals.get(group)
            if arrival is not None and not arrival.complete:
                self.transfers.drop(group)
            index = ready.entries[0].index - 1
            if group in self._behind:
                self.log.put_state(OWNER, key, encode_run(index, ready.before_term, index, []))
                self._behind.discard(group)
            run = run_pieces(index, ready.before_term, self._commits[group], ready.entries)
            self.log.add_delta(OWNER, key, run[0], 0, run[1])
            self._keep_positions(raft, ready.entries, len(key) + len(run[0]))
        if hard is not None:
            self.hard.write(group, hard)

    def _keep_positions(self, raft: Raft, entries: Sequence[Entry], before: int) -> None:
        """The log's newest record has entries, behind its owner and `before` bytes more: what they
        say is not written again. It is where the record is not sealed, and where a damaged one
        takes no message that no other node has."""
        if len(raft.log.config.voters) < 2 or OWNER in self.log.table.packers:
            return
        record = self.log.newest_at
        at = record + HEADER_BYTES + len(OWNER) + before
        segment = self.log.active.number
        self.replicas[raft.group].keep_positions(entries, segment, record, at)

    # -- a leader's snapshot --------------------------------------------------

    def make_stream(self, group: int) -> FileStore:
        """An empty stream that does not count yet."""
        naming = self.naming(group)
        self.node.making = True
        try:
            store = self.node.create_stream(naming.account, naming.name, naming.meta)
        finally:
            self.node.making = False
        if not isinstance(store, FileStore):
            raise StoreError("a group's stream is kept in files")
        return store

    def _install(self, group: int, snapshot: Snapshot) -> bool:
        """Whether the state of a snapshot is durable and counts. The old one goes away in the
        same step; until then a crash finds the old one, and the log that goes with it."""
        if group in self._installed:
            return True
        if self._installing is not None:
            return False
        replica = self.replicas[group]
        old = replica.store or self._doubtful.get(group)
        arrival = self.transfers.arrivals.get(group)
        store = arrival.store if arrival is not None else None
        invariant(store is not None, f"group {group} installs a state that has not arrived")
        assert arrival is not None and store is not None
        before = (replica.store, replica.mark, replica.marked, replica.machine.carried())
        try:
            replica.install(store, arrival.machine, snapshot)
        except StoreError:
            replica.go_back(*before)
            raise
        del self.transfers.arrivals[group]
        self._installing = (group, store, old)
        lsn = self.log.hand_over()
        self.log.when_durable(lsn, lambda: self._finish_install(group, store, old))
        return False

    def _finish_install(self, group: int, store: FileStore, old: FileStore | None) -> None:
        if self._installing != (group, store, old):
            return
        try:
            self.node.finish_stream(store, old)
        except (OSError, StoreError) as error:
            if self.delays.is_news(group, f"what came from another node is not in place: {error}"):
                log.warning(
                    "%s: the state from another node cannot be put in place (%s): the other "
                    "replicas go on, and this node tries again; look at its disk",
                    self.transfers.name_of(group),
                    error,
                )
            self.node.kernel.loop.call_later(RETRY_SECONDS, self._finish_install, group, store, old)
            return
        self.delays.over(group)
        self._installing = None
        self._installed.add(group)
        self._doubtful.pop(group, None)
        self.pump()

    # -- durable --------------------------------------------------------------

    def _report_synced(self) -> None:
        """Tell which batches are durable."""
        number = 0
        while self._unsynced:
            pending = self._unsynced[0]
            if pending.lsn > self.log.durable_lsn or pending.hard_writes > self.hard.durable:
                break
            number = self._unsynced.popleft().number
        if number:
            self.on_synced(number)

    # -- room, and the end ----------------------------------------------------

    def compact(self, raft: Raft) -> None:
        """Let go of entries that are applied and marked. While a state is sent, those behind it
        stay, as long as they are not too many."""
        replica = self.replicas[raft.group]
        if replica.marked != replica.mark.index or self._is_installing(raft):
            return
        if self.transfers.held(raft) is not None and raft.log.bytes < HOLD_BYTES:
            return
        self.let_go(raft.group)
        raft.compact(replica.snapshot())

    def trim(self, raft: Raft, keep: int, most: int) -> None:
        """Let go of the oldest entries that are applied and marked here, until about `keep` bytes
        are left. What a member has not got goes to files; where that cannot be it stays, up to
        `most` bytes. A node that has too many entries in memory, in all groups, lets go of more."""
        rows = raft.log
        # What is sent no more holds the state's end in memory.
        self.transfers.held(raft)
        if self._measure(raft) > NODE_BYTES:
            share = NODE_BYTES // len(self._sizes)
            keep, most = min(keep, share // 4), min(most, share)
        spill = self._look_at_spill(raft)
        if rows.bytes <= 2 * keep or self._is_installing(raft):
            return
        index = self._oldest_to_keep(raft, keep)
        if index == rows.base_index:
            return  # nothing of it is applied yet
        needed = self._needed(raft, rows.base_index if spill is None else spill.before)
        if needed < index and rows.bytes < most:
            if self._spill(raft, index, most):
                return
            index = max(min(index, self._needed(raft, rows.base_index)), rows.base_index)
        if index > rows.base_index:
            self.let_go(raft.group)
            self._compact_to(raft, index)

    def _oldest_to_keep(self, raft: Raft, keep: int) -> int:
        """The index up to which entries can go, so that about `keep` bytes stay."""
        rows = raft.log
        last = min(rows.applied, self.replicas[raft.group].marked)
        left, index = rows.bytes, rows.base_index
        for entry in rows.entries:
            if index >= last or left <= keep:
                break
            left -= len(entry.data) + ENTRY_OVERHEAD_BYTES
            index = entry.index
        return index

    def _compact_to(self, raft: Raft, index: int) -> None:
        rows = raft.log
        raft.compact(Snapshot(index, rows.term(index) or 0, rows.config_at(index)))
        self._measure(raft)

    # -- entries that members need and memory lets go of --------------------------

    def _needed(self, raft: Raft, before: int) -> int:
        """The index behind which entries are still to be sent to a member that is served with
        entries, when those behind `before` can be had. Of a member that has not been heard since
        this node leads nobody knows what it needs: all, until that was too much once."""
        patient = self._gave_up.get(raft.group) != raft.term
        held = self.transfers.held(raft)
        found = [] if held is None else [held]
        for one in raft.progress.values():
            if one.state is not State.SNAPSHOT and (one.match >= before or not one.match):
                found += [max(one.match, before)] if one.match or patient else []
        return min(found, default=raft.log.last)

    def _look_at_spill(self, raft: Raft) -> Spill | None:
        """A group's entries in files, without what nobody needs any more."""
        spill = self._spilled.get(raft.group)
        if spill is None:
            return None
        needed = self._needed(raft, spill.before)
        if raft.log.older is not spill or spill.closed or self.log.failure is not None:
            self.let_go(raft.group)
            return None
        if needed >= raft.log.base_index and not spill.busy:
            self.let_go(raft.group)
            return None
        spill.forget(needed)
        return spill

    def _spill(self, raft: Raft, index: int, most: int) -> bool:
        """Write a group's entries up to an index to files, and let go of them then. False when
        they have to stay in memory."""
        group, rows = raft.group, raft.log
        spill = self._spilled.get(group)
        if spill is not None and spill.busy:
            return True
        store = self.replicas[group].store
        half = store.bytes // 2 if store is not None else 0
        share = SPILL_BYTES // max(len(self._spilled), 1)
        if spill is not None and spill.size >= max(most, min(half, share)):
            self._gave_up[group] = raft.term
            self.let_go(group)
            return False
        if self.log.failure is not None or not self.spills.room():
            return False
        if spill is None:
            spill = Spill(self.spills, group, rows.base_index, rows.base_term)
            self._spilled[group] = rows.older = spill
        base = rows.base_index

        def done() -> None:
            fits = rows.older is spill and rows.base_index == base and not spill.closed
            if self._rafts.get(group) is raft and raft.log is rows and fits:
                self._compact_to(raft, spill.last)

        spill.add(rows.entries[: index - base], done)
        return True

    def let_go(self, group: int) -> None:
        """Keep no entries of a group in files: nobody needs them, or whoever does gets the
        state."""
        spill = self._spilled.pop(group, None)
        if spill is None:
            return
        spill.close()
        raft = self._rafts.get(group)
        if raft is not None and raft.log.older is spill:
            raft.log.older = None

    def _measure(self, raft: Raft) -> int:
        """Count how much a group holds in memory; returns what all groups do."""
        now = raft.log.bytes
        self._size += now - self._sizes.get(raft.group, 0)
        self._sizes[raft.group] = now
        return self._size

    def erase(self, group: int) -> None:
        """Forget a group for good: it was removed by an order that is committed. Raises
        StoreError, OSError; it is to be called again then."""
        self.let_go(group)
        self._rafts.pop(group, None)
        self._size -= self._sizes.pop(group, 0)
        self._commits.pop(group, None)
        self._gave_up.pop(group, None)
        self.transfers.forget(group)
        self._unmarked.pop(group, None)
        self._behind.discard(group)
        self._installed.discard(group)
        self.log.delete_state(OWNER, b"%d" % group)
        replica = self.replicas.get(group)
        stores = [replica.store if replica else None, self._doubtful.get(group)]
        if self._installing is not None and self._installing[0] == group:
            stores.append(self._installing[2])
        for store in stores:
            if store is not None and not store.closed:
                self.node.delete_stream(store)
        # Not before storage took it: what it refuses is asked again.
        if self._installing is not None and self._installing[0] == group:
            self._installing = None
        self.start.groups.pop(group, None)
        self.replicas.pop(group, None)
        self._doubtful.pop(group, None)
        self.delays.over(group)
        self.hard.erase(group)

    def record_clean_stop(self) -> None:
        """The node's store is closed next, and what was said is in it. Raises OSError."""
        self.hard.sync_now()
        record = struct.pack("<Q8s", self.boot, self.hard.file.digest())
        self.files.write(CLEAN, 0, record + struct.pack("<I", int(checksum(record))))
        self.files.sync(CLEAN)
        self.files.sync_names()

    @property
    def idle(self) -> bool:
        """Whether nothing waits for the disk."""
        return not self._queue and not self._unsynced

    def close(self) -> None:
        """Close the small files; the node's store is closed by who opened it."""
        for group in list(self._spilled):
            self.let_go(group)
        self.hard.close()
        self.files.close()
