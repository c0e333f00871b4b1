"""The state machine of the meta group, kept as a stream of the node's store.

Each thing that is known is one message: `s.<incarnation>` a stream, `g.<incarnation>` that a stream
is gone, `m.<peer>` a node. A change appends the new one and takes the old one out, so the stream is
as large as what it says, and is its own snapshot.
"""

import logging
from collections.abc import Callable
from typing import Any
from zlib import crc32

import msgspec

from headwater.edge.jetstream.model.models import StreamConfig
from headwater.edge.jetstream.stream.subject_index import SubjectIndex
from headwater.edge.storage.segments.file_store import FileStore
from headwater.edge.subjects.subject_tree import EVERY_STEP, Steps
from headwater.hub.cluster.peers import peer_of
from headwater.hub.meta.assignment import (
    FIRST_STREAM_GROUP,
    NEW_GROUP,
    Assignment,
    ChangeDone,
    EntriesRaised,
    Founded,
    Gone,
    Left,
    Member,
    Operation,
    decode,
    encode,
)
from headwater.hub.raft.model.entry import Entry

log = logging.getLogger("headwater.meta")

GONE_MAX = 65_536
"""Deleted streams that are remembered, for nodes that were away; the oldest is forgotten first."""

Key = tuple[str, str]


class Rest(msgspec.Struct):
    """What is remembered besides the stream."""

    identity: int = 0
    next_group: int = FIRST_STREAM_GROUP
    entries: int = 1
    """The newest version of streams' entries that leaders may write: every member has known it at
    one time. It never goes back, since older entries stay."""


class Conflict(msgspec.Struct):
    """What an operation ends with that came too late: another one was committed before it."""

    name: str


class Known:
    """A stream as the index of subjects has it."""

    def __init__(self, assignment: Assignment) -> None:
        self.assignment = assignment
        self.name = assignment.name
        self.config: StreamConfig = assignment.stream_config


class MetaState:
    """The `Machine` of the meta group, and what everybody on the node asks it."""

    def __init__(self) -> None:
        self.rest = Rest()
        self.streams: dict[Key, Known] = {}
        self.members: dict[int, Member] = {}
        self.gone: dict[str, int] = {}
        """Incarnations that were deleted, with their sequence in the stream."""
        self.subjects: dict[str, SubjectIndex] = {}
        self.accounts: dict[str, dict[str, Known]] = {}
        self.load_store: Callable[[], FileStore | None] = lambda: None
        """The stream of the replica, None while there is none."""
        self.on_change: Callable[[Operation, Assignment | None], None] = lambda *change: None
        """Called when an operation was applied, with what was known of its stream before."""
        self.on_load: Callable[[], None] = lambda: None
        """Called when everything may be different: a leader's snapshot was installed."""
        self._stale = True
        self._digest: tuple[int, int] = (-1, 0)
        """After which entry a digest was made, and the digest."""

    # -- what is known ------------------------------------------------------------

    def stream(self, account: str, name: str) -> Known | None:
        """A stream by its name."""
        self.load()
        return self.streams.get((account, name))

    def of_account(self, account: str) -> dict[str, Known]:
        """The streams of an account by name."""
        self.load()
        return self.accounts.get(account, {})

    def named(self, account: str, subject: str) -> list[Known]:
        """Streams whose subjects overlap with `subject` (empty: all), by name."""
        found = self.of_account(account)
        if subject:
            found = self.subjects[account].overlapping(subject) if found else {}
        return [found[name] for name in sorted(found)]

    def overlapping(
        self, account: str, subjects: list[str], own: str, steps: Steps | None = None
    ) -> bool:
        """Whether another stream than `own` has a subject that overlaps. Raises StepsExceeded."""
        if not self.of_account(account):
            return False
        return self.subjects[account].overlaps_others(subjects, own, steps or Steps())

    def boot_of(self, number: int) -> int:
        """The start in which a node was taken in with the disk that it has; 0 for no member."""
        self.load()
        member = self.members.get(number)
        return member.boot if member is not None else 0

    def digest(self, applied: int) -> int:
        """Of which streams are in which groups, after the entry `applied`: all nodes that have
        applied as much have the same."""
        self.load()
        if self._digest[0] != applied:
            found = 0
            for known in self.streams.values():
                one = known.assignment
                found += crc32(f"{one.incarnation} {one.group} {one.version}".encode())
            self._digest = (applied, found)
        return self._digest[1]

    # -- the machine --------------------------------------------------------------

    def apply(self, store: FileStore, entry: Entry) -> Any:
        """Do what an entry says; returns the operation as it was stored, or a Conflict."""
        self.load()
        operation = decode(entry.data)
        before = None
        if isinstance(operation, Assignment | ChangeDone | Gone):
            there = self.streams.get((operation.account, operation.name))
            before = there.assignment if there is not None else None
        if isinstance(operation, ChangeDone):
            if before is None or not _is_of(operation, before):
                return Conflict(operation.name)
            # A decision that was made by what was known before clashes with it.
            operation = msgspec.structs.replace(before, change=None, version=before.version + 1)
        elif isinstance(operation, Assignment):
            taken = self._refused(operation)
            if taken:
                return Conflict(taken)
            if operation.group == NEW_GROUP:
                operation.group = self.rest.next_group
        elif isinstance(operation, Gone) and (
            before is None or before.incarnation != operation.incarnation
        ):
            return Conflict(operation.name)
        self._store(store, operation, entry.index)
        if isinstance(operation, Assignment) and operation.group == self.rest.next_group:
            # Not before storage took it: what it refuses is applied again.
            self.rest.next_group += 1
        self._enter(operation, store.last_seq)
        self._forget(store)
        self.on_change(operation, before)
        return operation

    def _refused(self, wanted: Assignment) -> str:
        """The stream that an assignment clashes with; empty for none."""
        there = self.streams.get(wanted.key)
        if there is not None and there.assignment.incarnation != wanted.incarnation:
            return wanted.name
        if there is None and (wanted.version or wanted.incarnation in self.gone):
            return wanted.name
        if there is not None and wanted.version != there.assignment.version + 1:
            return wanted.name
        subjects = wanted.stream_config.subjects
        # The request was bounded where it came in. What is an entry is judged the same by all.
        taken = self.overlapping(wanted.account, subjects, wanted.name, Steps(EVERY_STEP))
        return wanted.name if taken else ""

    def _store(self, store: FileStore, operation: Operation, index: int) -> None:
        subject = subject_of(operation)
        # Replicas are equal to the byte: an entry has no time of its own.
        store.add_message(subject, encode(operation), b"", index)
        keep = 0 if isinstance(operation, Left) else 1
        store.purge(subject, None, keep)
        if isinstance(operation, Gone):
            store.purge(b"s." + operation.incarnation.encode(), None, 0)

    def _forget(self, store: FileStore) -> None:
        while len(self.gone) > GONE_MAX:
            oldest = next(iter(self.gone))
            del self.gone[oldest]
            store.purge(b"g." + oldest.encode(), None, 0)

    def _enter(self, operation: Operation, sequence: int) -> None:
        if isinstance(operation, Assignment):
            self._leave(operation.key)
            known = self.streams[operation.key] = Known(operation)
            self.accounts.setdefault(operation.account, {})[operation.name] = known
            self.subjects.setdefault(operation.account, SubjectIndex()).enter(known)
        elif isinstance(operation, Gone):
            self._leave((operation.account, operation.name))
            self.gone[operation.incarnation] = sequence
        elif isinstance(operation, Member):
            self.members[operation.number] = operation
        elif isinstance(operation, Left):
            self.members.pop(operation.number, None)
        elif isinstance(operation, Founded):
            self.rest.identity = operation.identity
        elif isinstance(operation, EntriesRaised):
            self.rest.entries = max(self.rest.entries, operation.version)

    def _leave(self, key: Key) -> None:
        old = self.streams.pop(key, None)
        if old is not None:
            account, name = key
            self.subjects[account].leave(old)
            del self.accounts[account][name]

    # -- what is remembered ---------------------------------------------------------

    def state(self) -> bytes:
        """As of `Machine`."""
        return msgspec.json.encode(self.rest)

    def carried(self) -> bytes:
        """As of `Machine`."""
        return self.state()

    def restore(self, state: bytes) -> None:
        """As of `Machine`: the rest is read from the stream when it is needed."""
        self.rest = msgspec.json.decode(state, type=Rest) if state else Rest()
        self._stale = True

    def load(self) -> None:
        """Read everything from the replica's stream when it is another one than before."""
        if not self._stale:
            return
        store = self.load_store()
        if store is None:
            return
        self._stale = False
        for each in (self.streams, self.members, self.gone, self.subjects, self.accounts):
            each.clear()
        at = store.first_seq
        while at <= store.last_seq:
            message = store.get(at)
            if message is not None:
                self._enter(decode(bytes(message.payload)), at)
            at += 1
        self.on_load()


def _is_of(done: ChangeDone, there: Assignment) -> bool:
    """Whether the change that is done is still what is wanted."""
    return (done.incarnation, done.version) == (there.incarnation, there.version)


def subject_of(operation: Operation) -> bytes:
    """Under which subject an operation is kept."""
    if isinstance(operation, Assignment):
        return b"s." + operation.incarnation.encode()
    if isinstance(operation, Gone):
        return b"g." + operation.incarnation.encode()
    if isinstance(operation, Member | Left):
        return b"m." + peer_of(operation.number).encode()
    return b"e" if isinstance(operation, EntriesRaised) else b"f"
