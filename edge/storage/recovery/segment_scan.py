"""A start's reading of a stream's segment that no index covers.

It goes by the rules of the log's replay: what does not verify is skipped to the next record that
does, and footers tell which messages are missing.
"""

import cython
from cython.cimports.cpython.bytes import PyBytes_AS_STRING
from cython.cimports.headwater.edge.storage.format.record import (
    FLAG_ERASED,
    KIND_DELETE,
    KIND_HEAD,
    KIND_LOST,
    KIND_MESSAGE,
    RecordHeader,
    body_of,
    body_ok,
    find_record,
    header_ok,
    packed_bits,
    record_size,
)
from cython.cimports.headwater.edge.storage.index.index import IN_LOG, IndexEntry
from cython.cimports.headwater.edge.storage.recovery.restore import restore_message
from cython.cimports.headwater.edge.storage.segments.file_store import FileStore
from cython.cimports.headwater.edge.storage.segments.stream_segment import StreamSegment

from headwater.edge.storage.format.problem import Problem, ProblemKind
from headwater.edge.storage.log.batch_runs import LOG_RUN
from headwater.edge.storage.segments.loss import LOST_MAX, set_size, share_of
from headwater.edge.storage.segments.segment_files import FOOTER as SEGMENT_FOOTER
from headwater.edge.storage.segments.segment_files import RUN


def first_alive(store: FileStore, sequence: cython.ulonglong) -> int:
    """The first message that is stored at or after `sequence`; 0 when there is none."""
    return store.next_alive(sequence)


def cut_off(
    store: FileStore, segment: StreamSegment, size: cython.ulonglong
) -> list[tuple[int, int]]:
    """(sequence, bytes it counts) of messages served from a segment of whose file there are only
    `size` bytes, that end behind them."""
    entry: cython.pointer(cython.const[IndexEntry])
    found: list = []
    length: cython.ulonglong
    sequence: cython.ulonglong = store.next_alive(segment.first) if segment.first else 0
    while sequence and sequence <= segment.last:
        entry = store.entry(sequence)
        length = record_size(store.body_length(entry))
        if (
            not entry.flags & IN_LOG
            and entry.location >> 32 == segment.number
            and (entry.location & 0xFFFFFFFF) + length > size
        ):
            found.append((sequence, store.cost_of(sequence)))
        sequence = store.next_alive(sequence + 1)
    return found


@cython.cclass
class SegmentScan:
    """Reads records of a stream's segment that no index file covers."""

    def __init__(self, store: FileStore, segment: StreamSegment):
        self.store = store
        self.segment = segment
        self.problems = []
        self.gaps = []
        self.erased = set()
        self.last_removals = None

    def damaged(self, text: str) -> None:
        """List damage of the segment's file."""
        self.problems.append(Problem.of(ProblemKind.DAMAGED, self.segment.path, text))

    def run(self, content: bytes, start: cython.Py_ssize_t, is_last: bool) -> None:
        """Enter the records of `content` (the whole file) from `start`; sets the segment's end.
        What follows the last footer is a torn tail in the last segment, and damage elsewhere."""
        data: cython.p_const_uchar = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(content))
        end: cython.Py_ssize_t = len(content)
        at: cython.Py_ssize_t = start
        seed: cython.uint = self.store.log.seed
        number: cython.uint = self.segment.number
        header: cython.pointer(RecordHeader)
        offsets: list = []
        damaged: cython.Py_ssize_t = 0
        torn: cython.Py_ssize_t
        torn_first: cython.Py_ssize_t = end
        before: cython.ulonglong
        ended: cython.Py_ssize_t = -1
        while at < end:
            header = cython.cast(cython.pointer(RecordHeader), data + at)
            if (
                not header_ok(data + at, end - at, seed, number, cython.cast(cython.uint, at))
                or header.stream != self.store.stream_id
            ):
                torn = at
                at = find_record(data, at + 8, end, seed, number)
                if at < end or not is_last:
                    damaged += at - torn
                    torn_first = min(torn_first, torn)
                    self.damaged(f": bytes {torn} to {at} are damaged")
                continue
            if header.kind == KIND_HEAD and body_ok(data + at):
                begin = SEGMENT_FOOTER.unpack_from(body_of(data + at))[3]
                if begin != ended:
                    before = self.store.last_seq
                    self.finish_batch(data + at, offsets, data, damaged)
                    runs = body_of(data + at)[SEGMENT_FOOTER.size :]
                    if torn_first < begin and runs:
                        self.gaps.append([before, LOG_RUN.unpack_from(runs)[1]])
                    offsets = []
                    damaged = 0
                    torn_first = end
                    ended = begin
                self.segment.chain = header.header_crc
                self.segment.end = at + record_size(header.length)
            elif header.kind != KIND_HEAD:
                offsets.append(at)
            at += record_size(header.length)
        if offsets and not is_last:
            self.apply(data, offsets)
            self.damaged(f": {len(offsets)} records have no footer")
            self.segment.end = end

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def finish_batch(
        self,
        record: cython.p_const_uchar,
        offsets: list,
        data: cython.p_const_uchar,
        damaged: cython.Py_ssize_t,
    ) -> cython.int:
        """Enter a batch, and name what its footer lists but the file does not hold."""
        header: cython.pointer(RecordHeader) = cython.cast(cython.pointer(RecordHeader), record)
        body: bytes = body_of(record)
        number: cython.ulonglong
        missing: list = []
        last_seq, last_ts, log_segment, _, records, _ = SEGMENT_FOOTER.unpack_from(body)
        self.apply(data, offsets)
        if damaged or records != len(offsets):
            for _, first, last in LOG_RUN.iter_unpack(body[SEGMENT_FOOTER.size :]):
                for sequence in range(first, last + 1):
                    number = sequence
                    if self.store.at(number) == cython.NULL and sequence not in self.erased:
                        self.lose(sequence, "its record in the segment is damaged")
                        missing.append(sequence)
        for sequence in missing:
            set_size(self.store, sequence, share_of(damaged, len(missing)))
        self.first_seq = max(self.first_seq, header.sequence)
        self.last_seq = max(self.last_seq, last_seq)
        self.last_ts = max(self.last_ts, last_ts)
        self.log_segment = max(self.log_segment, log_segment)
        return 0

    def lose(self, sequence: int, reason: str) -> None:
        """Mark a sequence as lost."""
        if sequence not in self.store.lost and len(self.store.lost) < LOST_MAX:
            self.store.add_lost(sequence, reason)
        self.store.last_seq = max(self.store.last_seq, sequence)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def apply_message(self, record: cython.p_const_uchar, at: cython.Py_ssize_t) -> cython.int:
        """Enter a message whose record verifies."""
        header: cython.pointer(RecordHeader) = cython.cast(cython.pointer(RecordHeader), record)
        plain: cython.p_const_uchar = self.store.plain_body(record)
        if plain == cython.NULL:
            self.lose(header.sequence, "its record in the segment does not open")
            return 0
        return restore_message(
            self.store,
            plain,
            header.subject_len,
            header.sequence,
            header.timestamp,
            cython.cast(cython.uint, self.store.plain_size(record)) - header.subject_len,
            header.header_len,
            (cython.cast(cython.ulonglong, self.segment.number) << 32)
            | cython.cast(cython.ulonglong, at),
            packed_bits(record),
        )

    def add_removals(self, kind: int, body: bytes) -> None:
        """Sequences that are gone; a record that comes twice counts once."""
        again = (kind, body) == self.last_removals
        self.last_removals = None if again else (kind, body)
        if again:
            return
        if kind == KIND_DELETE:
            self.segment.deletes.extend(body)
        else:
            self.segment.lost.extend(RUN.iter_unpack(body))

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def apply(self, data: cython.p_const_uchar, offsets: list) -> cython.int:
        """Do what the records of a batch say, which stand at `offsets`."""
        header: cython.pointer(RecordHeader)
        record: cython.p_const_uchar
        at: cython.Py_ssize_t
        for item in offsets:
            at = item
            record = data + at
            header = cython.cast(cython.pointer(RecordHeader), record)
            if not body_ok(record):
                if header.kind == KIND_MESSAGE:
                    self.lose(header.sequence, "its body in the segment is damaged")
                else:
                    self.damaged(f": record at {at} is damaged")
            elif header.flags & FLAG_ERASED:
                self.erased.add(header.sequence)
            elif header.kind == KIND_MESSAGE:
                self.apply_message(record, at)
            elif header.kind == KIND_DELETE or header.kind == KIND_LOST:
                self.add_removals(header.kind, body_of(record))
        return 0
