"""Recovery's reading of records: what the log and unindexed segments say.

A record counts when its header verifies at its position; its body is verified before it is used. A
batch counts once a footer of it was read. What does not verify is skipped to the next record that
does, and the footer's account tells which messages are missing: they are marked lost, and
everything else is kept.
"""

import struct

import cython
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cython.cimports.headwater.edge.storage.format.record import (
    FILE_HEADER_BYTES,
    FLAG_COPY,
    FLAG_ERASED,
    FLAG_PART,
    HEADER_BYTES,
    KIND_CHECKPOINT,
    KIND_DELETE,
    KIND_ERASE,
    KIND_ERASE_DONE,
    KIND_FOOTER,
    KIND_HEAD,
    KIND_LOST,
    KIND_MESSAGE,
    KIND_SKIP,
    KIND_STATE_DELETE,
    KIND_STATE_DELTA,
    KIND_STATE_PUT,
    KIND_STREAM_DELETE,
    RecordHeader,
    body_ok,
    find_record,
    header_ok,
    packed_bits,
    record_size,
)
from cython.cimports.headwater.edge.storage.index.index import IN_LOG, IndexEntry
from cython.cimports.headwater.edge.storage.log.commit_log import CommitLog
from cython.cimports.headwater.edge.storage.log.log_segment import LogSegment
from cython.cimports.headwater.edge.storage.recovery.restore import restore_message
from cython.cimports.headwater.edge.storage.segments.file_store import FileStore
from cython.cimports.headwater.edge.storage.segments.stream_segment import StreamSegment

from headwater.edge.storage.directory.metas import METAS_OWNER
from headwater.edge.storage.format.problem import Problem, ProblemKind
from headwater.edge.storage.recovery.restore import restore_removal
from headwater.edge.storage.segments.loss import (
    COUNTED_EXTRA,
    LOST_BEFORE,
    removed_before,
    set_size,
    share_of,
)
from headwater.edge.storage.segments.manifest import MANIFESTS_OWNER
from headwater.edge.storage.segments.segment_files import FOOTER as SEGMENT_FOOTER

LOG_FOOTER = struct.Struct("<QII")
LOG_RUN = struct.Struct("<QQQ")
RUN = struct.Struct("<QQ")
HEAD = struct.Struct("<Qq")
# Lost sequences that are named one by one; more than this are only counted.
LOST_MAX = 100_000
# The longest owner of states that a survey looks at.
OWN_MAX = cython.declare(cython.Py_ssize_t, max(len(MANIFESTS_OWNER), len(METAS_OWNER)))


@cython.cfunc
def body_of(record: cython.p_const_uchar) -> bytes:
    """A copy of a record's body."""
    header: cython.pointer(RecordHeader) = cython.cast(cython.pointer(RecordHeader), record)
    return PyBytes_FromStringAndSize(
        cython.cast(cython.p_char, record) + HEADER_BYTES, header.length
    )


@cython.cfunc
def records_in(footer: cython.p_const_uchar) -> cython.uint:
    """How many records the batch of a footer has."""
    return LOG_FOOTER.unpack_from(body_of(footer))[2]


@cython.cfunc
@cython.exceptval(-1, check=False)
def collect_own(record: cython.p_const_uchar, at: cython.Py_ssize_t, found: Survey) -> cython.int:
    """Keep a state that tells of a stream's segments, or its meta. The record ends at `at`."""
    header: cython.pointer(RecordHeader) = cython.cast(cython.pointer(RecordHeader), record)
    a: cython.Py_ssize_t = header.subject_len
    b: cython.Py_ssize_t = a + header.header_len
    if body_ok(record):
        body: bytes = body_of(record)
        if body[:a] in (MANIFESTS_OWNER, METAS_OWNER):
            found.own.append((at, body[:a], body[a:b], header.kind, body[b:]))
    return 0


@cython.cclass
class Survey:
    """Where the records of a log segment end that count, and what decides about other segments."""


@cython.cfunc
@cython.exceptval(-1, check=False)
def end_batch(record: cython.p_const_uchar, at: cython.Py_ssize_t, found: Survey) -> cython.int:
    """A valid footer ends at `at`: what stands before it counts."""
    header: cython.pointer(RecordHeader) = cython.cast(cython.pointer(RecordHeader), record)
    if not header.flags & FLAG_COPY or found.batch != header.sequence:
        found.part_chain = found.chain
    found.end = at
    found.batch = header.sequence
    found.chain = header.header_crc
    found.part_start = 0
    if header.flags & FLAG_PART:
        found.part_start = LOG_FOOTER.unpack_from(body_of(record))[1]
    return 0


def survey(
    segment: LogSegment,
    seed: cython.uint,
    limit: cython.Py_ssize_t,
    shortened: cython.bint = False,
) -> Survey:
    """Look at all records of a log segment up to `limit` (0: up to the last valid footer).

    A newest segment whose file was `shortened` ends after its last valid record: the footer that
    made it count may have stood in what is missing.
    """
    found: Survey = Survey()
    at: cython.Py_ssize_t = FILE_HEADER_BYTES
    end: cython.Py_ssize_t = limit if limit else segment.capacity
    following: cython.Py_ssize_t
    header: cython.pointer(RecordHeader)
    record: cython.p_const_uchar
    broken: cython.bint = False
    found.deleted = []
    found.erases = []
    found.own = []
    found.end = FILE_HEADER_BYTES
    found.chain = segment.previous_chain
    while at < end:
        record = segment.image + at
        if not header_ok(record, end - at, seed, segment.number, cython.cast(cython.uint, at)):
            broken = True
            following = find_record(segment.image, at + 8, end, seed, segment.number)
            if following >= end:
                break
            at = following
            continue
        header = cython.cast(cython.pointer(RecordHeader), record)
        at += record_size(header.length)
        if header.kind == KIND_FOOTER and body_ok(record):
            end_batch(record, at, found)
            found.damaged = found.damaged or broken
        elif header.kind == KIND_CHECKPOINT and header.sequence > found.oldest:
            found.oldest = cython.cast(cython.uint, header.sequence)
        elif header.kind == KIND_ERASE and body_ok(record):
            found.erases.append((at, header.sequence, header.stream, body_of(record)))
        elif header.kind == KIND_ERASE_DONE:
            found.erase_done = max(found.erase_done, header.sequence)
        elif header.kind == KIND_STREAM_DELETE:
            found.deleted.append((at, header.stream))
        elif (
            header.kind in (KIND_STATE_PUT, KIND_STATE_DELTA, KIND_STATE_DELETE)
            and header.subject_len <= OWN_MAX
        ):
            collect_own(record, at, found)
        if shortened:
            found.end = at
            found.chain = header.header_crc
            found.part_start = 0
    if limit:
        found.damaged = found.damaged or found.end != limit
        found.end = limit
    return found


@cython.cclass
class LogReplay:
    """Applies log segments, oldest first, to the stores and the state table of a log."""

    def __init__(self, log: CommitLog):
        self.log = log
        self.watched = {}
        self.problems = []
        self.firsts = {}
        self.last_times = {}
        self.orphans = {}
        self.deleted = set()
        self.dropped = []
        self.gaps = []
        self.copied = (0, 0)
        self.touched = set()

    def run(self, segment: LogSegment) -> None:
        """Apply one segment up to its `end`."""
        at: cython.Py_ssize_t = FILE_HEADER_BYTES
        following: cython.Py_ssize_t
        header: cython.pointer(RecordHeader)
        record: cython.p_const_uchar
        records: cython.uint = 0
        batch: cython.ulonglong = 0
        chain: cython.uint = segment.previous_chain
        damaged: cython.Py_ssize_t = 0
        while at < segment.end:
            record = segment.image + at
            if not header_ok(
                record,
                segment.end - at,
                self.log.seed,
                segment.number,
                cython.cast(cython.uint, at),
            ):
                following = find_record(
                    segment.image, at + 8, segment.end, self.log.seed, segment.number
                )
                self.damaged(segment, f"bytes {at} to {following} are damaged")
                damaged += following - at
                self.near_damage = True
                at = following
                chain = 0
                continue
            header = cython.cast(cython.pointer(RecordHeader), record)
            if chain and header.chain != chain and header.chain:
                self.damaged(segment, f"the record before {at} is not the one written")
            chain = 0 if header.flags & FLAG_ERASED else header.header_crc
            at += record_size(header.length)
            if header.kind == KIND_FOOTER:
                if not body_ok(record):
                    self.damaged(segment, f"the footer at {header.offset} is damaged")
                elif header.sequence != batch:
                    batch = header.sequence
                    if damaged and batch != self.last_batch + 1:
                        self.unknown_bytes += damaged
                        self.gap_is_lost = True
                    if records_in(record) != records or damaged:
                        self.check_runs(record, damaged)
                    for store, number in self.gaps:
                        set_size(
                            store, number, share_of(damaged or self.unknown_bytes, len(self.gaps))
                        )
                    self.gaps = []
                    self.near_damage = False
                    self.last_batch = batch - 1 if header.flags & FLAG_PART else batch
                    records = 0
                    damaged = 0
                    self.dropped = []
                continue
            records += 1
            self.apply(record, segment)
        self.unknown_bytes += damaged
        self.gap_is_lost = self.gap_is_lost or damaged > 0

    @cython.cfunc
    def store_of(self, stream: cython.ulonglong) -> FileStore:
        """The store of a stream; None, and reported, when there is none."""
        if self.store is None or self.store_id != stream:
            self.store_id = stream
            self.store = self.log.stores.get(stream)
        if self.store is None and stream not in self.deleted:
            self.orphans[stream] = self.orphans.get(stream, 0) + 1
        return self.store

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def lose(self, store: FileStore, sequence: cython.ulonglong, reason: str) -> cython.int:
        """Mark a sequence as lost."""
        if len(store.lost) < LOST_MAX:
            store.add_lost(sequence, reason)
        if sequence > store.last_seq:
            store.last_seq = sequence
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def check_runs(self, record: cython.p_const_uchar, damaged: cython.Py_ssize_t) -> cython.int:
        """A batch has other records than its footer says: name the messages that are missing."""
        store: FileStore
        sequence: cython.ulonglong
        missing: list = []
        header: cython.pointer(RecordHeader) = cython.cast(cython.pointer(RecordHeader), record)
        body = body_of(record)[: header.subject_len]
        for stream, first, last in LOG_RUN.iter_unpack(body[LOG_FOOTER.size :]):
            store = self.store_of(stream)
            if store is None:
                continue
            first = max(first, store.durable_last + 1, self.firsts.get(stream, 0))
            if self.gap_is_lost and first > store.last_seq + 1:
                before = min(first, store.last_seq + LOST_MAX)
                for number in range(store.last_seq + 1, before):
                    self.lose(store, number, "a part of the log is missing")
                    missing.append((store, number))
            for number in range(first, last + 1):
                sequence = number
                if (
                    store.at(sequence) == cython.NULL
                    and sequence not in store.lost
                    and not self.was_dropped(stream, number)
                ):
                    self.lose(store, sequence, "its record in the log is damaged")
                    missing.append((store, number))
        for lost_by, number in missing:
            set_size(lost_by, number, share_of(damaged, len(missing)))
        return 0

    def was_dropped(self, stream: int, sequence: int) -> bool:
        """Whether this batch took the message out itself."""
        return any(row[0] == stream and row[1] <= sequence <= row[2] for row in self.dropped)

    def damaged(self, segment: LogSegment, text: str) -> None:
        """List damage of a segment of the log."""
        self.problems.append(
            Problem(
                ProblemKind.DAMAGED,
                f"log segment {segment.number}: {text}",
                file=str(segment.slot.path),
            )
        )

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def apply(self, record: cython.p_const_uchar, segment: LogSegment) -> cython.int:
        """Do what a record says."""
        header: cython.pointer(RecordHeader) = cython.cast(cython.pointer(RecordHeader), record)
        store: FileStore
        kind: cython.int = header.kind
        if kind == KIND_MESSAGE:
            return self.apply_message(record)
        if not body_ok(record):
            self.damaged(segment, f"a record of kind {kind} at {header.offset} has a damaged body")
            return 0
        if kind == KIND_STATE_PUT or kind == KIND_STATE_DELTA or kind == KIND_STATE_DELETE:
            return self.apply_state(record, segment)
        if kind in (KIND_CHECKPOINT, KIND_STREAM_DELETE, KIND_ERASE, KIND_ERASE_DONE):
            return 0
        store = self.store_of(header.stream)
        if store is None or header.segment < store.first_log_segment:
            return 0
        if kind == KIND_HEAD:
            last, last_ts = HEAD.unpack_from(body_of(record))
            stream = header.stream
            self.firsts[stream] = max(self.firsts.get(stream, 0), header.sequence)
            self.last_times[stream] = last_ts
            store.last_seq = max(store.last_seq, last)
        elif kind == KIND_SKIP:
            store.last_seq = max(store.last_seq, header.sequence)
        elif kind == KIND_DELETE or kind == KIND_LOST:
            for first, last in RUN.iter_unpack(body_of(record)):
                restore_removal(store, first, last)
                self.dropped.append((header.stream, first, last))
                if kind == KIND_DELETE:
                    removed_before(store, first, last)
                    if header.stream in self.watched:
                        self.watched[header.stream].append((first, last))
                    continue
                for sequence in range(first, last + 1):
                    store.lost[sequence] = LOST_BEFORE
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def apply_message(self, record: cython.p_const_uchar) -> cython.int:
        """Enter a message, unless the segments had its sequence. Where bytes of the log are gone,
        the sequences that they may have held are lost."""
        header: cython.pointer(RecordHeader) = cython.cast(cython.pointer(RecordHeader), record)
        store: FileStore = self.store_of(header.stream)
        sequence: cython.ulonglong = header.sequence
        if store is None or sequence <= store.last_seq or header.segment < store.first_log_segment:
            return 0
        if (self.gap_is_lost or self.near_damage) and sequence > store.last_seq + 1:
            for number in range(store.last_seq + 1, min(sequence, store.last_seq + LOST_MAX)):
                self.lose(store, number, "a part of the log is missing")
                self.gaps.append((store, number))
        if header.flags & FLAG_ERASED:
            store.last_seq = sequence
            store.last_ts = max(store.last_ts, header.timestamp)
            self.dropped.append((header.stream, sequence, sequence))
            return 0
        if not body_ok(record):
            self.lose(store, sequence, "its body in the log is damaged")
            set_size(store, header.sequence, header.length + COUNTED_EXTRA)
            return 0
        plain: cython.p_const_uchar = store.plain_body(record)
        if plain == cython.NULL:
            return self.lose(store, sequence, "its record in the log does not open")
        return restore_message(
            store,
            plain,
            header.subject_len,
            sequence,
            header.timestamp,
            cython.cast(cython.uint, store.plain_size(record)) - header.subject_len,
            header.header_len,
            cython.cast(cython.ulonglong, record),
            IN_LOG | packed_bits(record),
        )

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def apply_state(self, record: cython.p_const_uchar, segment: LogSegment) -> cython.int:
        """Put a state into the log's table, add to it, or delete it."""
        header: cython.pointer(RecordHeader) = cython.cast(cython.pointer(RecordHeader), record)
        body: bytes = body_of(record)
        a: cython.Py_ssize_t = header.subject_len
        b: cython.Py_ssize_t = a + header.header_len
        if header.kind != KIND_STATE_DELTA and (header.segment, header.offset) >= self.copied:
            self.touched.add((body[:a], body[a:b]))
        if header.kind == KIND_STATE_PUT:
            self.log.table.put(body[:a], body[a:b], body[b:], segment.number)
        elif header.kind == KIND_STATE_DELTA:
            self.log.table.delta(body[:a], body[a:b], body[b:], segment.number)
        else:
            self.log.table.delete(body[:a], body[a:b])
        return 0


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
