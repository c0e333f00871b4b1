"""Batches of direct gets (ADR-31): messages in order, or the last ones of many subjects.

What a request asks for is sent in parts, for it may be a great deal. A first part goes at once; of
all batches of a node that go on, one sends a part in each turn. A batch waits while its receiver is
slow, and ends when nobody listens any more.

Where a batch ends is decided when it begins: what is stored meanwhile is not in it, and only counts
as pending.
"""

from collections import deque

import cython
from cython.cimports.cpython.bytes import (
    PyBytes_AS_STRING,
    PyBytes_FromStringAndSize,
    PyBytes_GET_SIZE,
)
from cython.cimports.headwater.edge.jetstream.read.direct_body import BatchPlace, direct_body
from cython.cimports.headwater.edge.jetstream.stream.stream import Stream
from cython.cimports.headwater.edge.kernel.kernel import MADE, Endpoint, Kernel, Msg, Task
from cython.cimports.headwater.edge.storage.index.filter import Filter
from cython.cimports.headwater.edge.storage.index.store import Record
from cython.cimports.libc.string import memset

from headwater.edge.storage.format.errors import Damaged

# What one part sends and looks at, so that it holds the loop for well under a millisecond.
PART_BYTES = cython.declare(cython.Py_ssize_t, 256 << 10)
PART_ROWS = cython.declare(cython.int, 1024)
SCAN_MAX = cython.declare(cython.ulonglong, 1 << 16)
# About so many subjects are compared with a new filter in one turn.
SWEEP_STEPS = 20_000


@cython.final
@cython.cclass
class DirectTurns(Task):
    """Batches of a node that go on: one of them sends a part in each turn."""

    def __init__(self, kernel: Kernel):
        self.kernel = kernel
        self.ready = deque()

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def join(self, batch: DirectBatch) -> cython.int:
        self.ready.append(batch)
        return self.kernel.schedule_later(self)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def run(self) -> cython.int:
        batch: DirectBatch
        if self.ready:
            batch = self.ready.popleft()
            try:
                batch.go_on()
            finally:
                if self.ready:
                    self.kernel.schedule_later(self)
        return 0


@cython.final
@cython.cclass
class DirectBatch(Task):
    """One batch. `on_end()` is called once, when nothing more will be sent.

    It sends at most `count` messages, and none behind the one with which `room` bytes are passed.
    """

    def __init__(self, stream: Stream, turns: DirectTurns, reply: bytes, on_end: object):
        self.stream = stream
        self.store = stream.store
        self.turns = turns
        self.reply = reply
        self.on_end = on_end
        self.end_line = b""

    def send_range(self, filter: object, start: int, count: int, room: int, bare: bool) -> None:
        """Begin to send what is stored from `start` on and passes `filter` (None: all); `bare`
        leaves header blocks out."""
        self.filter = filter
        self.at = start
        self.end = self.store.last_seq
        self.count = count
        self.room = room
        self.bare = bare
        self.begin()

    def send_list(self, sequences: list, count: int, room: int, end_line: bytes) -> None:
        """Begin to send messages by their sequences; `end_line` is one more header line of the
        end."""
        self.sequences = sequences
        self.count = count
        self.room = room
        self.end_line = end_line
        self.place.pending = len(sequences)
        self.counted = True
        self.begin()

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def begin(self) -> cython.int:
        """Send a part. The receiver that is slow, if any, is left in `kernel.congested`."""
        kernel: Kernel = self.turns.kernel
        slow: Endpoint = kernel.congested
        kernel.congested = None
        try:
            self.part()
        except Damaged as error:
            self.say(b"NATS/1.0 500 %b\r\n\r\n" % str(error).encode())
            self.leave()
        except BaseException:
            self.leave()
            raise
        if kernel.congested is None:
            kernel.congested = slow
            if not self.done:
                self.turns.join(self)
        elif not self.done:
            self.waiting_for = kernel.congested
            self.waiting_for.waiters.append(self)
        if not kernel.turning:
            kernel.kick()
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def run(self) -> cython.int:
        """The receiver that was slow has room again, or is gone."""
        return 0 if self.done else self.turns.join(self)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def go_on(self) -> cython.int:
        """Send one more part, unless the receiver is slow."""
        if self.done:
            return 0
        if self.waiting_for is not None:
            if self in self.waiting_for.waiters and not self.waiting_for.closed:
                return 0
            self.waiting_for = None
        self.later = True
        self.turns.kernel.congested = None
        self.begin()
        self.turns.kernel.congested = None
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def part(self) -> cython.int:
        """Send what one turn may, and the end when that was all. Raises Damaged."""
        record: Record
        sequence: cython.ulonglong
        rows: cython.int = 0
        used: cython.Py_ssize_t = 0
        heard: cython.Py_ssize_t
        if not self.counted and not self.count_pending():
            return 0
        while rows < PART_ROWS and used < PART_BYTES and not self.stream.deleted:
            if self.count <= 0 or (self.room <= 0 and self.place.last):
                return self.finish()
            rows += 1
            sequence = self.following()
            if sequence == 0:
                return 0 if self.goes_on() else self.finish()
            if self.store.load(sequence, cython.address(record)):
                self.room -= record.subject_len + record.size
                used += record.size
                heard = send_record(
                    self.stream,
                    self.reply,
                    cython.address(record),
                    cython.address(self.place),
                    self.bare,
                )
                if heard == 0 and self.later:
                    return self.leave()
                self.place.last = sequence
                self.count -= 1
        return self.finish() if self.stream.deleted else 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def count_pending(self) -> cython.bint:
        """Count what is to come, once the filter knows all subjects; whether it does."""
        if self.stream.deleted:
            self.finish()
            return False
        if self.filter is not None and not self.filter.sweep(SWEEP_STEPS):
            return False
        self.place.pending = self.store.count_match(self.filter, self.at)
        self.counted = True
        return True

    @cython.cfunc
    @cython.exceptval(0, check=True)
    def following(self) -> cython.ulonglong:
        """The next sequence; 0 when none is left, or none is near."""
        found: cython.ulonglong
        limit: cython.ulonglong
        if self.sequences is not None:
            if self.at == cython.cast(cython.ulonglong, len(self.sequences)):
                return 0
            found = self.sequences[self.at]
            self.at += 1
        else:
            if self.at > self.end:
                return 0
            limit = min(self.end, self.at + SCAN_MAX - 1)
            if self.filter is None:
                found = self.store.next_alive(self.at)
            else:
                found = self.filter.next_until(self.at, limit)
            if found == 0 or found > limit:
                self.at = limit + 1
                return 0
            self.at = found + 1
        if self.place.pending:
            self.place.pending -= 1
        return found

    @cython.cfunc
    @cython.exceptval(check=False)
    def goes_on(self) -> cython.bint:
        """Whether there may be more, far away."""
        return self.sequences is None and self.at <= self.end

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def say(self, block: bytes) -> cython.int:
        """Send an empty message with a header block."""
        m: Msg
        fill(cython.address(m), self.reply, block, PyBytes_GET_SIZE(block))
        self.stream.account.publish(cython.address(m), None)
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def finish(self) -> cython.int:
        """Send the end: where it was, and what more there is by now."""
        if self.sequences is None:
            if self.place.last == 0 and self.count > 0:
                self.say(b"NATS/1.0 404 Message Not Found\r\n\r\n")
                return self.leave()
            if self.store.last_seq > self.end and not self.stream.deleted:
                self.place.pending = self.store.count_match(self.filter, self.at)
        self.say(
            b"NATS/1.0 204 EOB\r\nNats-Num-Pending: %d\r\nNats-Last-Sequence: %d\r\n%b\r\n"
            % (self.place.pending, self.place.last, self.end_line)
        )
        return self.leave()

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def leave(self) -> cython.int:
        """Send nothing more."""
        if not self.done:
            self.done = True
            self.on_end()
        return 0


def send_direct(stream: Stream, reply: bytes, sequence: int, bare: bool) -> bool:
    """Send one message, without its headers when `bare`; whether it is there. Raises Damaged."""
    record: Record
    if not stream.store.load(sequence, cython.address(record)):
        return False
    send_record(stream, reply, cython.address(record), cython.NULL, bare)
    if not stream.kernel.turning:
        stream.kernel.kick()
    return True


@cython.cfunc
@cython.exceptval(-1, check=False)
def send_record(
    stream: Stream,
    reply: bytes,
    record: cython.pointer(Record),
    place: cython.pointer(BatchPlace),
    bare: cython.bint,
) -> cython.Py_ssize_t:
    """Send a message to who asked; to how many."""
    m: Msg
    text: bytes
    size: cython.Py_ssize_t = record.size - record.header_len
    # Who hears it may read the same store, and with that replace the record's bytes.
    if bare:
        text = PyBytes_FromStringAndSize(
            cython.cast(cython.p_const_char, record.body) + record.header_len, size
        )
    else:
        text = direct_body(stream.name_bytes, record, place)
    fill(cython.address(m), reply, text, PyBytes_GET_SIZE(text) - size)
    return stream.account.publish(cython.address(m), None)


@cython.cfunc
@cython.exceptval(check=False)
def fill(
    m: cython.pointer(Msg), reply: bytes, text: bytes, header_len: cython.Py_ssize_t
) -> cython.void:
    """Make `m` a message to who asked."""
    memset(m, 0, cython.sizeof(Msg))
    m.subject = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(reply))
    m.subject_len = PyBytes_GET_SIZE(reply)
    m.body = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(text))
    m.size = PyBytes_GET_SIZE(text)
    m.header_len = header_len
    m.via = MADE
