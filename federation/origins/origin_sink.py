"""What a mirror or source receives: one sink on the deliver subject of a consumer on the origin.

Every delivery carries the origin's sequence and time in its reply (ADR-15). A mirror stores under
the same sequence; a source stores anew and writes the origin's sequence into a header of the same
record, so that data and cursor cannot be torn apart. Lost deliveries show as a gap in the
consumer's own sequence; deleted messages as a gap in the stream's alone.
"""

import logging

import cython
from cython.cimports.cpython.bytes import (
    PyBytes_AS_STRING,
    PyBytes_FromStringAndSize,
    PyBytes_GET_SIZE,
)
from cython.cimports.headwater.edge.broker.conn import Conn
from cython.cimports.headwater.edge.jetstream.stream.stream import Stream
from cython.cimports.headwater.edge.kernel.kernel import KIND_LEAF, Endpoint, Msg, Sink, Task
from cython.cimports.headwater.edge.storage.index.store import MessageStore
from cython.cimports.headwater.edge.subjects.transform import Transform
from cython.cimports.headwater.edge.wire.numbers import parse_number, put_number
from cython.cimports.libc.string import memchr, memcmp, memcpy

from headwater.edge.storage.format.errors import StoreError, broken

log = logging.getLogger("headwater.origin")

SOURCE_HEADER = b"Nats-Stream-Source: "
# Headers of the origin's own publishers and of earlier hops that must not act here.
DROPPED = (b"Nats-Expected-", b"Nats-Batch-")
DROPPED_BY_SOURCES = (*DROPPED, b"Nats-Stream-Source:")

# Tokens of an ack subject: without and with domain and account hash; the latter may have more.
TOKENS_V1 = cython.declare(cython.int, 9)
TOKENS_V2 = cython.declare(cython.int, 11)
TOKENS_MAX = cython.declare(cython.int, 16)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def has_dropped(block: cython.p_const_uchar, n: cython.Py_ssize_t) -> cython.bint:
    """Whether some line of a header block may have to go."""
    at: cython.p_const_uchar = block
    left: cython.Py_ssize_t = n
    while left > 5:
        at = cython.cast(cython.p_const_uchar, memchr(at, 10, left))
        if at == cython.NULL:
            return False
        at += 1
        left = n - (at - block)
        if (
            left > 8
            and memcmp(at, cython.cast(cython.p_const_char, b"Nats-"), 5) == 0
            and (at[5] == 69 or at[5] == 66 or at[5] == 83)
        ):
            return True
    return False


@cython.cfunc
@cython.exceptval(check=False)
def put_text(out: cython.p_char, text: bytes) -> cython.p_char:
    """Write `text` at `out`; returns where it ends."""
    memcpy(out, PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))
    return out + PyBytes_GET_SIZE(text)


def cleaned(block: bytes, dropped: tuple) -> bytes:
    """A header block without the headers that begin so; b"" when none is left."""
    kept: list = [line for line in block.split(b"\r\n") if not line.startswith(dropped)]
    if len([line for line in kept if line]) <= 1:
        return b""
    return b"\r\n".join(kept)


@cython.cclass
class Cursors(Task):
    """Keeps the cursors that moved in a turn, at its end."""

    def __init__(self, log: object):
        self.log = log
        self.dirty = []

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def schedule_save(self, sink: OriginSink) -> cython.int:
        """Keep the cursor of `sink` at the end of this turn."""
        if not sink.save_scheduled:
            sink.save_scheduled = True
            self.dirty.append(sink)
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def run(self) -> cython.int:
        """Put each cursor into the log, or into the group of a replicated stream, before the batch
        closes that has its data."""
        sink: OriginSink
        batch: list
        if not self.dirty:
            return 0
        batch = self.dirty
        self.dirty = []
        for item in batch:
            sink = item
            sink.save_scheduled = False
            group: object = sink.stream.replicator
            try:
                (self.log if group is None else group).put_state(
                    sink.owner,
                    sink.key,
                    sink.cursor(),
                    sink.stream.store.sync_delay_ns,
                )
                sink.kept = sink.sseq
            except StoreError as error:
                log.error(
                    "the cursor of a source of stream '%s' is not written: %s; a start takes it "
                    "from the newest message of that source",
                    sink.stream.name,
                    error,
                )
        return 0


@cython.cclass
class Confirmations(Task):
    """Has the sinks of one stream confirm to their origins what is committed."""

    def __init__(self, store: MessageStore):
        self.store = store
        self.sinks = []

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def run(self) -> cython.int:
        for item in self.sinks:
            cython.cast(OriginSink, item).release(self.store.committed)
        return 0


@cython.cclass
class OriginSink(Sink):
    """One consumer of an origin, as its receiver sees it. A new one is made for every consumer."""

    def __init__(self, stream: Stream, follower: object, subject: bytes, consumer: bytes):
        Sink.__init__(self, subject)
        self.stream = stream
        self.kernel = stream.kernel
        self.follower = follower
        self.consumer = consumer
        self.heard_ns = self.kernel.monotonic_ns()
        self.transforms = []
        self.head = self.middle = b""
        self.identity = b""
        self.earlier = b""
        self.owed = []

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def deliver(self, m: cython.pointer(Msg), sender: Endpoint) -> cython.int:
        """Take a delivery, a heartbeat or a flow control request."""
        starts: cython.Py_ssize_t[17]
        count: cython.int = 1
        base: cython.int
        i: cython.Py_ssize_t
        sseq: cython.longlong
        dseq: cython.longlong
        timestamp: cython.longlong
        reply: cython.p_const_uchar = m.reply
        if self.closed:
            return 0
        self.heard = True
        self.via = sender
        if (
            m.header_len == m.size
            and m.size >= 14
            and memcmp(m.body, cython.cast(cython.p_const_char, b"NATS/1.0 100"), 12) == 0
        ):
            return self.control(m)
        starts[0] = 0
        for i in range(m.reply_len):
            if reply[i] == 46 and count < TOKENS_MAX:
                starts[count] = i + 1
                count += 1
        starts[count] = m.reply_len + 1
        if count != TOKENS_V1 and count < TOKENS_V2:
            return 1
        base = 2 if count == TOKENS_V1 else 4
        if (
            starts[base + 2] - starts[base + 1] - 1 != PyBytes_GET_SIZE(self.consumer)
            or memcmp(
                reply + starts[base + 1],
                PyBytes_AS_STRING(self.consumer),
                PyBytes_GET_SIZE(self.consumer),
            )
            != 0
            or starts[base + 3] - starts[base + 2] != 2
            or reply[starts[base + 2]] != 49
        ):
            # Of an earlier consumer, or delivered before.
            return 1
        sseq = parse_number(reply + starts[base + 3], starts[base + 4] - starts[base + 3] - 1)
        dseq = parse_number(reply + starts[base + 4], starts[base + 5] - starts[base + 4] - 1)
        if sseq <= 0 or dseq <= 0:
            return 1
        if cython.cast(cython.ulonglong, dseq) != self.dseq + 1:
            if cython.cast(cython.ulonglong, dseq) > self.dseq:
                self.follower.gap(self)
            return 1
        if cython.cast(cython.ulonglong, sseq) > self.sseq:
            i = starts[base + 5]
            timestamp = parse_number(reply + i, starts[base + 6] - i - 1)
            if not self.store_message(m, sseq, timestamp):
                return 1
            self.pass_over(sseq)
            self.sseq = sseq
            self.last_ts = timestamp
        self.dseq = dseq
        i = starts[base + 6]
        self.pending = max(0, parse_number(reply + i, starts[base + 7] - i - 1))
        return 1

    @cython.cfunc
    @cython.exceptval(check=False)
    def pass_over(self, sseq: cython.ulonglong) -> cython.void:
        """Count what lies before a message that is one of the last of their subjects."""
        if self.dseq < self.sparse:
            self.left_out += sseq - self.sseq - 1

    @cython.cfunc
    def source_header(self, m: cython.pointer(Msg), sseq: cython.ulonglong) -> bytes:
        """The line that says of a source's message where it comes from."""
        number: cython.uchar[20]
        digits: cython.Py_ssize_t = put_number(cython.address(number[0]), sseq)
        blank: cython.Py_ssize_t = 1 if PyBytes_GET_SIZE(self.identity) else 0
        size: cython.Py_ssize_t = (
            PyBytes_GET_SIZE(self.head)
            + digits
            + PyBytes_GET_SIZE(self.middle)
            + m.subject_len
            + blank
            + PyBytes_GET_SIZE(self.identity)
            + 2
        )
        line: bytes = PyBytes_FromStringAndSize(cython.NULL, size)
        at: cython.p_char = put_text(PyBytes_AS_STRING(line), self.head)
        memcpy(at, cython.address(number[0]), digits)
        at = put_text(at + digits, self.middle)
        memcpy(at, m.subject, m.subject_len)
        at += m.subject_len
        at[0] = 32
        at = put_text(at + blank, self.identity)
        memcpy(at, cython.cast(cython.p_const_char, b"\r\n"), 2)
        return line

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def store_message(
        self,
        m: cython.pointer(Msg),
        sseq: cython.ulonglong,
        timestamp: cython.longlong,
    ) -> cython.int:
        """Store one message; 0 when it could not be stored and the follower has been told."""
        copy: Msg = m[0]
        body: bytes
        subject: bytes = None
        extra: bytes = None
        if m.shown_len:
            copy.subject = m.shown
            copy.subject_len = m.shown_len
        copy.reply_len = copy.shown_len = 0
        if m.header_len and has_dropped(m.body, m.header_len):
            body = PyBytes_FromStringAndSize(cython.cast(cython.p_char, m.body), m.size)
            block: bytes = cleaned(
                body[: m.header_len], DROPPED if self.mirror else DROPPED_BY_SOURCES
            )
            body = block + body[m.header_len :]
            copy.header_len = PyBytes_GET_SIZE(block)
            copy.body = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(body))
            copy.size = PyBytes_GET_SIZE(body)
        if not self.mirror:
            extra = self.source_header(cython.address(copy), sseq)
            timestamp = 0
        for item in self.transforms:
            subject = cython.cast(Transform, item).apply(
                copy.subject, copy.subject_len, self.kernel.random()
            )
            if subject is not None:
                copy.subject = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(subject))
                copy.subject_len = PyBytes_GET_SIZE(subject)
                break
        if self.stream.transform is not None:
            changed: bytes = self.stream.transform.apply(
                copy.subject, copy.subject_len, self.kernel.random()
            )
            if changed is not None:
                copy.subject = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(changed))
                copy.subject_len = PyBytes_GET_SIZE(changed)
        try:
            self.stream.append_import(
                cython.address(copy), max(0, timestamp), sseq if self.mirror else 0, extra
            )
        except StoreError as error:
            self.follower.failed(self, str(error))
            return 0
        self.stored = sseq
        self.messages += 1
        self.bytes_stored += m.size
        if not self.mirror and self.cursors is not None:
            self.cursors.schedule_save(self)
        return 1

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def control(self, m: cython.pointer(Msg)) -> cython.int:
        """A heartbeat, or a request to confirm what was received so far."""
        block: bytes
        reply: bytes
        if m.reply_len:
            reply = PyBytes_FromStringAndSize(cython.cast(cython.p_char, m.reply), m.reply_len)
            if not self.foreign or not self.follower.holds(self):
                self.owe(reply)
            return 1
        block = PyBytes_FromStringAndSize(cython.cast(cython.p_char, m.body), m.header_len)
        self.follower.heartbeat(self, block)
        return 1

    def owe(self, reply: bytes) -> None:
        """Confirm on `reply` what was received so far, once it is committed."""
        if self.owed and self.owed[len(self.owed) - 1][1] == reply:
            return
        # What a replicated stream has only proposed is in no store yet.
        self.owed.append((self.stream.newest(), reply, self.dseq, self.sseq))
        self.release(self.stream.store.committed)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def release(self, committed: cython.ulonglong) -> cython.int:
        """Confirm what is committed: the origin may remove it then."""
        while self.owed:
            sequence, reply, dseq, sseq = self.owed[0]
            if sequence > committed and not self.closed:
                return 0
            del self.owed[0]
            if not self.closed:
                self.confirm(reply, dseq, sseq)
        return 0

    def confirm(self, reply: bytes, dseq: int, sseq: int) -> None:
        """Answer a flow control request."""
        self.stream.account.send(
            reply,
            b"",
            b"",
            b"NATS/1.0\r\nNats-Last-Consumer: %d\r\nNats-Last-Stream: %d\r\n\r\n" % (dseq, sseq),
        )

    @cython.cfunc
    def cursor(self) -> bytes:
        """The cursor as it is kept: where the data of the same batch is. Raises
        InvariantBroken."""
        if self.sseq != self.stored or self.sseq < self.kept:
            broken(
                f"the cursor of '{self.follower.name}' would be {self.sseq}, it was {self.kept}, "
                f"with data up to {self.stored}"
            )
        return b'{"seq":%d,"local":%d,"identity":"%b","time":%d%b}' % (
            self.sseq,
            self.stream.store.last_seq,
            self.identity,
            self.last_ts,
            self.earlier,
        )

    def arriving(self) -> int:
        """Bytes that came so far by the link of the last message, if they end in the midst of a
        message; else 0. It grows while a large message is on its way."""
        conn: Conn
        if self.via is None or self.via.kind != KIND_LEAF or self.via.closed:
            return 0
        conn = cython.cast(Conn, self.via)
        return conn.read_bytes if conn.midway else 0

    def silent_ns(self) -> int:
        """How long nothing was heard, in ns: right to a second for who asks every second, so that
        no delivery has to look at the clock. Setting the wall clock does not change it."""
        now: cython.longlong = self.kernel.monotonic_ns()
        if self.heard:
            self.heard = False
            self.heard_ns = now
        return now - self.heard_ns

    def cut(self) -> bool:
        """Whether the link by which the last message came has ended."""
        return self.via is not None and self.via.closed
