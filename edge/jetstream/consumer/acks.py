"""Where a consumer is spoken to: sinks for acks, pull requests and flow control answers.

An ack comes on `$JS.ACK.<stream>.<consumer>.` followed by deliveries, stream sequence, consumer
sequence, time and pending messages; or, with domain and account hash in front of the stream, in the
v2 form (ADR-15), which may have further tokens at its end. Its body says what is meant: `+ACK`,
`-NAK`, `+WPI`, `+NXT`, `+TERM`.
"""

import logging

import cython
from cython.cimports.cpython.bytes import PyBytes_FromStringAndSize
from cython.cimports.headwater.edge.jetstream.consumer.delivery import Delivery
from cython.cimports.headwater.edge.kernel.kernel import Endpoint, Msg, Sink
from cython.cimports.headwater.edge.wire.numbers import parse_number
from cython.cimports.libc.string import memcmp
from msgspec import DecodeError, Struct
from msgspec.json import Decoder

from headwater.edge.jetstream.model.times import parse_duration

log = logging.getLogger("headwater.jetstream")

NUMBERS = cython.declare(cython.Py_ssize_t, 5)


class NakOptions(Struct):
    """Body of a -NAK; `delay` in ns."""

    delay: int = 0


_NAK = Decoder(NakOptions)


@cython.cfunc
@cython.exceptval(check=False)
def parse_numbers(
    text: cython.p_const_uchar,
    n: cython.Py_ssize_t,
    extended: cython.bint,
    out: cython.pointer(cython.longlong),
) -> cython.bint:
    """Read five numbers between dots; more may follow when `extended`."""
    k: cython.Py_ssize_t
    at: cython.Py_ssize_t = 0
    end: cython.Py_ssize_t = 0
    for k in range(NUMBERS):
        end = at
        while end < n and text[end] != 46:
            end += 1
        out[k] = parse_number(text + at, end - at)
        if out[k] < 0:
            return False
        if k + 1 < NUMBERS and end >= n:
            return False
        at = end + 1
    return end >= n or extended


@cython.cfunc
@cython.exceptval(check=False)
def tokens_fit(
    text: cython.p_const_uchar, n: cython.Py_ssize_t, extended: cython.bint
) -> cython.bint:
    """Whether a text has as many tokens as an ack, numbers or not: other subjects are nobody's."""
    dots: cython.Py_ssize_t = 0
    k: cython.Py_ssize_t
    for k in range(n):
        dots += text[k] == 46
    return dots + 1 == NUMBERS or (extended and dots >= NUMBERS)


@cython.cfunc
@cython.exceptval(check=False)
def starts(
    body: cython.p_const_uchar, n: cython.Py_ssize_t, word: cython.p_const_char
) -> cython.bint:
    return n >= 4 and memcmp(body, word, 4) == 0


@cython.cfunc
def nak_delay(body: cython.p_const_uchar, n: cython.Py_ssize_t) -> object:
    """Delay in ns that follows `-NAK`; None for an immediate one or a text that makes no sense."""
    text: bytes = PyBytes_FromStringAndSize(cython.cast(cython.p_char, body), n).strip()
    if not text:
        return None
    try:
        if text.startswith(b"{"):
            return _NAK.decode(text).delay
        return parse_duration(text.decode())
    except (DecodeError, ValueError, RecursionError):
        return None


@cython.cclass
class AckSink(Sink):
    """Takes the acks of one consumer, in one of the two forms of their subject."""

    def __init__(self, consumer: Delivery, prefix: bytes, extended: bool):
        Sink.__init__(self, prefix + b">")
        self.consumer = consumer
        self.prefix = len(prefix)
        self.extended = extended

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def deliver(self, m: cython.pointer(Msg), sender: Endpoint) -> cython.int:
        """Act on an ack; 0 when the consumer is gone, or the subject is not one of acks."""
        numbers: cython.longlong[5]
        body: cython.p_const_uchar = m.body + m.header_len
        n: cython.Py_ssize_t = m.size - m.header_len
        consumer: Delivery = self.consumer
        answer: cython.int = 0
        ended: cython.bint = False
        known: cython.bint
        if consumer.deleted:
            return 0
        known = parse_numbers(
            m.subject + self.prefix,
            m.subject_len - self.prefix,
            self.extended,
            cython.address(numbers[0]),
        )
        if not known:
            return tokens_fit(
                m.subject + self.prefix, m.subject_len - self.prefix, self.extended
            )
        if numbers[1] == 0:
            return 1
        consumer.touch()
        if (
            n == 0
            or (n == 4 and starts(body, n, b"+ACK"))
            or (n == 3 and memcmp(body, b"+OK", 3) == 0)
        ):
            answer = consumer.acknowledge(numbers[1], numbers[2], numbers[0], True)
        elif starts(body, n, b"+NXT"):
            consumer.acknowledge(numbers[1], numbers[2], numbers[0], True)
            consumer.pull(m.reply, m.reply_len, body + 4, n - 4)
        elif starts(body, n, b"-NAK"):
            consumer.refuse(
                numbers[1], numbers[2], numbers[0], nak_delay(body + 4, n - 4) if n > 4 else None
            )
            answer = 1
        elif n == 4 and starts(body, n, b"+WPI"):
            consumer.progress(numbers[1])
            answer = 1
        elif n >= 5 and memcmp(body, b"+TERM", 5) == 0:
            answer = consumer.acknowledge(numbers[1], numbers[2], numbers[0], False)
            ended = True
        else:
            answer = 1
        if answer and m.reply_len:
            consumer.answer(m.reply, m.reply_len)
        if ended:
            consumer.tell_terminated(
                numbers[1],
                numbers[2],
                numbers[0],
                PyBytes_FromStringAndSize(cython.cast(cython.p_char, body + 5), n - 5).strip(),
                answer and m.reply_len,
            )
        return 1


@cython.cclass
class PullSink(Sink):
    """Takes the pull requests of one consumer; a push consumer refuses them."""

    def __init__(self, consumer: Delivery, subject: bytes):
        Sink.__init__(self, subject)
        self.consumer = consumer

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def deliver(self, m: cython.pointer(Msg), sender: Endpoint) -> cython.int:
        """Take a pull request; 0 when the consumer is gone."""
        if self.consumer.deleted:
            return 0
        if m.reply_len == 0:
            return 1
        if m.header_len and self.consumer.level_refused(m.body, m.header_len, m.reply, m.reply_len):
            return 1
        try:
            self.consumer.pull(m.reply, m.reply_len, m.body + m.header_len, m.size - m.header_len)
        except Exception:
            log.exception(
                "a pull request to %r failed; it is answered with 500; report this fault",
                self.subject,
            )
            self.consumer.status(
                PyBytes_FromStringAndSize(cython.cast(cython.p_char, m.reply), m.reply_len),
                b"500 Internal Error",
            )
        return 1


@cython.cclass
class FlowSink(Sink):
    """Takes the answers to flow control requests."""

    def __init__(self, consumer: Delivery, prefix: bytes):
        Sink.__init__(self, prefix + b">")
        self.consumer = consumer

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def deliver(self, m: cython.pointer(Msg), sender: Endpoint) -> cython.int:
        """Take an answer; 0 when the consumer is gone."""
        if self.consumer.deleted:
            return 0
        self.consumer.flow_confirmed(m)
        return 1
