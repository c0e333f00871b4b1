"""The face of a stream's storage, and all of it that memory and file stores share.

An append gets its sequence and is readable at once; `committed` tells what may be acknowledged. The
index answers every question about subjects and sequences without touching stored bytes. It decides
no limits and knows no consumer: the stream above does.

Sequences start at 1 (or where the stream was told); an empty store has `first_seq` one above
`last_seq`. Timestamps are ns since the epoch and never go back within a store.
"""

import cython
from cython.cimports.cpython.bytes import (
    PyBytes_AS_STRING,
    PyBytes_FromStringAndSize,
)
from cython.cimports.headwater.edge.kernel.kernel import Kernel, Msg, StagedTasks, Task
from cython.cimports.headwater.edge.storage.index.filter import Filter
from cython.cimports.headwater.edge.storage.index.index import IndexEntry, MessageIndex
from cython.cimports.headwater.edge.storage.index.subject_table import Subject
from cython.cimports.headwater.edge.subjects.tokens import is_literal
from cython.cimports.libc.string import memset

from headwater.edge.storage.format.errors import Damaged, StoreClosed, StoreError, StoreFull
from headwater.edge.storage.index.purge_plan import PurgePlan

# Lengths are stored in 32 bits; a record with its overhead stays well below.
MESSAGE_MAX = cython.declare(cython.Py_ssize_t, 1 << 30)
SUBJECT_MAX = cython.declare(cython.Py_ssize_t, 65535)
# The last sequence that a stream may reach: what is added to one never wraps.
SEQUENCES = cython.declare(cython.ulonglong, 0x7FFF_FFFF_FFFF_FFFF)
# Of the loads of so many sequences one looks for pages to pack.
PACK_MASK = cython.declare(cython.ulonglong, 63)

# Inside MessageStore the name `bytes` is the number of bytes stored.
Text = bytes


@cython.cfunc
@cython.inline
def start_of(text: bytes) -> cython.p_const_uchar:
    return cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(text))


@cython.cclass
class StoredMessage:
    """A copy of one stored message. `headers` is the whole block, b"" without headers."""

    def __repr__(self) -> str:
        return f"<message {self.sequence} on {self.subject!r}, {len(self.payload)} bytes>"


@cython.cclass
class Usage:
    """Bytes that all stores of one kind hold together. `limit` 0 is unlimited; a store above it
    takes nothing, so that one message may pass it, as in nats-server."""


@cython.cclass
class MessageStore(MessageIndex):
    """Messages of one stream. Made by `NodeStore.create_stream`; see store.pxd for the fields."""

    def __init__(self, kernel: Kernel, usage: Usage | None = None):
        self.kernel = kernel
        self.usage = usage if usage is not None else Usage()
        self.lost = {}
        # No publisher can know the seed, so that none fills one chain of subjects on purpose.
        self.names.seed = kernel.chance.below(1 << 64)

    @cython.cfunc
    @cython.exceptval(0, check=False)
    def append(
        self, m: cython.pointer(Msg), timestamp: cython.longlong, sequence: cython.ulonglong
    ) -> cython.ulonglong:
        """Store a message under its routed subject; returns its sequence.

        `sequence` 0 takes the next one; otherwise it must be above `last_seq`, and what it skips
        stays empty (mirrors). `timestamp` is raised to that of the message before. Raises
        StoreFull, StoreFailed or StoreClosed, and then nothing was stored.
        """
        raise TypeError(f"{type(self).__name__} does not store messages")

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def check_append(self, m: cython.pointer(Msg), sequence: cython.ulonglong) -> cython.int:
        """Raise what stands against an append."""
        if self.closed:
            raise StoreClosed("the stream's store is closed")
        if self.failure is not None:
            raise self.failure.with_traceback(None)  # else it keeps each call that met it
        if sequence and sequence <= self.last_seq:
            raise StoreError(f"sequence {sequence} is not above {self.last_seq}")
        if sequence > SEQUENCES or self.last_seq >= SEQUENCES:
            raise StoreError("the stream has no sequence left")
        if m.size > MESSAGE_MAX or m.subject_len > SUBJECT_MAX or m.header_len > m.size:
            raise StoreError("message is too large to store")
        if self.usage.limit and self.usage.bytes > self.usage.limit:
            raise StoreFull("the configured storage limit is reached")
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def load(self, sequence: cython.ulonglong, out: cython.pointer(Record)) -> cython.int:
        """Fill `out`; 1 when the message is there, 0 when it is not. Raises Damaged."""
        entry: cython.pointer(cython.const[IndexEntry])
        s: cython.pointer(Subject)
        # Now and then: it may well meet pages alone that still have messages in the log.
        if self.open_count > self.open_wanted and not sequence & PACK_MASK:
            self.pack_some()
        entry = self.at(sequence)
        if entry == cython.NULL:
            if self.lost and sequence in self.lost:
                raise Damaged(sequence, self.lost[sequence])
            return 0
        s = cython.address(self.names.items[entry.subject])
        out.sequence = sequence
        out.timestamp = entry.timestamp
        out.subject = s.text
        out.subject_len = s.size
        out.header_len = entry.header_len
        out.size = entry.size
        out.subject_id = entry.subject
        return self.load_body(sequence, entry, out)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def load_body(
        self,
        sequence: cython.ulonglong,
        entry: cython.pointer(cython.const[IndexEntry]),
        out: cython.pointer(Record),
    ) -> cython.int:
        """Set `out.body`; 1 when it could."""
        raise TypeError(f"{type(self).__name__} does not store messages")

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def remove(self, sequence: cython.ulonglong, erase: cython.bint) -> cython.int:
        """Take a message out; 1 when it was there. `erase`: its bytes are overwritten, too."""
        entry: cython.pointer(cython.const[IndexEntry])
        cost: cython.ulonglong
        interior: cython.bint = sequence != self.first_seq
        if self.open_count > self.open_wanted:
            self.pack_some()
        entry = self.at(sequence)
        if entry == cython.NULL:
            return 0
        if erase:
            self.before_erase(sequence)
        cost = self.cost(entry.subject, entry)
        self.free_location(entry)
        self.drop(sequence)
        self.usage.bytes -= cost
        self.removed(sequence, interior)
        return 1

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def before_erase(self, sequence: cython.ulonglong) -> cython.int:
        """Have the bytes of a message overwritten, which is about to be taken out."""
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def free_location(self, entry: cython.pointer(cython.const[IndexEntry])) -> cython.int:
        """Give back what `entry.location` points to; the entry is about to be dropped."""
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def removed(self, sequence: cython.ulonglong, interior: cython.bint) -> cython.int:
        """Make a removal durable; the index has it already."""
        return 0

    def listen(self, task: Task, stage: int) -> None:
        """Have `task` run when `committed` grew or the store failed, at a `NewsStage`. A single
        listener is run itself; more of them are composed."""
        if isinstance(self.listener, StagedTasks):
            cython.cast(StagedTasks, self.listener).add(task, stage)
        elif self.listener is None or self.listener is task:
            self.listener = task
            self.listener_stage = stage
        else:
            composed = StagedTasks()
            composed.add(self.listener, self.listener_stage)
            composed.add(task, stage)
            self.listener = composed

    def unlisten(self, task: Task) -> None:
        """Tell `task` nothing more; nothing happens when it does not listen."""
        if isinstance(self.listener, StagedTasks):
            cython.cast(StagedTasks, self.listener).remove(task)
        elif self.listener is task:
            self.listener = None

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def scheduled_listener(self) -> cython.int:
        """Have those told who listen."""
        if self.listener is not None:
            self.kernel.schedule(self.listener)
        return 0

    @cython.cfunc
    @cython.exceptval(0, check=True)
    def unsafe_removal(
        self, first: cython.ulonglong, last: cython.ulonglong
    ) -> cython.ulonglong:
        """What `when_safe` is to wait for before no crash can take a removal from `first` to `last`
        back; 0: nothing, NOT_WRITTEN: the end of the turn."""
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def when_safe(self, lsn: cython.ulonglong, task: Task) -> cython.int:
        """Schedule `task` when what `unsafe_removal` named is safe."""
        return self.kernel.schedule(task)

    @cython.cfunc
    @cython.exceptval(0, check=True)
    def last_for(self, subject: cython.p_const_uchar, n: cython.Py_ssize_t) -> cython.ulonglong:
        """Sequence of the newest message on a literal subject; 0 when there is none."""
        number: cython.uint = self.names.find(subject, n)
        return self.names.items[number].last if number else 0

    @cython.cfunc
    @cython.exceptval(0, check=True)
    def first_for(self, subject: cython.p_const_uchar, n: cython.Py_ssize_t) -> cython.ulonglong:
        """Sequence of the oldest message on a literal subject; 0 when there is none."""
        number: cython.uint = self.names.find(subject, n)
        return self.names.items[number].first if number else 0

    @cython.cfunc
    @cython.exceptval(0, check=True)
    def count_for(self, subject: cython.p_const_uchar, n: cython.Py_ssize_t) -> cython.ulonglong:
        """Messages stored on a literal subject."""
        number: cython.uint = self.names.find(subject, n)
        return self.names.items[number].count if number else 0

    @cython.cfunc
    @cython.exceptval(0, check=True)
    def cost_of(self, sequence: cython.ulonglong) -> cython.ulonglong:
        """Bytes that a stored message counts; 0 when it is not there."""
        entry: cython.pointer(cython.const[IndexEntry]) = self.at(sequence)
        return 0 if entry == cython.NULL else self.cost(entry.subject, entry)

    @cython.cfunc
    @cython.exceptval(0, check=True)
    def next_match(self, filter: Filter, start: cython.ulonglong) -> cython.ulonglong:
        """First stored sequence at or after `start` that matches (None: any); 0 when none does."""
        if filter is None:
            return self.next_alive(start)
        return filter.next(start)

    @cython.cfunc
    @cython.exceptval(0, check=True)
    def count_match(self, filter: Filter, start: cython.ulonglong) -> cython.ulonglong:
        """Stored messages at or after `start` that match (None: any)."""
        if filter is None:
            return self.count_alive(start, self.last_seq)
        return filter.count(start)

    @cython.ccall
    def filter(self, patterns: tuple) -> Filter:
        """Bind patterns (bytes) to this store; an empty tuple matches everything."""
        ready: Filter = self.handed_over
        if ready is not None and ready.patterns == tuple(dict.fromkeys(patterns)):
            return ready
        return Filter(self, patterns)

    def next_matching(self, filter: Filter, start: int) -> int:
        """`next_match` for interpreted callers."""
        return self.next_match(filter, start)

    def count_matching(self, filter: Filter, start: int) -> int:
        """`count_match` for interpreted callers."""
        return self.count_match(filter, start)

    def add_message(
        self,
        subject: Text,
        payload: Text,
        headers: Text = b"",
        timestamp: int = 0,
        sequence: int = 0,
    ) -> int:
        """`append` for interpreted callers; `timestamp` 0 is now."""
        m: Msg
        body = headers + payload if headers else payload
        memset(cython.address(m), 0, cython.sizeof(Msg))
        m.subject = start_of(subject)
        m.subject_len = len(subject)
        m.body = start_of(body)
        m.header_len = len(headers)
        m.size = len(body)
        return self.append(
            cython.address(m), timestamp if timestamp else self.kernel.now_ns, sequence
        )

    @cython.ccall
    def get(self, sequence: cython.ulonglong) -> StoredMessage:
        """A copy of a message; None when it is not there. Raises Damaged."""
        record: Record
        found: StoredMessage
        body: cython.p_char
        if not self.load(sequence, cython.address(record)):
            return None
        body = cython.cast(cython.p_char, record.body)
        found = StoredMessage.__new__(StoredMessage)
        found.sequence = record.sequence
        found.timestamp = record.timestamp
        found.subject = PyBytes_FromStringAndSize(
            cython.cast(cython.p_char, record.subject), record.subject_len
        )
        found.headers = PyBytes_FromStringAndSize(body, record.header_len)
        found.payload = PyBytes_FromStringAndSize(
            body + record.header_len, record.size - record.header_len
        )
        return found

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def delete(self, sequence: cython.ulonglong, erase: cython.bint = False) -> cython.bint:
        """Take one message out, and overwrite it if wished; whether it was there."""
        return self.remove(sequence, erase) == 1

    def purge(
        self,
        filter_subject: Text | None = None,
        sequence: int | None = None,
        keep: int | None = None,
    ) -> int:
        """Take out what matches `filter_subject` (None: all), below `sequence`, but for the newest
        `keep` messages that match. Returns how many were taken out (JetStream's STREAM.PURGE)."""
        if sequence == 1 or self.closed:
            return 0
        everything = filter_subject is None or filter_subject in (b"", b">")
        if everything and not keep:
            return self.purge_head(sequence or self.last_seq + 1)
        chosen = self.filter(() if everything else (filter_subject,))
        plan = self.purge_plan(chosen, sequence or 0, keep or 0)
        return self.purge_some(plan, plan.left)

    def purge_plan(self, chosen: Filter, sequence: int, keep: int) -> PurgePlan:
        """What `purge` would take out now, for `purge_some`."""
        total = self.count_matching(chosen, 0)
        end = sequence - 1 if sequence else self.last_seq
        return PurgePlan(chosen, self.first_seq, end, max(total - keep, 0))

    def purge_some(self, plan: PurgePlan, limit: int) -> int:
        """Take out up to `limit` messages of a plan; returns how many."""
        chosen: Filter = plan.chosen
        end: cython.ulonglong = min(plan.end, self.last_seq)
        left: cython.ulonglong = min(plan.left, limit)
        purged: cython.ulonglong = 0
        at: cython.ulonglong = plan.at
        while purged < left and not self.closed:
            at = chosen.next_until(at, end)
            if at == 0 or at > end:
                at = end + 1
                break
            self.remove(at, False)
            purged += 1
            at += 1
        plan.at = plan.end + 1 if at > end or self.closed else at
        plan.left -= purged
        return purged

    def planned(self, plan: PurgePlan, limit: int) -> list:
        """Up to `limit` sequences that a plan takes out next; it goes on behind them. For who lets
        them be taken out elsewhere."""
        chosen: Filter = plan.chosen
        end: cython.ulonglong = min(plan.end, self.last_seq)
        left: cython.ulonglong = min(plan.left, limit)
        at: cython.ulonglong = plan.at
        found: list = []
        while cython.cast(cython.ulonglong, len(found)) < left and not self.closed:
            at = chosen.next_until(at, end)
            if at == 0 or at > end:
                at = end + 1
                break
            found.append(at)
            at += 1
        plan.at = plan.end + 1 if at > end or self.closed else at
        plan.left -= len(found)
        return found

    def purge_head(self, first: int) -> int:
        """Take out everything below `first`; the next append is at or above it."""
        if first <= self.first_seq:
            return 0
        if first > SEQUENCES and self.last_seq < SEQUENCES:
            raise StoreError(f"sequence {first} is out of all bounds")
        before = self.messages
        # Behind the last sequence of all nothing is to follow, and there is no place to go on at.
        if first > self.last_seq and first <= SEQUENCES:
            self.move_to(first, first - 1)
            return before
        at: cython.ulonglong = self.first_seq
        while at and at < first:
            self.remove(at, False)
            at = self.first_seq if self.messages else 0
        return before - self.messages

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def move_to(self, first: cython.ulonglong, last: cython.ulonglong) -> cython.int:
        """Take out everything; `last_seq` becomes `last` (not below what it was)."""
        raise TypeError(f"{type(self).__name__} does not store messages")

    def skip(self, sequence: int) -> None:
        """Make `sequence` the last one without storing a message (a gap of a mirror's origin). Lost
        messages stay named."""
        if self.closed:
            raise StoreClosed("the stream's store is closed")
        if sequence <= self.last_seq:
            return
        if sequence > SEQUENCES:
            raise StoreError(f"sequence {sequence} is out of all bounds")
        if self.messages == 0 and not self.lost:
            self.move_to(sequence + 1, sequence)
        else:
            self.skip_to(sequence)

    def skip_to(self, sequence: int) -> None:
        """`skip` in a store that holds messages."""
        self.last_seq = sequence

    def subject_at(self, sequence: int) -> Text | None:
        """Subject of a stored message, from the index alone."""
        entry: cython.pointer(cython.const[IndexEntry]) = self.at(sequence)
        return None if entry == cython.NULL else self.names.text(entry.subject)

    def subjects_matching(self, pattern: Text) -> list[tuple[Text, int, int, int]]:
        """(subject, messages, first, last) of every subject that matches, unsorted."""
        chosen: Filter = self.filter((pattern,) if pattern else ())
        number: cython.uint
        if chosen.patterns and is_literal(start_of(pattern), len(pattern)):
            number = self.names.find(start_of(pattern), len(pattern))
            return self.rows_of(chosen, number, 1)[0] if number else []
        return self.rows_of(chosen, 1, self.names.used)[0]

    def rows_of(self, chosen: Filter, number: int, limit: int) -> tuple[list, int]:
        """Rows as of `subjects_matching`, of `limit` subjects by number, and the number to go on
        with, 0 at the end."""
        s: cython.pointer(Subject)
        n: cython.uint = number
        end: cython.uint = min(number + limit, self.names.used)
        found: list = []
        while n < end:
            s = cython.address(self.names.items[n])
            if s.count and chosen.matches_id(n):
                found.append((self.names.text(n), s.count, s.first, s.last))
            n += 1
        return found, end if end < self.names.used else 0

    def subjects(self, pattern: Text = b">", offset: int = 0, limit: int = 0) -> dict[str, int]:
        """Messages per subject, sorted by subject, from `offset`, at most `limit` (0: all)."""
        rows = sorted(self.subjects_matching(pattern))
        rows = rows[offset : offset + limit] if limit else rows[offset:]
        return {row[0].decode("utf-8", "surrogateescape"): row[1] for row in rows}

    def last_by_subject(self, pattern: Text) -> StoredMessage | None:
        """Newest message whose subject matches."""
        if pattern and is_literal(start_of(pattern), len(pattern)):
            at = self.last_for(start_of(pattern), len(pattern))
        else:
            at = self.filter((pattern,) if pattern else ()).newest()
        return self.get(at) if at else None

    def next_by_subject(self, pattern: Text, start: int = 0) -> StoredMessage | None:
        """First message at or after `start` whose subject matches."""
        at = self.next_matching(self.filter((pattern,) if pattern else ()), start)
        return self.get(at) if at else None

    def last_sequences(self, patterns: list[Text], up_to: int = 0, limit: int = 0) -> list[int]:
        """Sequence of the newest message of every matching subject, at or below `up_to` (0: any),
        ascending; not many more than `limit` (0: any number)."""
        chosen = self.filter(() if b"" in patterns else tuple(patterns))
        return chosen.last_ones(up_to or self.last_seq, limit)

    def sequence_at_time(self, timestamp: int) -> int:
        """First sequence stored at or after `timestamp` (ns); `last_seq` + 1 when none was."""
        return self.at_time(timestamp) or self.last_seq + 1

    def time_of(self, sequence: int) -> int:
        """Timestamp of a stored message in ns; 0 when it is not there."""
        entry: cython.pointer(cython.const[IndexEntry]) = self.at(sequence)
        return 0 if entry == cython.NULL else entry.timestamp

    def deleted(self, limit: int = 0) -> list[int]:
        """Sequences between first and last that hold no message, ascending, at most `limit`."""
        found: list = []
        sequence: cython.ulonglong = self.first_seq
        while sequence <= self.last_seq and self.messages:
            if self.at(sequence) == cython.NULL:
                found.append(sequence)
                if limit and len(found) >= limit:
                    break
            sequence += 1
        return found

    @property
    def num_deleted(self) -> int:
        """How many sequences between first and last hold no message."""
        return self.last_seq + 1 - self.first_seq - self.messages if self.messages else 0

    @property
    def num_subjects(self) -> int:
        return self.names.live

    def state(self) -> dict[str, int]:
        """Numbers of a StreamState; times in ns, 0 for none."""
        return {
            "messages": self.messages,
            "bytes": self.bytes,
            "first_seq": self.first_seq,
            "first_ts": self.first_ts,
            "last_seq": self.last_seq,
            "last_ts": self.last_ts,
            "num_subjects": self.num_subjects,
            "num_deleted": self.num_deleted,
            "lost": len(self.lost),
        }

    def close(self) -> None:
        """Refuse further appends."""
        self.closed = True
