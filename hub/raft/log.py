"""A group's log on one node, from its snapshot on.

    snapshot | ... applied ... committed ... durable ... last
             ^ base_index

`durable` may lie on either side of `committed`: a follower hears of a commit before its own disk
is done. Only what is both is handed to the state machine. Entries stay in memory until a snapshot
covers them; the driver makes one when `bytes` grows. Those that a member needs and a snapshot
covers can be read through `older`, if the driver keeps them somewhere.
"""

from bisect import bisect_right
from typing import Protocol

from headwater.hub.raft.model.config import Config, decode_config
from headwater.hub.raft.model.entry import Entry, EntryKind, bytes_of, fitting, kind_of
from headwater.hub.raft.model.errors import invariant
from headwater.hub.raft.model.snapshot import Snapshot


class OldEntries(Protocol):
    """Entries that are applied and not in memory: those behind `before`, up to the log's base."""

    before: int
    """Index before the first."""

    def term(self, index: int) -> int | None:
        """The term of an index, of `before`, too; None when it is not here."""

    def slice(self, first: int, last: int, bytes_max: int) -> list[Entry]:
        """As `RaftLog.slice`; fewer when others are stored elsewhere, and none when they cannot be
        had. Then nothing is here any more."""


class RaftLog:
    """Invariant: base <= applied <= min(committed, durable) <= last."""

    def __init__(self, snapshot: Snapshot, entries: list[Entry]) -> None:
        self.snapshot = snapshot  # what the log begins behind
        self.base_index = snapshot.index  # index of the snapshot
        self.base_term = snapshot.term  # its term
        self.entries = entries  # those behind `base_index`, in order
        self.last = self.base_index + len(entries)  # index of the newest entry
        self.last_term = entries[-1].term if entries else self.base_term  # its term
        self.committed = self.base_index  # index up to which entries stay
        self.applied = self.base_index  # index up to which they were handed out
        self.durable = self.last
        """Up to here entries are on this node's disk."""
        self.handed = self.last
        """Up to here entries were given to the driver to write."""
        self.bytes = bytes_of(entries)  # of the entries, for `Options`
        self.older: OldEntries | None = None
        """What the driver has of entries up to `base_index`; members are served from it."""
        self.configs: list[tuple[int, Config]] = [
            (self.base_index, snapshot.config)
        ]  # (index, configuration) of those in the log
        for position, entry in enumerate(entries):
            invariant(entry.index == self.base_index + 1 + position, "a hole in the log")
            if entry.kind == EntryKind.CONFIG:
                self.configs.append((entry.index, decode_config(entry.data)))

    @property
    def config(self) -> Config:
        """The newest configuration, committed or not."""
        return self.configs[-1][1]

    @property
    def config_index(self) -> int:
        """Where the newest configuration is."""
        return self.configs[-1][0]

    def config_at(self, index: int) -> Config:
        """The configuration in force at `index`."""
        if len(self.configs) == 1:
            return self.configs[0][1]
        at = bisect_right(self.configs, index, key=lambda pair: pair[0])
        return self.configs[max(at - 1, 0)][1]

    def term(self, index: int) -> int | None:
        """The term of an index; None when it is not here (any more)."""
        if self.base_index < index <= self.last:
            return self.entries[index - self.base_index - 1].term
        if index == self.base_index:
            return self.base_term
        return self.older.term(index) if self.older is not None else None

    def matches(self, index: int, term: int) -> bool:
        """Whether the entry at `index` is of `term`."""
        return self.term(index) == term

    def newer_than(self, last_term: int, last_index: int) -> bool:
        """Whether this log is more up to date than one that ends so (§5.4.1)."""
        return (self.last_term, self.last) > (last_term, last_index)

    def agree_before(self, index: int, term: int) -> int:
        """The greatest index <= `index` whose term is <= `term`: the logs may agree there."""
        index = min(index, self.last)
        oldest = self.base_index if self.older is None else min(self.older.before, self.base_index)
        while index > oldest:
            here = self.term(index)
            if here is not None and here <= term:
                break
            index -= 1
        return index

    def append(self, entries: list[Entry]) -> None:
        """Add at the end."""
        if not entries:
            return
        invariant(entries[0].index == self.last + 1, "entries follow the last one")
        self.entries += entries
        self.last = entries[-1].index
        self.last_term = entries[-1].term
        self.bytes += bytes_of(entries)
        if EntryKind.CONFIG in map(kind_of, entries):
            for entry in entries:
                if entry.kind == EntryKind.CONFIG:
                    self.configs.append((entry.index, decode_config(entry.data)))

    def merge(self, entries: list[Entry]) -> int:
        """Entries of the leader, the index before them known to agree. What differs is replaced;
        what is here already stays, with everything behind it. Returns the last index of them."""
        if not entries:
            return self.last
        if entries[0].index == self.last + 1:
            self.append(entries)
            return self.last
        for position, entry in enumerate(entries):
            if entry.index <= self.base_index:
                continue
            if not self.matches(entry.index, entry.term):
                if entry.index <= self.last:
                    self.cut(entry.index)
                self.append(entries[position:])
                break
        return entries[-1].index

    def cut(self, index: int) -> None:
        """Drop `index` and everything behind it: another leader's entries take its place."""
        invariant(index > self.committed, f"{index} is committed and never replaced")
        kept = index - self.base_index - 1
        self.bytes -= bytes_of(self.entries[kept:])
        del self.entries[kept:]
        self.last = index - 1
        self.last_term = self.entries[-1].term if self.entries else self.base_term
        self.durable = min(self.durable, self.last)
        self.handed = min(self.handed, self.last)
        while len(self.configs) > 1 and self.configs[-1][0] >= index:
            self.configs.pop()

    def slice(self, first: int, last: int, bytes_max: int) -> list[Entry]:
        """Entries from `first` to `last`, at least one, not more than `bytes_max` otherwise. Those
        that are not in memory may be fewer, and none when they cannot be had."""
        if first <= self.base_index:
            if self.older is None:
                return []
            return self.older.slice(first, min(last, self.base_index), bytes_max)
        found = self.entries[first - self.base_index - 1 : last - self.base_index]
        return fitting(found, bytes_max) if self.bytes > bytes_max else found

    def to_write(self) -> list[Entry]:
        """What the driver has not been given yet. A first index at or below an earlier one means
        that the disk's entries from there on are replaced."""
        return self.entries[self.handed - self.base_index :]

    def commit_to(self, index: int) -> bool:
        """Learn of a commit. Returns whether it is news."""
        if index <= self.committed:
            return False
        invariant(index <= self.last, f"commit {index} is behind the end {self.last}")
        self.committed = index
        return True

    def synced_to(self, index: int, term: int) -> None:
        """The driver made everything up to this entry durable."""
        if index > self.durable and self.matches(index, term):
            self.durable = index

    def to_apply(self, bytes_max: int) -> list[Entry]:
        """What may be applied next."""
        last = min(self.committed, self.durable)
        if last <= self.applied:
            return []
        return self.slice(self.applied + 1, last, bytes_max)

    def compact(self, snapshot: Snapshot) -> None:
        """A snapshot of the applied state takes the place of entries up to its index."""
        invariant(snapshot.index <= self.applied, "a snapshot of what is not applied")
        if snapshot.index <= self.base_index:
            return
        invariant(self.term(snapshot.index) == snapshot.term, "a snapshot of another log")
        self.snapshot = snapshot
        kept = self.entries[snapshot.index - self.base_index :]
        self.entries = kept
        self.base_index = snapshot.index
        self.base_term = snapshot.term
        self.bytes = bytes_of(kept)
        behind = [pair for pair in self.configs if pair[0] > snapshot.index]
        self.configs = [(snapshot.index, snapshot.config), *behind]

    def install(self, snapshot: Snapshot) -> None:
        """A leader's snapshot takes the place of the whole log."""
        self.__init__(snapshot, [])  # type: ignore[misc]
