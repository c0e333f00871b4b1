"""Fast batches (ADR-50): publishes stored one by one that are answered only now and then.

The reply subject of each message carries its place:
`<prefix>.<batch>.<flow>.<ok|fail>.<sequence>.<operation>.$FI`. An answer tells up to which message
all are stored (durably: it waits as a PubAck does) and when the next answer comes. Gaps end the
batch, or are only told when it is `ok` with them. A commit is answered by a PubAck.
"""

import json

import cython
from cython.cimports.cpython.bytes import PyBytes_FromStringAndSize
from cython.cimports.headwater.edge.jetstream.stream.puback import STORED
from cython.cimports.headwater.edge.jetstream.stream.stream import Stream
from cython.cimports.headwater.edge.kernel.kernel import Msg
from cython.cimports.headwater.edge.wire.numbers import parse_number
from cython.cimports.libc.string import memcmp

from headwater.edge.jetstream.model import errors, headers
from headwater.edge.jetstream.stream import stream_wire

START = cython.declare(cython.int, 0)
APPEND = cython.declare(cython.int, 1)
COMMIT = cython.declare(cython.int, 2)
END = cython.declare(cython.int, 3)
"""Commit without a message."""
PING = cython.declare(cython.int, 4)

WRONG_LAST_ID = errors.STREAM_WRONG_LAST_MSG_ID.err_code
NAME_MAX = 64
BATCHES_MAX = 1000
TIMEOUT_S = 10.0
FLOW_DEFAULT = cython.declare(cython.int, 10)
FLOW_MAX = cython.declare(cython.int, 65535)
FLOW_SHARED = cython.declare(cython.int, 500)
"""Messages per answer that all batches of a stream share."""


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def is_step(reply: cython.p_const_uchar, n: cython.Py_ssize_t) -> cython.bint:
    """Whether a reply subject is that of a fast batch."""
    return n > 4 and memcmp(reply + n - 4, b".$FI", 4) == 0


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def token_start(reply: cython.p_const_uchar, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Where the token that ends at `end` starts; 0 when no dot is before it."""
    while end > 0 and reply[end - 1] != 46:
        end -= 1
    return end


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def read_step(
    reply: cython.p_const_uchar, n: cython.Py_ssize_t, out: cython.pointer(Step)
) -> cython.bint:
    """Take a reply subject apart, from its end; False when it is malformed."""
    end: cython.Py_ssize_t = n - 4
    start: cython.Py_ssize_t
    number: cython.longlong
    start = token_start(reply, end)
    if start == 0:
        return False
    number = parse_number(reply + start, end - start)
    if number < START or number > PING:
        return False
    out.operation = cython.cast(cython.int, number)
    end = start - 1
    start = token_start(reply, end)
    if start == 0:
        return False
    number = parse_number(reply + start, end - start)
    if number < 1 or (out.operation == START and number != 1):
        return False
    if number == 1 and (out.operation == APPEND or out.operation == END):
        return False
    out.sequence = cython.cast(cython.ulonglong, number)
    return read_terms(reply, start - 1, out)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def read_terms(
    reply: cython.p_const_uchar, end: cython.Py_ssize_t, out: cython.pointer(Step)
) -> cython.bint:
    """The batch's name, flow and whether it is fine with gaps; False when malformed."""
    start: cython.Py_ssize_t = token_start(reply, end)
    number: cython.longlong
    if start == 0:
        return False
    out.gap_ok = end - start == 2 and memcmp(reply + start, b"ok", 2) == 0
    if not out.gap_ok and (end - start != 4 or memcmp(reply + start, b"fail", 4) != 0):
        return False
    end = start - 1
    start = token_start(reply, end)
    if start == 0:
        return False
    number = parse_number(reply + start, end - start)
    out.flow = FLOW_DEFAULT
    if number > 0:
        out.flow = FLOW_MAX if number > FLOW_MAX else cython.cast(cython.int, number)
    end = start - 1
    start = token_start(reply, end)
    out.name = reply + start
    out.name_len = end - start
    return start > 0


@cython.cclass
class FastBatch:
    """One batch that is open."""

    def __init__(self, name: bytes, now_ns: int):
        self.name = name
        self.touched_ns = now_ns


@cython.cclass
class FastBatches:
    """The open fast batches of one stream; `limits` are the node's, None for the defaults."""

    def __init__(self, stream: Stream, limits: object):
        self.stream = stream
        self.open = {}
        self.bound_by(limits)

    def bound_by(self, limits: object) -> None:
        """Go by these limits of the node from now on."""
        self.limit = getattr(limits, "max_inflight_per_stream", 0) or BATCHES_MAX
        self.timeout_s = getattr(limits, "timeout", 0) or TIMEOUT_S

    @cython.cfunc
    def find(self, step: cython.pointer(Step)) -> FastBatch:
        """The batch of a message, opened by its first one. Raises JetStreamError."""
        batch: FastBatch
        if step.name_len > NAME_MAX:
            raise errors.BATCH_PUBLISH_INVALID_BATCH_ID.error()
        name: bytes = PyBytes_FromStringAndSize(
            cython.cast(cython.p_char, step.name), step.name_len
        )
        found = self.open.get(name)
        if found is not None:
            batch = found
            batch.touched_ns = self.stream.kernel.monotonic_ns()
            return batch
        if step.sequence != 1 or step.operation == PING:
            raise errors.BATCH_PUBLISH_UNKNOWN_BATCH_ID.error()
        if len(self.open) >= self.limit:
            raise errors.BATCH_PUBLISH_TOO_MANY_INFLIGHT.error()
        batch = self.open[name] = FastBatch(name, self.stream.kernel.monotonic_ns())
        batch.gap_ok = step.gap_ok
        batch.most = step.flow
        # One alone gets what it asks for; among others it starts slowly.
        batch.every = min(FLOW_SHARED, batch.most) if len(self.open) == 1 else 1
        self.watch(batch, self.timeout_s)
        return batch

    def watch(self, batch: FastBatch, seconds: float) -> None:
        """Look at a batch again after a while."""
        batch.timer = self.stream.kernel.loop.call_later(seconds, self.expire, batch)

    def expire(self, batch: FastBatch) -> None:
        """Forget a batch that has had nothing to do for too long."""
        left = self.timeout_s - (self.stream.kernel.monotonic_ns() - batch.touched_ns) / 1e9
        if left <= 0:
            self.close(batch)
        else:
            self.watch(batch, left)

    @cython.ccall
    def close(self, batch: FastBatch):
        """Forget a batch."""
        batch.timer.cancel()
        self.open.pop(batch.name, None)

    def stop(self) -> None:
        """Forget all batches."""
        for batch in list(self.open.values()):
            self.close(batch)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def expects(
        self, m: cython.pointer(Msg), step: cython.pointer(Step), batch: FastBatch
    ) -> cython.bint:
        """Whether the message is to be stored; what else it means has been done when it is not."""
        if step.operation == PING:
            self.ping(m, step, batch)
            return False
        if step.sequence != batch.last + 1:
            self.gap(m, batch, batch.last + 1, step.sequence)
            if not batch.gap_ok or step.sequence <= batch.last:
                self.commit(m, batch)
                return False
        if step.operation == END:
            batch.last = step.sequence - 1
            self.commit(m, batch)
            return False
        batch.last = step.sequence
        if step.sequence == 1 and step.operation != COMMIT and not self.stream.answers.no_ack:
            self.flow(m, batch)
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def ping(
        self, m: cython.pointer(Msg), step: cython.pointer(Step), batch: FastBatch
    ) -> cython.int:
        """Say again where the batch is, or that messages before the ping are missing."""
        if step.sequence > batch.last:
            self.gap(m, batch, batch.last + 1, step.sequence + 1)
            if not batch.gap_ok:
                return self.commit(m, batch)
            batch.last = step.sequence
            if self.flow_due(m, batch):
                return 0
        return self.flow(m, batch)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def accepted(
        self,
        m: cython.pointer(Msg),
        step: cython.pointer(Step),
        batch: FastBatch,
        sequence: cython.ulonglong,
    ) -> cython.int:
        """The stream has stored the message as `sequence`."""
        batch.stored = sequence
        if step.operation == COMMIT:
            return self.commit(m, batch)
        self.flow_due(m, batch)
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def repeated(
        self, m: cython.pointer(Msg), step: cython.pointer(Step), batch: FastBatch
    ) -> cython.int:
        """The stream has a message with this id already: it counts as dealt with."""
        self.flow_due(m, batch)
        if step.operation != COMMIT:
            return 0
        if step.gap_ok or batch.last != 1:
            return self.commit(m, batch)
        stream: Stream = self.stream
        block = PyBytes_FromStringAndSize(cython.cast(cython.p_char, m.body), m.header_len)
        msg_id = headers.get(block, b"Nats-Msg-Id") or b""
        known = stream.dedupe.sequence_of(msg_id, stream.timers.now())
        self.close(batch)
        tail = b'%d,"duplicate": true,"batch":%b,"count":1}' % (known, quoted(batch.name))
        return self.owe(m, known, stream.answers.head + tail)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def refused(
        self,
        m: cython.pointer(Msg),
        step: cython.pointer(Step),
        batch: FastBatch,
        error: object,
    ) -> cython.int:
        """The stream has refused the message."""
        if error.err_code == WRONG_LAST_ID:
            # Answered as outside of a batch, which goes on.
            return self.stream.answers.refuse_with(m, error)
        if not step.gap_ok and batch.last == 1:
            self.close(batch)
            return self.owe(m, 0, stream_wire.ack_error(self.stream.name, error))
        self.owe(
            m,
            batch.stored,
            json.dumps(
                {
                    "type": "err",
                    "seq": step.sequence,
                    "error": {
                        "code": error.code,
                        "err_code": error.err_code,
                        "description": error.description,
                    },
                },
                separators=(",", ":"),
            ).encode(),
        )
        if step.gap_ok and step.operation != COMMIT:
            return 0
        batch.last -= 1
        return self.commit(m, batch)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def owe(
        self, m: cython.pointer(Msg), sequence: cython.ulonglong, payload: bytes
    ) -> cython.int:
        """Owe `payload` as soon as `sequence` is durable, also where the stream gives no acks."""
        return self.stream.answers.add_always(m.reply, m.reply_len, sequence, STORED, payload)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def commit(self, m: cython.pointer(Msg), batch: FastBatch) -> cython.int:
        """End a batch with what it has stored."""
        self.close(batch)
        tail = b'%d,"batch":%b,"count":%d}' % (batch.stored, quoted(batch.name), batch.last)
        return self.owe(m, batch.stored, self.stream.answers.head + tail)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def gap(
        self,
        m: cython.pointer(Msg),
        batch: FastBatch,
        expected: cython.ulonglong,
        got: cython.ulonglong,
    ) -> cython.int:
        """Tell that messages are missing."""
        text = b'{"type":"gap","last_seq":%d,"seq":%d}' % (expected, got)
        return self.owe(m, batch.stored, text)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def flow(self, m: cython.pointer(Msg), batch: FastBatch) -> cython.int:
        """Tell up to where all is stored, and after how many messages that is told again."""
        text = b'{"type":"ack","seq":%d,"msgs":%d}' % (batch.answered, batch.every)
        return self.owe(m, batch.stored, text)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def flow_due(self, m: cython.pointer(Msg), batch: FastBatch) -> cython.bint:
        """Answer when it is time to, with a new interval; whether it was."""
        every: cython.ulonglong = batch.every
        share: cython.int
        if batch.last < batch.answered + every:
            return False
        batch.answered += (batch.last - batch.answered) // every * every
        share = max(1, FLOW_SHARED // cython.cast(cython.int, len(self.open)))
        share = min(share, batch.most)
        if batch.every < share:
            batch.every = min(batch.every * 2, share)
        elif batch.every > share:
            batch.every = max(batch.every // 2, share)
        self.flow(m, batch)
        return True


@cython.cfunc
def quoted(name: bytes) -> bytes:
    """A batch's name as JSON."""
    return json.dumps(name.decode("utf-8", "replace"), ensure_ascii=False).encode()
