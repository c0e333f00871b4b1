"""A stream's messages: recent ones in the commit log's images, older ones in segments.

A message is written once to the log. When its log segment is checkpointed and the message still
lives, its record is copied to the stream's newest segment. Every read from a segment verifies
header and body; a record that does not verify is taken out, named in `lost`, and reported.
"""

import struct
from contextlib import suppress
from functools import partial

import cython
from cython.cimports.headwater.edge.kernel.kernel import Msg, Task
from cython.cimports.headwater.edge.storage.format.record import (
    KIND_DELETE,
    KIND_HEAD,
    KIND_LOST,
    KIND_MESSAGE,
    KIND_SKIP,
    RecordHeader,
    body_ok,
    header_ok,
    packed_bits,
    record_size,
)
from cython.cimports.headwater.edge.storage.index.index import IN_LOG, IndexEntry
from cython.cimports.headwater.edge.storage.index.store import Record
from cython.cimports.headwater.edge.storage.index.subject_table import Subject
from cython.cimports.headwater.edge.storage.log.commit_log import CommitLog
from cython.cimports.headwater.edge.storage.log.fresh_removals import FreshRemovals
from cython.cimports.headwater.edge.storage.packing.packing import Packer
from cython.cimports.headwater.edge.storage.segments.segment_window import SegmentWindow
from cython.cimports.headwater.edge.storage.segments.stream_segment import StreamSegment
from cython.cimports.libc.stdlib import free, realloc
from cython.cimports.libc.string import memcmp

from headwater.edge.storage.format.errors import Damaged, StoreError, broken
from headwater.edge.storage.segments.loss import Loss
from headwater.edge.storage.segments.segment_files import RUN, OpenFiles

# Removals collected in a turn before they are written out.
GONE_MAX = cython.declare(cython.uint, 4096)
HEAD = struct.Struct("<Qq")
# A large stream has larger segments, this share of it each: some hundred of them, not thousands.
GROWTH_SHIFT = cython.declare(cython.int, 8)
GROWN_MAX = cython.declare(cython.ulonglong, 8 << 20)


@cython.cclass
class FileStore(LoggedStore):
    """Messages of one file-backed stream. See file_store.pxd for the fields."""

    def __cinit__(self, *args, **kwargs):
        self.overhead = 30
        self.header_overhead = 4
        self.packs = True

    def __init__(
        self,
        log: CommitLog,
        packer: Packer,
        incarnation: str,
        directory: object,
        open_files: OpenFiles,
        usage: object,
        segment_limit: int,
    ):
        LoggedStore.__init__(self, log.kernel, usage)
        self.log = log
        self.packer = packer
        self.stream_id = packer.stream
        self.incarnation = incarnation
        self.directory = directory
        self.open_files = open_files
        self.segment_limit = segment_limit
        self.segments = []
        self.leaving = []
        self.gone_numbers = set()
        self.by_number = {}
        self.lost_now = []
        self.window = SegmentWindow()
        self.fresh = FreshRemovals()

    def __dealloc__(self):
        free(self.gone)

    def count_as_memory(self) -> None:
        """Have messages count as those of a memory store do; before there are any."""
        self.overhead = 16
        self.header_overhead = 0

    # Writing.

    @cython.cfunc
    @cython.exceptval(0, check=False)
    def append(
        self, m: cython.pointer(Msg), timestamp: cython.longlong, sequence: cython.ulonglong
    ) -> cython.ulonglong:
        """Store a message; see MessageStore.append."""
        subject: cython.uint
        entry: cython.pointer(IndexEntry)
        self.check_append(m, sequence)
        if sequence == 0:
            sequence = self.last_seq + 1
        if timestamp < self.last_ts:
            timestamp = self.last_ts
        subject = self.names.intern(m.subject, m.subject_len)
        try:
            entry = self.prepare(sequence)
            entry.location = self.log.write_message(self, m, timestamp, sequence)
        except BaseException:
            if self.names.items[subject].count == 0:
                self.names.free_number(subject)
            raise
        entry.flags = IN_LOG | packed_bits(cython.cast(cython.p_const_uchar, entry.location))
        entry.timestamp = timestamp
        entry.size = cython.cast(cython.uint, m.size)
        entry.header_len = cython.cast(cython.uint, m.header_len)
        self.usage.bytes += self.cost(subject, entry)
        self.add(sequence, subject, entry)
        return sequence

    @cython.cfunc
    @cython.exceptval(check=False)
    def segment_room(self) -> cython.Py_ssize_t:
        """Bytes at which a segment of this stream is full."""
        grown: cython.ulonglong = min(self.bytes >> GROWTH_SHIFT, GROWN_MAX)
        return max(self.segment_limit, cython.cast(cython.Py_ssize_t, grown))

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def free_location(self, entry: cython.pointer(cython.const[IndexEntry])) -> cython.int:
        """Account for a message that goes away."""
        segment: StreamSegment
        if entry.flags & IN_LOG:
            return 0
        segment = self.segment_of(cython.cast(cython.uint, entry.location >> 32))
        if segment is None:
            return 0
        segment.live -= 1
        segment.dirty = True
        segment.live_bytes -= record_size(self.body_length(entry))
        if segment.mostly_dead():
            self.ask_compact(segment)
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def removed(self, sequence: cython.ulonglong, interior: cython.bint) -> cython.int:
        if interior:
            self.add_gone(sequence)
        else:
            self.head_moved = True
            if sequence not in self.lost:
                self.passed = sequence
        self.fresh.add(sequence, sequence)
        return self.log.join_turn(self)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def add_gone(self, sequence: cython.ulonglong) -> cython.int:
        """Collect an interior removal for the turn's record."""
        grown: cython.p_void
        capacity: cython.uint
        last: cython.pointer(Removed)
        if self.gone_count:
            last = cython.address(self.gone[self.gone_count - 1])
            if last.last + 1 == sequence:
                last.last = sequence
                return 0
        if self.gone_count == GONE_MAX and self.log.failure is None:
            with suppress(StoreError):  # the turn's end tries again
                self.write_gone()
        if self.gone_count == self.gone_capacity:
            capacity = self.gone_capacity * 2 or 16
            grown = realloc(self.gone, capacity * cython.sizeof(Removed))
            if grown == cython.NULL:
                raise MemoryError
            self.gone = cython.cast(cython.pointer(Removed), grown)
            self.gone_capacity = capacity
        self.gone[self.gone_count].first = sequence
        self.gone[self.gone_count].last = sequence
        self.gone_count += 1
        return 0

    def write_gone(self) -> None:
        """Write the removals collected so far."""
        if self.gone_count:
            runs = cython.cast(cython.p_char, self.gone)[: self.gone_count * cython.sizeof(Removed)]
            self.write_both(KIND_DELETE, 0, runs)
            self.gone_count = 0

    def write_both(self, kind: int, at: int, body: bytes) -> int:
        """Append what nothing else tells: twice when it is small; returns its lsn."""
        if len(body) <= BOTH_MAX:
            self.log.write_own(self, kind, at, body)
        return self.log.write_own(self, kind, at, body)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def flush_turn(self) -> cython.int:
        """Write this turn's removals: one record for all interior ones, one for the head."""
        lsn: cython.ulonglong = 0
        if self.closed:
            return 0
        if self.first_seq > self.last_seq + 1 or self.committed > self.last_seq:
            broken(
                f"{self.directory} would begin at {self.first_seq} and be safe up to "
                f"{self.committed}, with {self.last_seq} as its last sequence"
            )
        self.write_gone()
        if self.lost_now:
            runs = b"".join([RUN.pack(sequence, sequence) for sequence in self.lost_now])
            self.write_both(KIND_LOST, 0, runs)
            self.lost_now = []
        if self.skipped:
            self.log.write_own(self, KIND_SKIP, self.last_seq, b"")
            self.log.touch(self)
            self.skipped = False
        if self.head_moved:
            head = HEAD.pack(self.last_seq, self.last_ts)
            lsn = self.write_both(KIND_HEAD, self.first_seq, head)
            self.head_moved = False
            self.log.touch(self)
            if self.lost:
                self.lost = {at: why for at, why in self.lost.items() if at >= self.passed}
            if self.segments and self.front_last() < self.first_seq:
                self.log.when_durable(lsn, partial(self.trim, self.first_seq))
        return self.fresh.flush(self.log.batch, self.safe_lsn())

    @cython.cfunc
    @cython.exceptval(check=False)
    def safe_lsn(self) -> cython.ulonglong:
        """Batches up to this one are as safe as the stream promises."""
        return self.log.progress.reached if self.acks_written else self.log.progress.durable

    @cython.cfunc
    @cython.exceptval(0, check=True)
    def unsafe_removal(
        self, first: cython.ulonglong, last: cython.ulonglong
    ) -> cython.ulonglong:
        return self.fresh.within(first, last, self.safe_lsn())

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def when_safe(self, lsn: cython.ulonglong, task: Task) -> cython.int:
        if self.acks_written:
            self.log.when_written(lsn, task)
        else:
            self.log.when_durable(lsn, task)
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def move_to(self, first: cython.ulonglong, last: cython.ulonglong) -> cython.int:
        segment: StreamSegment
        self.usage.bytes -= self.bytes
        if self.first_seq < first:
            self.fresh.add(self.first_seq, first - 1)
        self.clear(first)
        self.last_seq = last
        self.gone_count = 0
        # Messages that are not durable yet are acknowledged with their batch, gone or not.
        self.committed = min(self.committed, last)
        self.lost = {}
        for item in self.segments:
            segment = item
            segment.live = 0
            segment.live_bytes = 0
        self.head_moved = True
        self.log.join_turn(self)
        return self.scheduled_listener()

    def skip_to(self, sequence: int) -> None:
        self.last_seq = sequence
        self.skipped = True
        self.log.join_turn(self)

    def close(self) -> None:
        """Refuse further appends; what is stored stays."""
        self.closed = True
        self.copy = None
        self.log.stores.pop(self.stream_id, None)

    # Reading.

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def load_body(
        self,
        sequence: cython.ulonglong,
        entry: cython.pointer(cython.const[IndexEntry]),
        out: cython.pointer(Record),
    ) -> cython.int:
        record: cython.p_const_uchar
        plain: cython.p_const_uchar
        s: cython.pointer(Subject) = cython.address(self.names.items[entry.subject])
        if entry.flags & IN_LOG:
            record = cython.cast(cython.p_const_uchar, entry.location)
        else:
            record = self.read_record(sequence, entry)
        plain = self.plain_body(record)
        if plain == cython.NULL:
            self.damage(sequence, "it does not open")
        if entry.flags != IN_LOG and (
            self.plain_size(record) != s.size + entry.size or memcmp(plain, s.text, s.size)
        ):
            self.damage(sequence, "it is another message")
        out.body = plain + s.size
        return 1

    @cython.cfunc
    def read_record(
        self, sequence: cython.ulonglong, entry: cython.pointer(cython.const[IndexEntry])
    ) -> cython.p_const_uchar:
        """Read a message from its segment and verify it. Raises Damaged."""
        s: cython.pointer(Subject) = cython.address(self.names.items[entry.subject])
        number: cython.uint = cython.cast(cython.uint, entry.location >> 32)
        # A literal of 32 bits would make Python integers of it, for each message.
        offset: cython.Py_ssize_t = cython.cast(cython.uint, entry.location)
        length: cython.Py_ssize_t = self.body_length(entry)
        need: cython.Py_ssize_t = record_size(length)
        at: cython.p_const_uchar
        header: cython.pointer(RecordHeader)
        at = self.window.find(number, offset, need)
        if at == cython.NULL:
            try:
                at = self.read_part(number, offset, need)
            except OSError as error:
                self.damage(sequence, f"segment {number} cannot be read: {error.strerror}")
        header = cython.cast(cython.pointer(RecordHeader), at)
        if not header_ok(at, need, self.log.seed, number, cython.cast(cython.uint, offset)):
            self.damage(sequence, f"bad header in segment {number} at {offset}")
        if (
            header.kind != KIND_MESSAGE
            or header.sequence != sequence
            or header.stream != self.stream_id
            or header.length != length
            or header.subject_len != s.size
            or header.header_len != entry.header_len
        ):
            self.damage(sequence, f"another record in segment {number} at {offset}")
        if not body_ok(at):
            self.damage(sequence, f"bad body in segment {number} at {offset}")
        return at

    @cython.cfunc
    def read_part(
        self, number: cython.uint, offset: cython.Py_ssize_t, need: cython.Py_ssize_t
    ) -> cython.p_const_uchar:
        """Read `need` bytes of a segment, and what follows them. Raises OSError."""
        segment: StreamSegment = self.segment_of(number)
        if segment is None:
            raise FileNotFoundError(2, "the segment's file is missing")
        self.window.fill(self.open_files.get(segment.path), number, offset, need)
        return self.window.find(number, offset, need)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def damage(self, sequence: cython.ulonglong, reason: str) -> cython.int:
        """Take a damaged message out, remember it as lost, and raise Damaged."""
        self.lost[sequence] = Loss(reason, self.cost_of(sequence))
        self.lost_now.append(sequence)
        self.window.forget()
        self.remove(sequence, False)
        if self.on_damage is not None:
            self.on_damage(self, sequence, reason)
        raise Damaged(sequence, reason)

    def add_lost(self, sequence: int, reason: str) -> None:
        """Name a message lost that was found damaged and is not stored; see `log_lost`."""
        if sequence not in self.lost:
            self.lost[sequence] = reason
            self.lost_now.append(sequence)

    def log_lost(self) -> None:
        """Have what was named lost written to the log, once that is open."""
        self.lost_now = [sequence for sequence in self.lost_now if sequence in self.lost]
        if self.lost_now:
            self.log.join_turn(self)

    # Segments.

    @property
    def copying(self) -> bool:
        """Whether a checkpoint is moving messages from the log to segments."""
        return self.copy is not None

    @property
    def seed(self) -> int:
        """Where checksums of this node's headers begin."""
        return self.log.seed

    @cython.cfunc
    def segment_of(self, number: cython.uint) -> StreamSegment:
        if self.recent is None or self.recent.number != number:
            self.recent = self.by_number.get(number)
        return self.recent

    def add_segment(self, segment: StreamSegment) -> None:
        """Have one more segment, newer than the others."""
        self.segments.append(segment)
        self.by_number[segment.number] = segment

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def advance_durable(self, last: cython.ulonglong, last_ts: cython.longlong) -> cython.int:
        """Everything that segments hold is durable, and with it the stream up to `last`."""
        segment: StreamSegment
        for item in self.segments:
            segment = item
            segment.durable_end = segment.end
        if last > self.durable_last:
            self.durable_last = last
            self.durable_ts = max(self.durable_ts, last_ts)
        return 0

    def ask_compact(self, segment: StreamSegment) -> None:
        """Have a segment rewritten that is mostly dead: not while a builder may still change it,
        and not the one at the head, which goes away as a whole, unless room is short."""
        if (
            segment.sealed
            and (segment.pressed or segment is not self.segments[0])
            and not segment.busy
            and not segment.avoided
            and self.copy is None
            and self.on_compact is not None
        ):
            segment.busy = True
            self.on_compact(self, segment)

    def front_last(self) -> int:
        """The last sequence of the oldest segment."""
        return cython.cast(StreamSegment, self.segments[0]).last

    def trim(self, first: int) -> None:
        """Let go of segments at the front with nothing from `first` on, which is durable. The
        newest one stays: its footer tells `last_seq`."""
        segment: StreamSegment
        paths = []
        while len(self.segments) > 1:
            segment = self.segments[0]
            if segment.last >= first or segment.busy or self.copy is not None:
                break
            self.segments.pop(0)
            del self.by_number[segment.number]
            if self.recent is segment:
                self.recent = None
            if self.window.number == segment.number:
                self.window.forget()
            self.open_files.forget(segment.path)
            paths.append(segment.path)
        if paths and self.on_trim is not None:
            self.on_trim(paths)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def moved(
        self, sequence: cython.ulonglong, old: cython.ulonglong, new: cython.ulonglong
    ) -> cython.int:
        found: cython.pointer(cython.const[IndexEntry]) = self.at(sequence)
        entry: cython.pointer(IndexEntry)
        if found == cython.NULL or not found.flags & IN_LOG or found.location != old:
            return 0
        entry = self.opened(sequence)
        entry.location = new
        return 1
