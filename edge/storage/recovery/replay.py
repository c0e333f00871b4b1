"""Recovery's reading of the log's records.

A record counts when its header verifies at its position; its body is verified before it is used. A
batch counts once a footer of it was read. What does not verify is skipped to the next record that
does, and the footer's account tells which messages are missing: they are marked lost, and
everything else is kept.
"""

import struct

import cython
from cython.cimports.headwater.edge.kernel.kernel import Msg
from cython.cimports.headwater.edge.storage.format.operation import OP_MESSAGE, Operation
from cython.cimports.headwater.edge.storage.format.record import (
    FILE_HEADER_BYTES,
    FLAG_COPY,
    FLAG_ERASED,
    FLAG_PART,
    HEADER_BYTES,
    KIND_ADOPT,
    KIND_BUNDLE,
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
    Adoption,
    RecordHeader,
    body_of,
    body_ok,
    bundled_size,
    find_record,
    header_ok,
    packed_bits,
    record_size,
)
from cython.cimports.headwater.edge.storage.index.index import IN_LOG
from cython.cimports.headwater.edge.storage.log.batch_writer import fill_record
from cython.cimports.headwater.edge.storage.log.commit_log import CommitLog
from cython.cimports.headwater.edge.storage.log.log_segment import LogSegment
from cython.cimports.headwater.edge.storage.recovery.restore import restore_message
from cython.cimports.headwater.edge.storage.recovery.unbundling import (
    find_bundled,
    room_of_bundle,
    unbundle,
)
from cython.cimports.headwater.edge.storage.segments.file_store import FileStore
from cython.cimports.libc.string import memcpy

from headwater.edge.storage.directory.metas import METAS_OWNER
from headwater.edge.storage.format.problem import Problem, ProblemKind
from headwater.edge.storage.log.batch_runs import LOG_RUN
from headwater.edge.storage.recovery.restore import restore_removal
from headwater.edge.storage.segments.loss import (
    COUNTED_EXTRA,
    LOST_BEFORE,
    LOST_MAX,
    removed_before,
    set_size,
    share_of,
)
from headwater.edge.storage.segments.manifest import MANIFESTS_OWNER
from headwater.edge.storage.segments.segment_files import RUN

LOG_FOOTER = struct.Struct("<QII")
HEAD = struct.Struct("<Qq")
# The longest owner of states that a survey looks at.
OWN_MAX = cython.declare(cython.Py_ssize_t, max(len(MANIFESTS_OWNER), len(METAS_OWNER)))


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


@cython.cfunc
@cython.exceptval(check=False)
def room_of_records(
    at: cython.p_const_uchar, end: cython.p_const_uchar, last: cython.ulonglong
) -> cython.Py_ssize_t:
    """Bytes of the records of messages of an entry whose sequence is above `last`."""
    need: cython.Py_ssize_t = 0
    op: Operation
    while at < end:
        memcpy(cython.address(op), at, cython.sizeof(Operation))
        at += cython.sizeof(Operation) + op.length
        if op.sequence > last:
            need += record_size(op.length)
    return need


@cython.cfunc
@cython.exceptval(-1, check=False)
def restore_held(
    store: FileStore,
    op: cython.pointer(Operation),
    text: cython.p_const_uchar,
    made: cython.ulonglong,
) -> cython.int:
    """Make the record of an entry's message at an address, and enter it."""
    m: Msg
    timestamp: cython.longlong = max(op.timestamp, store.last_ts)
    m.subject = text
    m.subject_len = op.first
    m.body = text + op.first
    m.header_len = op.header_len
    m.size = op.length - op.first
    fill_record(
        cython.cast(cython.p_uchar, made),
        store.stream_id,
        cython.address(m),
        timestamp,
        op.sequence,
    )
    return restore_message(
        store,
        text,
        op.first,
        op.sequence,
        timestamp,
        op.length - op.first,
        op.header_len,
        made,
        IN_LOG,
    )


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
                    if records_in(record) != records or damaged or self.unsure:
                        self.check_runs(record, damaged)
                    for store, number in self.gaps:
                        set_size(
                            store, number, share_of(damaged or self.unknown_bytes, len(self.gaps))
                        )
                    self.gaps = []
                    self.near_damage = self.unsure = False
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
        if kind == KIND_BUNDLE:
            return self.apply_bundle(record, segment)
        if kind == KIND_ADOPT and body_ok(record):
            return self.apply_adoption(header, segment)
        if not body_ok(record):
            self.unsure = self.unsure or kind == KIND_ADOPT
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
        self.lose_before(store, sequence)
        if header.flags & FLAG_ERASED:
            store.last_seq = sequence
            store.last_ts = max(store.last_ts, header.timestamp)
            self.dropped.append((header.stream, sequence, sequence))
            return 0
        if not body_ok(record):
            self.lose(store, sequence, "its body in the log is damaged")
            set_size(store, header.sequence, header.length + COUNTED_EXTRA)
            return 0
        return self.enter(store, record)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def enter(self, store: FileStore, record: cython.p_const_uchar) -> cython.int:
        """Enter a message whose record was verified."""
        header: cython.pointer(RecordHeader) = cython.cast(cython.pointer(RecordHeader), record)
        sequence: cython.ulonglong = header.sequence
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
    def apply_bundle(self, record: cython.p_const_uchar, segment: LogSegment) -> cython.int:
        """Enter messages of a bundle, unless the segments had them. What does not verify is passed
        over to the next message that does, and what is missing is lost."""
        header: cython.pointer(RecordHeader) = cython.cast(cython.pointer(RecordHeader), record)
        store: FileStore = self.store_of(header.stream)
        after: cython.ulonglong = header.sequence + header.subject_len
        sequence: cython.ulonglong = header.sequence
        found: cython.ulonglong = sequence
        at: cython.Py_ssize_t = HEADER_BYTES + header.header_len
        begin: cython.ulonglong
        made: cython.ulonglong
        if (
            store is None
            or after <= store.last_seq + 1
            or header.segment < store.first_log_segment
        ):
            return 0
        begin = made = cython.cast(
            cython.ulonglong, segment.adoptable().reserve(room_of_bundle(header))
        )
        while sequence < after:
            at = find_bundled(record, at, sequence, cython.address(found))
            while sequence < found:
                if sequence > store.last_seq:
                    self.lose(store, sequence, "its body in the log is damaged")
                    set_size(store, sequence, header.length // header.subject_len)
                sequence += 1
            if sequence == after:
                break
            if sequence > store.last_seq:
                self.lose_before(store, sequence)
                made += self.enter_bundled(store, record, at, sequence, made)
            at += bundled_size(record + at)
            sequence += 1
        segment.adopted.ranges[header.offset] = (begin, made)
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def enter_bundled(
        self,
        store: FileStore,
        record: cython.p_const_uchar,
        at: cython.Py_ssize_t,
        sequence: cython.ulonglong,
        made: cython.ulonglong,
    ) -> cython.Py_ssize_t:
        """Enter a message of a bundle, which verifies, with a record at the address `made`; returns
        how many bytes that takes, none if the message was erased."""
        header: cython.pointer(RecordHeader) = cython.cast(cython.pointer(RecordHeader), made)
        unbundle(cython.cast(cython.p_uchar, made), record, at, sequence)
        if header.flags & FLAG_ERASED:
            store.last_seq = sequence
            store.last_ts = max(store.last_ts, header.timestamp)
            self.dropped.append((header.stream, sequence, sequence))
            return 0
        self.enter(store, cython.cast(cython.p_const_uchar, made))
        return record_size(header.length)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def lose_before(self, store: FileStore, sequence: cython.ulonglong) -> cython.int:
        """Mark what is missing ahead of a message as lost, where bytes of the log are gone."""
        if (self.gap_is_lost or self.near_damage) and sequence > store.last_seq + 1:
            for number in range(store.last_seq + 1, min(sequence, store.last_seq + LOST_MAX)):
                self.lose(store, number, "a part of the log is missing")
                self.gaps.append((store, number))
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def apply_adoption(
        self, header: cython.pointer(RecordHeader), segment: LogSegment
    ) -> cython.int:
        """Enter messages that stand in an entry of the same segment, unless the stream's segments
        had them."""
        store: FileStore = self.store_of(header.stream)
        adoption: cython.pointer(Adoption)
        at: cython.p_const_uchar
        end: cython.p_const_uchar
        made: cython.ulonglong
        begin: cython.ulonglong
        op: Operation
        adoption = cython.cast(
            cython.pointer(Adoption), cython.cast(cython.p_const_uchar, header) + HEADER_BYTES
        )
        if (
            store is None
            or adoption.last <= store.last_seq
            or header.segment < store.first_log_segment
        ):
            return 0
        if not self.holds(segment, header, adoption):
            return self.lose_adopted(store, header.sequence, adoption)
        at = segment.image + adoption.start
        end = at + adoption.length
        begin = made = cython.cast(
            cython.ulonglong,
            segment.adoptable().reserve(room_of_records(at, end, store.last_seq)),
        )
        while at < end:
            memcpy(cython.address(op), at, cython.sizeof(Operation))
            at += cython.sizeof(Operation)
            if op.sequence > store.last_seq:
                self.lose_before(store, op.sequence)
                restore_held(store, cython.address(op), at, made)
                made += record_size(op.length)
            at += op.length
        segment.adopted.ranges[header.offset] = (begin, made)
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def holds(
        self,
        segment: LogSegment,
        header: cython.pointer(RecordHeader),
        adoption: cython.pointer(Adoption),
    ) -> cython.bint:
        """Whether the record that an adoption names is there and sound, and what it names is heads
        and messages."""
        record: cython.p_const_uchar
        held: cython.pointer(RecordHeader)
        at: cython.Py_ssize_t = adoption.start
        end: cython.Py_ssize_t = at + adoption.length
        op: Operation
        place: tuple = (segment.number, adoption.record)
        if adoption.record >= header.offset or adoption.record < FILE_HEADER_BYTES:
            return False
        record = segment.image + adoption.record
        held = cython.cast(cython.pointer(RecordHeader), record)
        if place != self.sound:
            if (
                not header_ok(
                    record,
                    header.offset - adoption.record,
                    self.log.seed,
                    segment.number,
                    adoption.record,
                )
                or held.kind not in (KIND_STATE_DELTA, KIND_STATE_PUT)
                or not body_ok(record)
            ):
                return False
            self.sound = place
        if (
            at < cython.cast(cython.Py_ssize_t, adoption.record) + HEADER_BYTES
            or end > cython.cast(cython.Py_ssize_t, adoption.record) + HEADER_BYTES + held.length
        ):
            return False
        while at + cython.cast(cython.Py_ssize_t, cython.sizeof(Operation)) <= end:
            memcpy(cython.address(op), segment.image + at, cython.sizeof(Operation))
            at += cython.sizeof(Operation) + op.length
            if (
                op.kind != OP_MESSAGE
                or at > end
                or cython.cast(cython.ulonglong, op.first) + op.header_len > op.length
            ):
                return False
        return at == end

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def lose_adopted(
        self,
        store: FileStore,
        first: cython.ulonglong,
        adoption: cython.pointer(Adoption),
    ) -> cython.int:
        """Messages are lost with the entry that holds them."""
        last: cython.ulonglong = adoption.last
        for number in range(max(first, store.last_seq + 1), last + 1):
            self.lose(store, number, "the entry that holds it is damaged in the log")
            set_size(store, number, adoption.length // (last + 1 - first))
        return 0

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
