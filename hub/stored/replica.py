"""A group's state on one node: a stream of the node's store, and the mark that goes with it."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from headwater.edge.storage.format.errors import Damaged, StoreError
from headwater.edge.storage.log.commit_log import CommitLog
from headwater.edge.storage.segments.file_store import FileStore
from headwater.hub.raft.model.config import Config, decode_config
from headwater.hub.raft.model.entry import Entry, EntryKind
from headwater.hub.raft.model.errors import invariant
from headwater.hub.raft.model.snapshot import Snapshot
from headwater.hub.stored.mark import KEY, Mark


class Machine(Protocol):
    """What a group's entries mean. The same entries must do the same on every node."""

    def apply(self, store: FileStore, entry: Entry) -> Any:
        """Do what a normal entry says. A StoreError may be raised before anything was changed,
        not later; the entry is applied again when storage is well."""

    def state(self) -> bytes:
        """What must be remembered besides the stream; small."""

    def carried(self) -> bytes:
        """What goes to another node with the stream. `restore` takes it there, as it takes what
        `state` gave."""

    def restore(self, state: bytes) -> None:
        """Go on from what `state` gave; b"" is the beginning."""


class Replica:
    """`store` is None until there is a state: in a group's new or doubtful replica that is when
    a leader's snapshot came."""

    def __init__(
        self, log: CommitLog, machine: Machine, store: FileStore | None, mark: Mark | None
    ) -> None:
        self.log = log
        self.machine = machine
        self.store = store
        self.mark = mark or Mark(0, 0, Config())
        """As of the last entry that was applied."""
        self.marked = self.mark.index
        """Index of the mark that was written last."""
        self.positions: dict[int, tuple[int, int, int, int]] = {}
        """By index, of entries that are not applied: their term, and where the log has them:
        segment, offset of the record, offset of the entry."""
        self.waiting: deque[Entry] = deque()
        """Entries that are to be applied, because storage did not take them at once."""
        self.doubtful = False
        """A message that is needed to go on cannot be read: only a start helps, which asks the
        group for the state."""
        self.on_unmarked: Callable[[Replica], None] = lambda replica: None
        """The newest mark could not be written: `write_mark` is to be tried again."""
        machine.restore(self.mark.state)

    @property
    def applied(self) -> int:
        """Index of the last entry that was applied."""
        return self.mark.index

    def apply(self, entries: list[Entry]) -> list[tuple[Entry, Any]]:
        """Apply entries behind those that wait, as far as storage takes them; call it again
        without any when it did not. Returns what was applied, with the machine's answers."""
        self.waiting.extend(entries)
        done: list[tuple[Entry, Any]] = []
        try:
            while self.waiting:
                entry = self.waiting[0]
                if entry.index > self.mark.index:
                    done.append((entry, self._apply(entry)))
                self.waiting.popleft()
            self.write_mark()
        except Damaged:
            self.doubtful = True
        except StoreError:
            self.log.kernel.kick()
        if self.marked != self.mark.index:
            self.on_unmarked(self)
        return done

    def _apply(self, entry: Entry) -> Any:
        invariant(entry.index == self.mark.index + 1, f"{entry.index} is applied out of order")
        config, result = self.mark.config, None
        position = self.positions.pop(entry.index, None)
        if entry.kind == EntryKind.NORMAL:
            if position is not None and position[0] == entry.term:
                self.log.begin_entry(*position[1:])
            try:
                result = self.machine.apply(self._stored(), entry)
            finally:
                self.log.begin_entry(0, 0, 0)
        elif entry.kind == EntryKind.CONFIG:
            config = decode_config(entry.data)
        self.mark = Mark(entry.index, entry.term, config)
        return result

    def _stored(self) -> FileStore:
        if self.store is None:
            raise StoreError("the replica has no state yet")
        return self.store

    def keep_positions(self, entries: Sequence[Entry], segment: int, record: int, at: int) -> None:
        """The log has entries end to end from the offset `at` on, in a record of a segment."""
        for entry in entries:
            self.positions[entry.index] = (entry.term, segment, record, at)
            at += len(entry.data)

    def write_mark(self) -> None:
        """Put the mark into the log, behind what was applied. Raises StoreError."""
        if self.marked == self.mark.index:
            return
        store = self._stored()
        self.mark = self.full_mark(store)
        # Without its newest mark the replica asks the group, so a page is not worth it here.
        delay_ns = store.sync_delay_ns
        self.log.put_state(store.incarnation.encode(), KEY, self.mark.encode(), delay_ns, True)
        self.marked = self.mark.index

    def full_mark(self, store: FileStore) -> Mark:
        """The mark as it is now."""
        mark = self.mark
        return Mark(
            mark.index, mark.term, mark.config, store.last_seq, store.messages, self.machine.state()
        )

    # -- snapshots ------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """Of which index the state is."""
        return Snapshot(self.mark.index, self.mark.term, self.mark.config)

    def install(self, store: FileStore, machine: bytes, snapshot: Snapshot) -> None:
        """Go on with a state that has arrived: a store, and what the machine remembers. Raises
        StoreError."""
        self.store = store
        self.doubtful = False
        self.waiting.clear()
        self.positions.clear()
        self.machine.restore(machine)
        self.mark = Mark(snapshot.index, snapshot.term, snapshot.config)
        self.marked = 0
        self.write_mark()

    def go_back(self, store: FileStore | None, mark: Mark, marked: int, state: bytes) -> None:
        """An `install` failed: go on with what was there."""
        self.store, self.mark, self.marked = store, mark, marked
        self.machine.restore(state)
