"""What one log segment holds of one stream, on its way to the stream's segments.

A checkpoint makes one for each stream that it meets, and the store has it as `copy` until the index
points at the segments, or the attempt is given up. Records are listed on the event loop, and
written by the builders in the background.
"""

from functools import partial

import cython
from cython.cimports.headwater.edge.storage.format.record import (
    FILE_HEADER_BYTES,
    FLAG_COPY,
    HEADER_BYTES,
    KIND_DELETE,
    KIND_HEAD,
    RecordHeader,
    record_size,
)
from cython.cimports.headwater.edge.storage.index.index import IN_LOG, IndexEntry
from cython.cimports.headwater.edge.storage.segments.file_store import BOTH_MAX, FileStore
from cython.cimports.headwater.edge.storage.segments.segment_builder import SegmentBuilder
from cython.cimports.headwater.edge.storage.segments.stream_segment import StreamSegment
from cython.cimports.libc.stdlib import free, realloc
from cython.cimports.libc.string import memset

from headwater.edge.storage.format.errors import broken
from headwater.edge.storage.segments.removals import when_removals_last
from headwater.edge.storage.segments.segment_files import (
    FOOTER,
    RUN,
    SegmentHeader,
    next_number,
    segment_path,
)


@cython.cclass
class SegmentCopy:
    """One stream's part of one checkpoint. See segment_copy.pxd for the fields."""

    def __init__(self, store: FileStore):
        self.store = store
        self.last = store.durable_last
        self.last_ts = store.durable_ts
        self.builders = []
        store.copy = self

    def __dealloc__(self):
        free(self.rows)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def add_message(self, record: cython.p_const_uchar, log_segment: cython.uint) -> cython.int:
        """List a message's record when it still lives in the log at this address."""
        header: cython.pointer(RecordHeader) = cython.cast(cython.pointer(RecordHeader), record)
        entry: cython.pointer(cython.const[IndexEntry]) = self.store.at(header.sequence)
        size: cython.Py_ssize_t = record_size(header.length)
        segment: StreamSegment
        row: cython.pointer(CopiedRow)
        grown: cython.p_void
        if (
            entry == cython.NULL
            or not entry.flags & IN_LOG
            or entry.location != cython.cast(cython.ulonglong, record)
        ):
            return self.advance(header.sequence, header.timestamp)
        if self.builder is not None and (
            self.builder.end() + size > self.store.segment_room()
            and self.builder.end() > FILE_HEADER_BYTES
        ):
            segment = self.builder.segment
            self.close_builder(log_segment)
            segment.sealed = True
        self.advance(header.sequence, header.timestamp)
        self.begin_builder()
        segment = self.builder.segment
        if self.count == self.capacity:
            self.capacity = self.capacity * 2 or 256
            grown = realloc(self.rows, self.capacity * cython.sizeof(CopiedRow))
            if grown == cython.NULL:
                raise MemoryError
            self.rows = cython.cast(cython.pointer(CopiedRow), grown)
        row = cython.address(self.rows[self.count])
        row.sequence = header.sequence
        row.old = cython.cast(cython.ulonglong, record)
        row.new = (cython.cast(cython.ulonglong, segment.number) << 32) | self.builder.end()
        row.size = size
        self.builder.add(record)
        self.count += 1
        self.builder.runs.join(self.store.stream_id, header.sequence)
        if segment.first == 0:
            segment.first = header.sequence
        segment.last = header.sequence
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def add_removals(self, kind: cython.int, record: cython.p_const_uchar) -> cython.int:
        """List a record of removals, for what earlier builders wrote of them."""
        header: cython.pointer(RecordHeader) = cython.cast(cython.pointer(RecordHeader), record)
        body: bytes = cython.cast(cython.p_char, record)[
            HEADER_BYTES : HEADER_BYTES + header.length
        ]
        runs = []
        for first, last in RUN.iter_unpack(body):
            if kind == KIND_DELETE and last > self.store.durable_last:
                last = self.store.durable_last
            if last >= first and last >= self.store.first_seq:
                runs.append((first, last))
        if not runs:
            return 0
        body = b"".join([RUN.pack(*run) for run in runs])
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
    def advance(self, last: cython.ulonglong, last_ts: cython.longlong) -> cython.int:
        """A record of the log segment moved `last_seq`. A footer must not be ahead of what precedes
        it: a start ignores what the log has up to there."""
        if last > self.last:
            self.last = last
            self.last_ts = max(self.last_ts, last_ts)
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def begin_builder(self) -> cython.int:
        """Choose the segment that is copied to."""
        store: FileStore = self.store
        segment: StreamSegment
        number: cython.uint
        head: bytes = b""
        if self.builder is not None:
            return 0
        segment = store.segments[len(store.segments) - 1] if store.segments else None
        if segment is not None and store.log.failure is not None:
            segment.sealed = segment.sealed or segment.is_dead_end(store.first_seq)
        if segment is None or segment.sealed:
            number = next_number(store.directory) if segment is None else segment.number + 1
            segment = StreamSegment(number, 0, segment_path(store.directory, number))
            segment.created = store.kernel.now_ns
            store.add_segment(segment)
        segment.before = (
            segment.chain,
            segment.first,
            segment.last,
            len(segment.deletes),
            list(segment.lost),
        )
        if segment.end == 0:
            head = SegmentHeader(
                segment.number, segment.generation, store.stream_id, segment.created
            ).encode(store.log.seed, store.log.node_id)
        self.builder = SegmentBuilder(segment, store.log.seed, head)
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def add_footer(self, log_segment: cython.uint) -> cython.int:
        """End what is copied for one segment with its account, twice. Raises InvariantBroken."""
        header: RecordHeader
        if self.last > self.store.last_seq:
            broken(
                f"{self.builder.segment.path} would end at sequence {self.last}, and the stream at "
                f"{self.store.last_seq}"
            )
        begin: cython.Py_ssize_t = self.builder.offset + len(self.builder.head)
        body: bytes = FOOTER.pack(
            self.last, self.last_ts, log_segment, begin, self.builder.count, 0
        )
        body += self.builder.runs.packed()
        memset(cython.address(header), 0, HEADER_BYTES)
        header.kind = KIND_HEAD
        header.sequence = self.store.first_seq
        header.timestamp = self.store.kernel.now_ns
        header.stream = self.store.stream_id
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
        if segment.end >= self.store.segment_room():
            segment.sealed = True
        self.builder = None
        return 0

    def end(self, log_segment: int) -> None:
        """The log segment has nothing more: `builders` are to be written."""
        self.close_builder(log_segment)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def publish(self, limit: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Point up to `limit` messages at their segments, which are durable; how many are left.
        With none left, the copy is over."""
        store: FileStore = self.store
        row: cython.pointer(CopiedRow)
        found: cython.pointer(cython.const[IndexEntry])
        entry: cython.pointer(IndexEntry)
        segment: StreamSegment
        store.pack_some()
        store.window.forget()  # what a crash left behind the end may have been read along
        while self.published < self.count and limit:
            limit -= 1
            row = cython.address(self.rows[self.published])
            self.published += 1
            found = store.at(row.sequence)
            if found == cython.NULL or found.location != row.old or not found.flags & IN_LOG:
                continue
            entry = store.opened(row.sequence)
            entry.location = row.new
            entry.flags &= ~IN_LOG
            segment = store.segment_of(cython.cast(cython.uint, row.new >> 32))
            segment.live += 1
            segment.live_bytes += row.size
        if self.published < self.count:
            return self.count - self.published
        store.copy = None
        store.advance_durable(self.last, self.last_ts)
        for item in store.segments:
            segment = item
            if segment.mostly_dead():
                store.ask_compact(segment)
        if store.segments and store.front_last() < store.first_seq:
            when_removals_last(store.log, partial(store.trim, store.first_seq))
        return 0

    def give_up(self, suspect: bool) -> None:
        """It could not be written: the log keeps everything, and another attempt copies it, to a
        fresh segment when the file is suspect."""
        store: FileStore = self.store
        segment: StreamSegment
        builder: SegmentBuilder
        if self.builder is not None:
            self.builders.append(self.builder)
            self.builder = None
        for item in self.builders:
            builder = item
            segment = builder.segment
            segment.sealed = suspect
            segment.end = builder.offset
            segment.chain, segment.first, segment.last, deletes, segment.lost = segment.before
            del segment.deletes[deletes:]
            if builder.offset == 0 and segment in store.segments:
                store.segments.remove(segment)
                store.by_number.pop(segment.number, None)
        store.recent = None
        store.copy = None
        when_removals_last(store.log, partial(store.trim, store.first_seq))
