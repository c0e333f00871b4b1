"""The batch of the commit log that is being filled: records and footers, encoded straight into the
image of the active segment.

Where there is room, when a batch ends and what its end releases is the log's business.
"""

import struct

import cython
from cython.cimports.cpython.bytes import (
    PyBytes_AS_STRING,
    PyBytes_FromStringAndSize,
    PyBytes_GET_SIZE,
)
from cython.cimports.headwater.edge.kernel.kernel import Kernel, Msg
from cython.cimports.headwater.edge.storage.format.crc import crc32c
from cython.cimports.headwater.edge.storage.format.record import (
    BUNDLED_HEADERS,
    BUNDLED_STEM,
    FILE_HEADER_BYTES,
    FLAG_COPY,
    HEADER_BYTES,
    KIND_ADOPT,
    KIND_BUNDLE,
    KIND_FOOTER,
    KIND_MESSAGE,
    Adoption,
    Bundled,
    RecordHeader,
    bundled_crc,
    record_size,
    seal_header,
)
from cython.cimports.headwater.edge.storage.log.adopted_records import AdoptedRecords
from cython.cimports.headwater.edge.storage.log.batch_runs import BatchRuns
from cython.cimports.headwater.edge.storage.log.commit_thread import BLOCK_BYTES, NO_SYNC
from cython.cimports.headwater.edge.storage.log.logged_store import LoggedStore
from cython.cimports.libc.string import memcmp, memcpy, memset

from headwater.edge.storage.format.errors import InvariantBroken, StoreClosed

# Begin of a footer's body: batch number, offset of the batch's first record, records.
FOOTER = struct.Struct("<QII")
# Messages of one batch that stand in bundles: where there are more, a header costs little.
BUNDLED_MAX = cython.declare(cython.Py_ssize_t, 64)
# Subject, headers and payload of such a message at most.
BUNDLED_BYTES_MAX = cython.declare(cython.Py_ssize_t, 2048)
# Only a stream whose syncs wait as long as this gathers messages.
BUNDLE_DELAY_NS_MIN = cython.declare(cython.longlong, 1000000)
# Length of headers, ahead of the body of a message that has some.
HEADERS_BYTES = cython.declare(cython.Py_ssize_t, 2)
# A stream of which a bundle had fewer gets its next message as a record of its own.
BUNDLE_MIN = cython.declare(cython.uint, 3)
# Beginning and end that subjects have in common are no stem when they are shorter together.
STEM_MIN = cython.declare(cython.Py_ssize_t, 4)
# Digits that end what subjects begin with, or begin what they end with: so many may soon differ.
DIGITS_LEFT = cython.declare(cython.Py_ssize_t, 2)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def fill_head(
    header: cython.pointer(RecordHeader),
    stream: cython.ulonglong,
    m: cython.pointer(Msg),
    timestamp: cython.longlong,
    sequence: cython.ulonglong,
    length: cython.Py_ssize_t,
) -> cython.void:
    """Set what a message's head says of it; `length` is that of the body."""
    header.kind = KIND_MESSAGE
    header.flags = 0
    header.subject_len = cython.cast(cython.uint, m.subject_len)
    header.header_len = cython.cast(cython.uint, m.header_len)
    header.sequence = sequence
    header.timestamp = timestamp
    header.stream = stream
    header.length = cython.cast(cython.uint, length)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def fill_record(
    at: cython.p_uchar,
    stream: cython.ulonglong,
    m: cython.pointer(Msg),
    timestamp: cython.longlong,
    sequence: cython.ulonglong,
) -> cython.void:
    """Make a message's record as it is in memory only: it has no place in a file."""
    header: cython.pointer(RecordHeader) = cython.cast(cython.pointer(RecordHeader), at)
    length: cython.Py_ssize_t = m.subject_len + m.size
    memset(at, 0, HEADER_BYTES)
    fill_head(header, stream, m, timestamp, sequence, length)
    memcpy(at + HEADER_BYTES, m.subject, m.subject_len)
    memcpy(at + HEADER_BYTES + m.subject_len, m.body, m.size)
    memset(at + HEADER_BYTES + length, 0, record_size(length) - HEADER_BYTES - length)
    header.body_crc = crc32c(0, at + HEADER_BYTES, length)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def common_length(
    one: cython.p_const_uchar,
    other: cython.p_const_uchar,
    step: cython.Py_ssize_t,
    room: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """How many bytes, `room` at most, are the same from both places on, in steps of 1 or -1."""
    count: cython.Py_ssize_t = 0
    while count < room and one[count * step] == other[count * step]:
        count += 1
    return count


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def digits(
    at: cython.p_const_uchar, step: cython.Py_ssize_t, room: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """How many digits, of `room` bytes and DIGITS_LEFT at most, stand at `at` and on from there."""
    count: cython.Py_ssize_t = 0
    while count < room and count < DIGITS_LEFT and 48 <= at[count * step] <= 57:
        count += 1
    return count


@cython.cclass
class BatchWriter:
    """See the module."""

    def __init__(self, kernel: Kernel, seed: int):
        self.kernel = kernel
        self.seed = seed
        self.batch = 1
        self.runs = BatchRuns()
        self.stores = {}
        self.touched = []
        self.batch_delay_ns = NO_SYNC

    @cython.cfunc
    @cython.exceptval(check=False)
    def footer_room(self, more: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Bytes of both footers when `more` runs come to those of the batch."""
        return 2 * record_size(FOOTER_BYTES + RUN_BYTES * (self.runs.count + more))

    @cython.cfunc
    def reserve(self, length: cython.Py_ssize_t, message: cython.bint) -> cython.p_uchar:
        """Where the next record goes, with room for it and for the batch's footers; the log
        that extends this makes it. Raises StoreFull, StoreFailed."""
        raise StoreClosed("there is no log")

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def finish(self, at: cython.p_uchar, length: cython.Py_ssize_t) -> cython.int:
        """Seal a record whose fields and body are in place."""
        header: cython.pointer(RecordHeader) = cython.cast(cython.pointer(RecordHeader), at)
        size: cython.Py_ssize_t = record_size(length)
        if at != self.active.image + self.active.end or (
            self.active.end + size > self.active.capacity
        ):
            raise InvariantBroken(f"a record of {size} bytes is not at the log's end")
        memset(at + HEADER_BYTES + length, 0, size - HEADER_BYTES - length)
        header.length = cython.cast(cython.uint, length)
        header.body_crc = crc32c(0, at + HEADER_BYTES, length)
        header.segment = self.active.number
        header.offset = cython.cast(cython.uint, self.active.end)
        header.chain = self.chain
        seal_header(header, self.seed)
        self.chain = header.header_crc
        self.newest_at = self.active.end
        self.active.end += size
        self.batch_records += 1
        self.written += size
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def touch(self, store: LoggedStore) -> cython.int:
        """Have the store told when this batch is durable."""
        if store.touched_batch != self.batch:
            store.touched_batch = self.batch
            self.touched.append(store)
            if store.sync_delay_ns < self.batch_delay_ns:
                self.batch_delay_ns = store.sync_delay_ns
            if store.acks_written:
                self.batch_notify = True
            else:
                self.batch_strict = True
        return 0

    @cython.cfunc
    @cython.exceptval(0, check=False)
    def write_message(
        self,
        store: LoggedStore,
        m: cython.pointer(Msg),
        timestamp: cython.longlong,
        sequence: cython.ulonglong,
    ) -> cython.ulonglong:
        """Append a message; returns the address of its record."""
        if store is self.adopter:
            return self.write_adopted(store, m, timestamp, sequence)
        length: cython.Py_ssize_t
        at: cython.p_uchar
        header: cython.pointer(RecordHeader)
        if self.bundles and self.bundled_soon(store, m, timestamp, sequence):
            return self.write_bundled(store, m, timestamp, sequence)
        length = store.body_size(m)
        at = self.reserve(length, True)
        header = cython.cast(cython.pointer(RecordHeader), at)
        fill_head(header, store.stream_id, m, timestamp, sequence, length)
        store.write_body(header, m)
        self.runs.add(store, self.batch, sequence)
        self.touch(store)
        self.finish(at, length)
        self.alone_stream = store.stream_id
        self.alone_sequence = sequence
        self.alone_end = self.active.end
        return cython.cast(cython.ulonglong, at)

    @cython.cfunc
    @cython.exceptval(check=False)
    def bundled_soon(
        self,
        store: LoggedStore,
        m: cython.pointer(Msg),
        timestamp: cython.longlong,
        sequence: cython.ulonglong,
    ) -> cython.bint:
        """Whether a message goes to a bundle: the one that is open, or one that it begins. It does
        when it is short, its batch is gathered and it follows one of its stream."""
        if (
            self.joined >= BUNDLED_MAX
            or store.acks_written
            or store.sync_delay_ns < BUNDLE_DELAY_NS_MIN
            or m.subject_len > 0xFF
            or cython.cast(cython.Py_ssize_t, m.subject_len) + m.size > BUNDLED_BYTES_MAX
        ):
            return False
        return (
            self.continues(store, timestamp, sequence)
            or self.likely == store.stream_id
            or (
                self.alone_stream == store.stream_id
                and self.alone_sequence + 1 == sequence
                and self.alone_end == self.active.end
            )
        )

    @cython.cfunc
    @cython.exceptval(check=False)
    def continues(
        self, store: LoggedStore, timestamp: cython.longlong, sequence: cython.ulonglong
    ) -> cython.bint:
        """Whether a message may stand in the bundle that is open."""
        header: cython.pointer(RecordHeader)
        if not self.bundle_at:
            return False
        header = cython.cast(cython.pointer(RecordHeader), self.active.image + self.bundle_at)
        return (
            header.stream == store.stream_id
            and header.sequence + header.subject_len == sequence
            and 0 <= timestamp - header.timestamp <= 0xFFFFFFFF
        )

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def extend(self, need: cython.Py_ssize_t) -> cython.bint:
        """Whether `need` bytes fit into the bundle that is open. Raises StoreFull, StoreFailed."""
        raise StoreClosed("there is no log")

    @cython.cfunc
    @cython.exceptval(0, check=False)
    def write_bundled(
        self,
        store: LoggedStore,
        m: cython.pointer(Msg),
        timestamp: cython.longlong,
        sequence: cython.ulonglong,
    ) -> cython.ulonglong:
        """Append a message to a bundle; returns the address of its record, which is in memory."""
        length: cython.Py_ssize_t = store.body_size(m)
        before: cython.Py_ssize_t = HEADERS_BYTES * (m.header_len > 0)
        need: cython.Py_ssize_t = cython.sizeof(Bundled) + before + length
        size: cython.Py_ssize_t = record_size(length)
        made: cython.p_uchar = cython.NULL
        if self.continues(store, timestamp, sequence) and self.extend(need):
            made = self.active.adopted.reserve(size)
            if made != self.bundle_end:
                made = cython.NULL  # records of a bundle stand side by side
        if made == cython.NULL:
            self.open_bundle(store, m, length, timestamp, sequence)
            made = self.active.adoptable().reserve(size)
            self.bundle_begin = self.bundle_end = made
        fill_head(
            cython.cast(cython.pointer(RecordHeader), made),
            store.stream_id,
            m,
            timestamp,
            sequence,
            length,
        )
        store.write_body(cython.cast(cython.pointer(RecordHeader), made), m)
        self.bundle_end = made + size
        self.join_bundle(made)
        self.runs.add(store, self.batch, sequence)
        self.touch(store)
        return cython.cast(cython.ulonglong, made)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def open_bundle(
        self,
        store: LoggedStore,
        m: cython.pointer(Msg),
        length: cython.Py_ssize_t,
        timestamp: cython.longlong,
        sequence: cython.ulonglong,
    ) -> cython.int:
        """Begin a bundle; its first message has a body of `length` bytes. How all subjects of the
        stream's last bundle began and ended, as far as this one does, is its stem. Raises
        StoreFull, StoreFailed."""
        subject_len: cython.Py_ssize_t = m.subject_len
        stem: cython.Py_ssize_t = 0
        front: cython.Py_ssize_t = 0
        back: cython.Py_ssize_t = 0
        at: cython.p_uchar
        header: cython.pointer(RecordHeader)
        if (
            self.stems
            and self.common_stream == store.stream_id
            and length == subject_len + m.size
        ):
            front = common_length(self.common, m.subject, 1, min(self.common_front, subject_len))
            back = common_length(
                self.common + self.common_len - 1,
                m.subject + subject_len - 1,
                -1,
                min(self.common_back, subject_len - front),
            )
            if front < subject_len:
                front -= digits(m.subject + front - 1, -1, front)
                back -= digits(m.subject + subject_len - back, 1, back)
            if front + back >= STEM_MIN:
                stem = 1 + front + back
        at = self.reserve(stem + cython.sizeof(Bundled) + HEADERS_BYTES + length, True)
        header = cython.cast(cython.pointer(RecordHeader), at)
        header.kind = KIND_BUNDLE
        header.flags = 0
        header.subject_len = 0
        header.header_len = cython.cast(cython.uint, stem)
        header.sequence = sequence
        header.timestamp = timestamp
        header.stream = store.stream_id
        header.segment = self.active.number
        header.offset = cython.cast(cython.uint, self.active.end)
        if stem:
            at[HEADER_BYTES] = cython.cast(cython.uchar, front)
            memcpy(at + HEADER_BYTES + 1, m.subject, front)
            memcpy(at + HEADER_BYTES + 1 + front, m.subject + subject_len - back, back)
        self.common_stream = 0
        self.bundle_at = self.active.end
        self.bundle_begin = self.bundle_end = cython.NULL
        self.active.end += HEADER_BYTES + stem
        self.written += HEADER_BYTES + stem
        self.batch_records += 1
        return 0

    @cython.cfunc
    @cython.exceptval(check=False)
    def share(self, header: cython.pointer(RecordHeader), record: cython.p_uchar) -> cython.uint:
        """Remember what the subjects of a bundle have in common, with that of a message's record;
        returns how much of this one is in the bundle's stem."""
        message: cython.pointer(RecordHeader) = cython.cast(cython.pointer(RecordHeader), record)
        stem: cython.p_uchar = cython.cast(cython.p_uchar, header) + HEADER_BYTES
        subject: cython.p_uchar = record + HEADER_BYTES
        length: cython.Py_ssize_t = message.subject_len
        left: cython.Py_ssize_t = cython.cast(cython.Py_ssize_t, header.header_len) - 1
        front: cython.Py_ssize_t
        if message.flags or length > 0xFF:  # its subject cannot be seen
            return 0
        if self.common_stream != message.stream:
            self.common_stream = message.stream
            self.common_len = self.common_front = self.common_back = length
            memcpy(self.common, subject, length)
        else:
            self.common_front = common_length(
                self.common, subject, 1, min(self.common_front, length)
            )
            self.common_back = common_length(
                self.common + self.common_len - 1,
                subject + length - 1,
                -1,
                min(self.common_back, length),
            )
        if left < 0 or left > length:
            return 0
        front = stem[0]
        if memcmp(stem + 1, subject, front) or memcmp(
            stem + 1 + front, subject + length - (left - front), left - front
        ):
            return 0
        return cython.cast(cython.uint, left)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def join_bundle(self, record: cython.p_uchar) -> cython.int:
        """Append what a message's record, in memory, says to the bundle; the record gets its
        place: the offsets of its head and (`chain`) of the bundle, and (`header_crc`) how much of
        its subject is in the stem."""
        message: cython.pointer(RecordHeader) = cython.cast(cython.pointer(RecordHeader), record)
        header: cython.pointer(RecordHeader) = cython.cast(
            cython.pointer(RecordHeader), self.active.image + self.bundle_at
        )
        at: cython.p_uchar = self.active.image + self.active.end
        length: cython.Py_ssize_t = message.length
        header_len: cython.ushort = cython.cast(cython.ushort, message.header_len)
        before: cython.Py_ssize_t = HEADERS_BYTES * (header_len > 0)
        left: cython.uint = self.share(header, record)
        middle: cython.Py_ssize_t = message.subject_len - left if left else 0
        front: cython.Py_ssize_t
        to: cython.p_uchar = at + cython.sizeof(Bundled) + before
        size: cython.Py_ssize_t = cython.sizeof(Bundled) + before + length - left
        head: Bundled
        message.magic = 0
        message.segment = self.active.number
        message.offset = cython.cast(cython.uint, self.active.end)
        message.chain = cython.cast(cython.uint, self.bundle_at)
        message.header_crc = left
        message.body_crc = crc32c(0, record + HEADER_BYTES, length)
        memset(record + HEADER_BYTES + length, 0, record_size(length) - HEADER_BYTES - length)
        head.length = cython.cast(cython.ushort, before + length - left)
        head.flags = cython.cast(cython.uchar, message.flags)
        if header_len:
            head.flags |= BUNDLED_HEADERS
        if left:
            head.flags |= BUNDLED_STEM
        head.subject_len = cython.cast(cython.uchar, message.subject_len)
        head.later = cython.cast(cython.uint, message.timestamp - header.timestamp)
        memcpy(at, cython.address(head), cython.sizeof(Bundled))
        memcpy(at + cython.sizeof(Bundled), cython.address(header_len), before)
        if left:
            front = self.active.image[self.bundle_at + HEADER_BYTES]
            memcpy(to, record + HEADER_BYTES + front, middle)
            to += middle
            middle += left
        memcpy(to, record + HEADER_BYTES + middle, length - middle)
        head.crc = bundled_crc(
            self.active.image + self.bundle_at, self.active.end - self.bundle_at, message.sequence
        )
        memcpy(at, cython.address(head), cython.sizeof(Bundled))
        header.subject_len += 1
        self.active.end += size
        self.written += size
        self.joined += 1
        return 0

    @cython.cfunc
    @cython.exceptval(check=False)
    def bundle_head(self) -> cython.Py_ssize_t:
        """Bytes of the bundle that is open ahead of its messages; 0 when none is."""
        if not self.bundle_at:
            return 0
        return (
            HEADER_BYTES
            + cython.cast(
                cython.pointer(RecordHeader), self.active.image + self.bundle_at
            ).header_len
        )

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def close_bundle(self) -> cython.int:
        """Seal the bundle that is open: something else follows."""
        header: cython.pointer(RecordHeader)
        start: cython.Py_ssize_t = self.bundle_at
        if not start:
            return 0
        header = cython.cast(cython.pointer(RecordHeader), self.active.image + start)
        self.active.adoptable().ranges[start] = (
            cython.cast(cython.ulonglong, self.bundle_begin),
            cython.cast(cython.ulonglong, self.bundle_end),
        )
        length: cython.Py_ssize_t = self.active.end - start - HEADER_BYTES
        self.likely = header.stream if header.subject_len >= BUNDLE_MIN else 0
        self.bundle_at = 0
        self.batch_records -= 1
        self.written -= HEADER_BYTES + length
        self.active.end = start
        return self.finish(self.active.image + start, length)

    def begin_entry(self, segment: int, record: int, at: int) -> None:
        """An entry is applied next that the log holds already: in which segment, the offset of the
        record that holds it, and of the entry's first byte. 0, 0, 0: it stands nowhere."""
        self.entry_segment = segment
        self.entry_record = record
        self.entry_at = at

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def adopt(
        self,
        store: LoggedStore,
        start: cython.uint,
        length: cython.uint,
        need: cython.Py_ssize_t,
        first: cython.ulonglong,
        last: cython.ulonglong,
    ) -> cython.bint:
        """Have messages of `store`, which are appended next, be those of the entry that is applied;
        False when their records are to be written. Heads and messages have `length` bytes from
        `start` on, their records `need`; the sequences are all from `first` to `last`. Raises
        StoreFailed."""
        adoption: Adoption
        kept: AdoptedRecords
        room: cython.Py_ssize_t = self.active.capacity - self.active.end
        own: cython.Py_ssize_t = record_size(cython.sizeof(Adoption)) + self.footer_room(1)
        if (
            self.entry_segment != self.active.number
            or store.packer.packs
            or own + BLOCK_BYTES > room
        ):
            self.entry_segment = 0  # nor is the rest of this entry worth a look
            return False
        adoption.record = self.entry_record
        adoption.start = self.entry_at + start
        adoption.length = length
        adoption.unused = 0
        adoption.last = last
        self.write_own(
            store,
            KIND_ADOPT,
            first,
            PyBytes_FromStringAndSize(
                cython.cast(cython.p_char, cython.address(adoption)), cython.sizeof(Adoption)
            ),
        )
        self.touch(store)
        kept = self.active.adoptable()
        self.adopted_at = kept.reserve(need)
        self.adopted_end = self.adopted_at + need
        kept.ranges[self.newest_at] = (
            cython.cast(cython.ulonglong, self.adopted_at),
            cython.cast(cython.ulonglong, self.adopted_end),
        )
        self.adopter = store
        return True

    @cython.cfunc
    @cython.exceptval(0, check=False)
    def write_adopted(
        self,
        store: LoggedStore,
        m: cython.pointer(Msg),
        timestamp: cython.longlong,
        sequence: cython.ulonglong,
    ) -> cython.ulonglong:
        """Make the record, in memory, of a message that the segment has; returns its address."""
        length: cython.Py_ssize_t = m.subject_len + m.size
        size: cython.Py_ssize_t = record_size(length)
        at: cython.p_uchar = self.adopted_at
        if at + size > self.adopted_end:
            raise InvariantBroken(f"message {sequence} is not one that was adopted")
        fill_record(at, store.stream_id, m, timestamp, sequence)
        self.adopted_at += size
        self.runs.add(store, self.batch, sequence)
        self.touch(store)
        return cython.cast(cython.ulonglong, at)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def end_adoption(self) -> cython.int:
        """Messages that are appended next are written again."""
        whole: cython.bint = self.adopted_at == self.adopted_end
        self.adopter = None
        if not whole:
            raise InvariantBroken("not all messages of an entry were stored")
        return 0

    @cython.ccall
    @cython.exceptval(0, check=False)
    def write_record(
        self,
        kind: cython.int,
        stream: cython.ulonglong,
        sequence: cython.ulonglong,
        first: bytes,
        second: bytes,
        rest: bytes,
        delay_ns: cython.longlong = 0,
        more: bytes = b"",
    ) -> cython.ulonglong:
        """Append a record that is no message, to be synced within `delay_ns`; returns its lsn.
        `more` follows `rest`, as if it were part of it."""
        a: cython.Py_ssize_t = PyBytes_GET_SIZE(first)
        b: cython.Py_ssize_t = PyBytes_GET_SIZE(second)
        c: cython.Py_ssize_t = PyBytes_GET_SIZE(rest)
        d: cython.Py_ssize_t = PyBytes_GET_SIZE(more)
        at: cython.p_uchar
        header: cython.pointer(RecordHeader)
        if self.closed:
            raise StoreClosed("the log is closed")
        at = self.reserve(a + b + c + d, False)
        header = cython.cast(cython.pointer(RecordHeader), at)
        header.kind = cython.cast(cython.uchar, kind)
        header.flags = 0
        header.subject_len = cython.cast(cython.uint, a)
        header.header_len = cython.cast(cython.uint, b)
        header.sequence = sequence
        header.timestamp = self.kernel.now_ns
        header.stream = stream
        memcpy(at + HEADER_BYTES, PyBytes_AS_STRING(first), a)
        memcpy(at + HEADER_BYTES + a, PyBytes_AS_STRING(second), b)
        memcpy(at + HEADER_BYTES + a + b, PyBytes_AS_STRING(rest), c)
        memcpy(at + HEADER_BYTES + a + b + c, PyBytes_AS_STRING(more), d)
        self.finish(at, a + b + c + d)
        if delay_ns < self.batch_delay_ns:
            self.batch_delay_ns = delay_ns
        return self.batch

    @cython.cfunc
    @cython.exceptval(0, check=False)
    def write_own(
        self, store: LoggedStore, kind: cython.int, at: cython.ulonglong, body: bytes
    ) -> cython.ulonglong:
        """Append a record of a stream, to be synced when its messages are; returns its lsn."""
        return self.write_record(kind, store.stream_id, at, b"", b"", body, store.sync_delay_ns)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def write_again(self, old: cython.p_uchar) -> cython.int:
        """Write a record of a segment once more; messages only when they are still wanted."""
        source: cython.pointer(RecordHeader) = cython.cast(cython.pointer(RecordHeader), old)
        store: LoggedStore
        at: cython.p_uchar
        length: cython.Py_ssize_t = source.length
        if source.kind != KIND_MESSAGE:
            at = self.reserve(length, False)
            memcpy(at, old, HEADER_BYTES + length)
            return self.finish(at, length)
        store = self.stores.get(source.stream)
        if store is None:
            return 0
        at = self.reserve(length, False)
        if not store.moved(
            source.sequence,
            cython.cast(cython.ulonglong, old),
            cython.cast(cython.ulonglong, at),
        ):
            return 0
        memcpy(at, old, HEADER_BYTES + length)
        self.runs.add(store, self.batch, source.sequence)
        self.touch(store)
        return self.finish(at, length)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def write_footers(
        self, flags: cython.int, align: cython.Py_ssize_t, synced: cython.ulonglong
    ) -> cython.int:
        """End the batch with its footer, and a copy of it with zeros up to the next multiple of
        `align`. `synced`: the newest batch known to be on the device."""
        self.write_footer(flags, BLOCK_BYTES, synced)
        return self.write_footer(flags | FLAG_COPY, align, synced)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def write_footer(
        self, flags: cython.int, align: cython.Py_ssize_t, synced: cython.ulonglong
    ) -> cython.int:
        """Append one footer: what the batch holds, run by run. It is no record of the batch."""
        at: cython.p_uchar = self.active.image + self.active.end
        header: cython.pointer(RecordHeader) = cython.cast(cython.pointer(RecordHeader), at)
        size: cython.Py_ssize_t = self.runs.count * RUN_BYTES
        length: cython.Py_ssize_t = FOOTER_BYTES + size
        filling: cython.Py_ssize_t = 0
        begin: bytes = FOOTER.pack(
            self.batch, max(self.batch_start, FILE_HEADER_BYTES), self.batch_records
        )
        header.kind = KIND_FOOTER
        header.flags = cython.cast(cython.ushort, flags)
        header.subject_len = cython.cast(cython.uint, length)
        header.header_len = 0
        header.sequence = self.batch
        header.timestamp = self.kernel.now_ns
        header.stream = synced
        memcpy(at + HEADER_BYTES, PyBytes_AS_STRING(begin), FOOTER_BYTES)
        if size:
            memcpy(at + HEADER_BYTES + FOOTER_BYTES, self.runs.rows, size)
        if flags & FLAG_COPY:
            filling = -(self.active.end + record_size(length)) & (align - 1)
            memset(at + HEADER_BYTES + length, 0, filling)
        self.finish(at, length + filling)
        self.batch_records -= 1
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def next_batch(self) -> cython.int:
        """Begin a batch behind what is written."""
        self.batch += 1
        self.batch_start = self.active.end
        self.batch_records = 0
        self.joined = 0
        self.runs.count = 0
        return 0
