"""A stream's messages: recent ones in the commit log's images, older ones in segments.

A message is written once to the log. When its log segment is checkpointed and the message still
lives, its record is copied to the stream's newest segment. Every read from a segment verifies
header and body; a record that does not verify is taken out, named in `lost`, and reported.
"""

import struct
from contextlib import suppress
from functools import partial

import cython
from cython.cimports.headwater.edge.broker.core import Msg
from cython.cimports.headwater.edge.storage.device.file_calls import read_some
from cython.cimports.headwater.edge.storage.format.record import (
    FILE_HEADER_BYTES,
    FLAG_COPY,
    HEADER_BYTES,
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
from cython.cimports.headwater.edge.storage.packing.packing import Packer
from cython.cimports.headwater.edge.storage.segments.segment_builder import SegmentBuilder
from cython.cimports.headwater.edge.storage.segments.stream_segment import StreamSegment
from cython.cimports.libc.stdlib import free, realloc
from cython.cimports.libc.string import memcmp, memset

from headwater.edge.storage.format.errors import Damaged, StoreError
from headwater.edge.storage.segments.loss import Loss
from headwater.edge.storage.segments.removals import when_removals_last
from headwater.edge.storage.segments.segment_files import (
    FOOTER,
    OpenFiles,
    SegmentHeader,
    next_number,
    segment_path,
)

# Removals up to this size are written twice.
BOTH_MAX = cython.declare(cython.Py_ssize_t, 1024)
# One read from a segment; sequential readers find their next messages in it.
WINDOW_BYTES = cython.declare(cython.Py_ssize_t, 65536)
# Removals collected in a turn before they are written out.
GONE_MAX = cython.declare(cython.uint, 4096)
RUNS = struct.Struct("<QQ")
HEAD = struct.Struct("<Qq")


@cython.cclass
class FileStore(LoggedStore):
    """Messages of one file-backed stream. See file_store.pxd for the fields."""

    def __cinit__(self, *args, **kwargs):
        self.overhead = 30
        self.header_overhead = 4

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
        self.builders = []

    def __dealloc__(self):
        free(self.gone)
        free(self.window)
        free(self.copied)

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
    @cython.exceptval(-1, check=False)
    def free_location(self, entry: cython.pointer(IndexEntry)) -> cython.int:
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

    def ask_compact(self, segment: StreamSegment) -> None:
        """Have a segment rewritten that is mostly dead: not while a builder may still change it,
        and not the one at the head, which goes away as a whole, unless room is short."""
        if (
            segment.sealed
            and (segment.pressed or segment is not self.segments[0])
            and not segment.busy
            and not segment.avoided
            and not self.copying
            and self.on_compact is not None
        ):
            segment.busy = True
            self.on_compact(self, segment)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def removed(self, sequence: cython.ulonglong, interior: cython.bint) -> cython.int:
        if interior:
            self.add_gone(sequence)
        else:
            self.head_moved = True
            if sequence not in self.lost:
                self.passed = sequence
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
        self.write_gone()
        if self.lost_now:
            runs = b"".join([RUNS.pack(sequence, sequence) for sequence in self.lost_now])
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
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def move_to(self, first: cython.ulonglong, last: cython.ulonglong) -> cython.int:
        segment: StreamSegment
        self.usage.bytes -= self.bytes
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
            if segment.last >= first or segment.busy or self.copying:
                break
            self.segments.pop(0)
            del self.by_number[segment.number]
            if self.recent is segment:
                self.recent = None
            if self.window_segment == segment.number:
                self.window_segment = 0
            self.open_files.forget(segment.path)
            paths.append(segment.path)
        if paths and self.on_trim is not None:
            self.on_trim(paths)

    def close(self) -> None:
        """Refuse further appends; what is stored stays."""
        self.closed = True
        self.log.stores.pop(self.stream_id, None)

    # Reading.

    @cython.cfunc
    def segment_of(self, number: cython.uint) -> StreamSegment:
        if self.recent is None or self.recent.number != number:
            self.recent = self.by_number.get(number)
        return self.recent

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def load_body(
        self,
        sequence: cython.ulonglong,
        entry: cython.pointer(IndexEntry),
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
        self, sequence: cython.ulonglong, entry: cython.pointer(IndexEntry)
    ) -> cython.p_const_uchar:
        """Read a message from its segment and verify it. Raises Damaged."""
        s: cython.pointer(Subject) = cython.address(self.names.items[entry.subject])
        number: cython.uint = cython.cast(cython.uint, entry.location >> 32)
        offset: cython.Py_ssize_t = entry.location & 0xFFFFFFFF
        length: cython.Py_ssize_t = self.body_length(entry)
        need: cython.Py_ssize_t = record_size(length)
        at: cython.p_const_uchar
        header: cython.pointer(RecordHeader)
        if (
            self.window_segment != number
            or offset < self.window_start
            or offset + need > self.window_start + self.window_length
        ):
            try:
                self.fill_window(number, offset, need)
            except OSError as error:
                self.damage(sequence, f"segment {number} cannot be read: {error.strerror}")
        self.window_used = True
        at = self.window + (offset - self.window_start)
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
    @cython.exceptval(-1, check=False)
    def fill_window(
        self, number: cython.uint, offset: cython.Py_ssize_t, need: cython.Py_ssize_t
    ) -> cython.int:
        """Read a part of a segment that begins at `offset`. Raises OSError."""
        segment: StreamSegment = self.segment_of(number)
        fd: cython.int
        n: cython.Py_ssize_t
        want: cython.Py_ssize_t = max(need, WINDOW_BYTES)
        grown: cython.p_void
        if segment is None:
            raise FileNotFoundError(2, "the segment's file is missing")
        fd = self.open_files.get(segment.path)
        if want > self.window_capacity or (
            self.window_capacity > WINDOW_BYTES and want == WINDOW_BYTES
        ):
            grown = realloc(self.window, want)
            if grown == cython.NULL:
                raise MemoryError
            self.window = cython.cast(cython.p_uchar, grown)
            self.window_capacity = want
        self.window_segment = number
        self.window_start = offset
        self.window_length = 0
        while self.window_length < want:
            n = read_some(
                fd,
                self.window + self.window_length,
                want - self.window_length,
                offset + self.window_length,
            )
            if n > 0:
                self.window_length += n
            elif n == 0 or want == need:
                break
            want = need if n < 0 else want
        if self.window_length < need:
            raise OSError(5, "it cannot be read, or is too short")
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def damage(self, sequence: cython.ulonglong, reason: str) -> cython.int:
        """Take a damaged message out, remember it as lost, and raise Damaged."""
        self.lost[sequence] = Loss(reason, self.cost_of(sequence))
        self.lost_now.append(sequence)
        self.window_segment = 0
        self.remove(sequence, False)
        if self.on_damage is not None:
            self.on_damage(self, sequence, reason)
        raise Damaged(sequence, reason)

    def drop_window(self) -> None:
        """Give the read buffer back when nothing was read since the last call."""
        if self.window_used:
            self.window_used = False
        elif self.window != cython.NULL:
            free(self.window)
            self.window = cython.NULL
            self.window_capacity = 0
            self.window_segment = 0

    # From the log to segments.

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def copy_message(self, record: cython.p_const_uchar, log_segment: cython.uint) -> cython.int:
        """Copy a message's record to the builder when it still lives in the log at this address."""
        header: cython.pointer(RecordHeader) = cython.cast(cython.pointer(RecordHeader), record)
        entry: cython.pointer(IndexEntry) = self.at(header.sequence)
        size: cython.Py_ssize_t = record_size(header.length)
        segment: StreamSegment
        row: cython.pointer(Copied)
        grown: cython.p_void
        if (
            entry == cython.NULL
            or not entry.flags & IN_LOG
            or entry.location != cython.cast(cython.ulonglong, record)
        ):
            return self.move_copied(header.sequence, header.timestamp)
        if self.builder is not None and (
            self.builder.end() + size > self.segment_limit
            and self.builder.end() > FILE_HEADER_BYTES
        ):
            segment = self.builder.segment
            self.close_builder(log_segment)
            segment.sealed = True
        self.move_copied(header.sequence, header.timestamp)
        self.begin_builder()
        segment = self.builder.segment
        if self.copied_count == self.copied_capacity:
            self.copied_capacity = self.copied_capacity * 2 or 256
            grown = realloc(self.copied, self.copied_capacity * cython.sizeof(Copied))
            if grown == cython.NULL:
                raise MemoryError
            self.copied = cython.cast(cython.pointer(Copied), grown)
        row = cython.address(self.copied[self.copied_count])
        row.sequence = header.sequence
        row.old = cython.cast(cython.ulonglong, record)
        row.new = (cython.cast(cython.ulonglong, segment.number) << 32) | self.builder.end()
        row.size = size
        self.builder.add(record)
        self.copied_count += 1
        self.builder.runs.join(self.stream_id, header.sequence)
        if segment.first == 0:
            segment.first = header.sequence
        segment.last = header.sequence
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def copy_deletes(self, kind: cython.int, record: cython.p_const_uchar) -> cython.int:
        """Copy a record of removals, for what earlier builders wrote of them."""
        header: cython.pointer(RecordHeader) = cython.cast(cython.pointer(RecordHeader), record)
        body: bytes = cython.cast(cython.p_char, record)[
            HEADER_BYTES : HEADER_BYTES + header.length
        ]
        runs = []
        for first, last in RUNS.iter_unpack(body):
            if kind == KIND_DELETE and last > self.durable_last:
                last = self.durable_last
            if last >= first and last >= self.first_seq:
                runs.append((first, last))
        if not runs:
            return 0
        body = b"".join([RUNS.pack(*run) for run in runs])
        self.begin_builder()
        self.builder.add_own(header, body)
        if len(body) <= BOTH_MAX:
            self.builder.add_own(header, body)
        if kind == KIND_DELETE:
            self.builder.segment.deletes.extend(body)
        else:
            self.builder.segment.lost.extend(runs)
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def begin_builder(self) -> cython.int:
        """Choose the segment that is copied to."""
        segment: StreamSegment
        number: cython.uint
        head: bytes = b""
        self.copying = True
        if self.builder is not None:
            return 0
        segment = self.segments[len(self.segments) - 1] if self.segments else None
        if segment is not None and self.log.failure is not None:
            segment.sealed = segment.sealed or segment.is_dead_end(self.first_seq)
        if segment is None or segment.sealed:
            number = next_number(self.directory) if segment is None else segment.number + 1
            segment = StreamSegment(number, 0, segment_path(self.directory, number))
            segment.created = self.kernel.now_ns
            self.segments.append(segment)
            self.by_number[number] = segment
        segment.before = (
            segment.chain,
            segment.first,
            segment.last,
            len(segment.deletes),
            list(segment.lost),
        )
        if segment.end == 0:
            head = SegmentHeader(
                segment.number, segment.generation, self.stream_id, segment.created
            ).encode(self.log.seed, self.log.node_id)
        self.builder = SegmentBuilder(segment, self.log.seed, head)
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def add_footer(self, log_segment: cython.uint) -> cython.int:
        """End what is copied for one segment with its account, twice."""
        header: RecordHeader
        begin: cython.Py_ssize_t = self.builder.offset + len(self.builder.head)
        body: bytes = FOOTER.pack(
            self.copied_last, self.copied_ts, log_segment, begin, self.builder.count, 0
        )
        body += self.builder.runs.packed()
        memset(cython.address(header), 0, HEADER_BYTES)
        header.kind = KIND_HEAD
        header.sequence = self.first_seq
        header.timestamp = self.kernel.now_ns
        header.stream = self.stream_id
        self.builder.add_own(cython.address(header), body)
        header.flags = FLAG_COPY
        return self.builder.add_own(cython.address(header), body)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def close_builder(self, log_segment: cython.uint) -> cython.int:
        """Nothing more goes to this segment with this builder."""
        segment: StreamSegment
        self.begin_builder()
        segment = self.builder.segment
        self.add_footer(log_segment)
        self.builders.append(self.builder)
        segment.end += self.builder.length
        if segment.end >= self.segment_limit:
            segment.sealed = True
        self.builder = None
        return 0

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def move_copied(self, last: cython.ulonglong, last_ts: cython.longlong) -> cython.int:
        """A record of the log segment being checkpointed moved `last_seq`. A footer must not be
        ahead of what precedes it: a start ignores what the log has up to there."""
        self.copying = True
        if last > self.copied_last:
            self.copied_last = last
            self.copied_ts = max(self.copied_ts, last_ts)
        return 0

    def advance_durable(self) -> None:
        """What was copied is durable."""
        segment: StreamSegment
        for item in self.segments:
            segment = item
            segment.durable_end = segment.end
        self.durable_last = self.copied_last
        self.durable_ts = self.copied_ts
        self.copying = False

    def end_builders(self, log_segment: int) -> list[SegmentBuilder]:
        """End the builder; returns all, in the order in which they are to be written."""
        self.close_builder(log_segment)
        builders = self.builders
        self.builders = []
        return builders

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def publish(self, limit: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Point up to `limit` messages at their segments, which are durable; how many are left."""
        row: cython.pointer(Copied)
        entry: cython.pointer(IndexEntry)
        segment: StreamSegment
        self.window_segment = 0  # what a crash left behind the end may have been read along
        while self.published < self.copied_count and limit:
            limit -= 1
            row = cython.address(self.copied[self.published])
            self.published += 1
            entry = self.at(row.sequence)
            if entry == cython.NULL or entry.location != row.old or not entry.flags & IN_LOG:
                continue
            entry.location = row.new
            entry.flags &= ~IN_LOG
            segment = self.segment_of(cython.cast(cython.uint, row.new >> 32))
            segment.live += 1
            segment.live_bytes += row.size
        if self.published == self.copied_count:
            free(self.copied)
            self.copied = cython.NULL
            self.copied_capacity = 0
            self.copied_count = 0
            self.published = 0
            self.advance_durable()
            for item in self.segments:
                segment = item
                if segment.mostly_dead():
                    self.ask_compact(segment)
            if self.segments and self.segments[0].last < self.first_seq:
                when_removals_last(self.log, partial(self.trim, self.first_seq))
            return 0
        return self.copied_count - self.published

    def abandon_builders(self, builders: list[SegmentBuilder], suspect: bool) -> None:
        """A write failed: forget it, and copy again later, to a fresh segment when the file is
        suspect."""
        segment: StreamSegment
        builder: SegmentBuilder
        for item in builders:
            builder = item
            segment = builder.segment
            segment.sealed = suspect
            segment.end = builder.offset
            segment.chain, segment.first, segment.last, deletes, segment.lost = segment.before
            del segment.deletes[deletes:]
            if builder.offset == 0 and segment in self.segments:
                self.segments.remove(segment)
                self.by_number.pop(segment.number, None)
        self.recent = None
        self.builder = None
        self.builders = []
        self.copied_count = 0
        self.published = 0
        self.copied_last = self.durable_last
        self.copied_ts = self.durable_ts
        self.copying = False
        when_removals_last(self.log, partial(self.trim, self.first_seq))

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def moved(
        self, sequence: cython.ulonglong, old: cython.ulonglong, new: cython.ulonglong
    ) -> cython.int:
        entry: cython.pointer(IndexEntry) = self.at(sequence)
        if entry == cython.NULL or not entry.flags & IN_LOG or entry.location != old:
            return 0
        entry.location = new
        return 1

    # Recovery.

    @property
    def seed(self) -> int:
        """Where checksums of this node's headers begin."""
        return self.log.seed

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def restore(
        self,
        subject: cython.p_const_uchar,
        n: cython.Py_ssize_t,
        sequence: cython.ulonglong,
        timestamp: cython.longlong,
        size: cython.uint,
        header_len: cython.uint,
        location: cython.ulonglong,
        flags: cython.uint,
    ) -> cython.int:
        """Enter a message found by recovery; 0 when its sequence is not above all others."""
        entry: cython.pointer(IndexEntry)
        number: cython.uint
        segment: StreamSegment
        if sequence <= self.last_seq:
            return 0
        number = self.names.intern(subject, n)
        entry = self.prepare(sequence)
        entry.location = location
        entry.flags = flags
        entry.timestamp = timestamp
        entry.size = size
        entry.header_len = header_len
        self.usage.bytes += self.cost(number, entry)
        self.add(sequence, number, entry)
        if not flags & IN_LOG:
            segment = self.segment_of(cython.cast(cython.uint, location >> 32))
            segment.live += 1
            segment.live_bytes += record_size(self.body_length(entry))
            if segment.first == 0:
                segment.first = sequence
            segment.last = sequence
        return 1

    def adopt(self, segment: StreamSegment) -> None:
        """Recovery found a segment."""
        self.segments.append(segment)
        self.by_number[segment.number] = segment

    def drop_recovered(self, first: int, last: int) -> None:
        """Recovery found that a run of sequences was removed."""
        entry: cython.pointer(IndexEntry)
        at: cython.ulonglong = self.next_alive(first)
        while at and at <= last:
            entry = self.at(at)
            self.free_location(entry)
            self.usage.bytes -= self.cost(entry.subject, entry)
            self.drop(at)
            at = self.next_alive(at + 1)

    def advance_recovered(self, first: int, last: int, last_ts: int) -> None:
        """Recovery's end: nothing is stored before `first`, and `last` was the last sequence."""
        if first > self.first_seq:
            self.drop_recovered(0, first - 1)
        if last > self.last_seq:
            self.last_seq = last
        if last_ts > self.last_ts:
            self.last_ts = last_ts
        if self.messages == 0:
            self.first_seq = max(first, self.last_seq + 1)
        elif first > self.first_seq:
            self.move_first(first)
        self.committed = self.last_seq

    def add_lost(self, sequence: int, reason: str) -> None:
        """Recovery found that a message is damaged."""
        if sequence not in self.lost:
            self.lost[sequence] = reason
            self.lost_now.append(sequence)

    def log_lost(self) -> None:
        """Have what recovery found lost written to the log, once that is open."""
        self.lost_now = [sequence for sequence in self.lost_now if sequence in self.lost]
        if self.lost_now:
            self.log.join_turn(self)
