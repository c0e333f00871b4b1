"""The fast path of KV reads: the last message of a subject, without an interpreted request."""

import cython
from cython.cimports.cpython.bytes import (
    PyBytes_AS_STRING,
    PyBytes_FromStringAndSize,
    PyBytes_GET_SIZE,
)
from cython.cimports.headwater.edge.jetstream.read.direct_body import direct_body
from cython.cimports.headwater.edge.jetstream.replication.read_gate import ReadGate
from cython.cimports.headwater.edge.jetstream.stream.stream import Stream
from cython.cimports.headwater.edge.kernel.kernel import MADE, Endpoint, Msg, Sink
from cython.cimports.headwater.edge.storage.index.store import Record
from cython.cimports.headwater.edge.subjects.tokens import is_literal

from headwater.edge.storage.format.errors import Damaged


@cython.cclass
class LastSink(Sink):
    """Serves `$JS.API.DIRECT.GET.<stream>.<subject>`: the last message of a subject.

    Requests with a body or headers, or for the last message of many subjects, go to
    `fallback(subject, reply, headers, payload, sender)`.
    """

    def __init__(self, stream: Stream, prefix: bytes, fallback: object, queue: bytes):
        Sink.__init__(self, prefix + b">", queue)
        self.stream = stream
        self.prefix_len = len(prefix)
        self.fallback = fallback
        self.later = self.answer_later

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def deliver(self, m: cython.pointer(Msg), sender: Endpoint) -> cython.int:
        """Answer a request; 0 when there is nobody to answer."""
        if self.closed:
            return 0
        self.delivered += 1
        if not m.reply_len:
            return 1
        gate: ReadGate = self.stream.reads
        if m.size:
            self.hand_on(m, sender)
        elif gate is None or gate.is_open():
            self.answer(m, sender)
        else:
            gate.hold(
                self.later,
                self.stream.account,
                PyBytes_FromStringAndSize(cython.cast(cython.p_char, m.reply), m.reply_len),
                PyBytes_FromStringAndSize(cython.cast(cython.p_char, m.subject), m.subject_len),
                m.subject_len,
            )
        return 1

    def answer_later(self, stream: Stream, reply: bytes, subject: bytes) -> None:
        """Answer a request that has waited, with what the replica has now."""
        m: Msg
        self.stream = stream
        m.subject = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(subject))
        m.subject_len = PyBytes_GET_SIZE(subject)
        m.reply = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(reply))
        m.reply_len = PyBytes_GET_SIZE(reply)
        m.shown = cython.NULL
        m.shown_len = m.header_len = m.size = 0
        m.body = m.subject
        m.via = MADE
        self.answer(cython.address(m), None)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def hand_on(self, m: cython.pointer(Msg), sender: Endpoint) -> cython.int:
        """Let `fallback` answer."""
        body: cython.p_char = cython.cast(cython.p_char, m.body)
        self.fallback(
            PyBytes_FromStringAndSize(cython.cast(cython.p_char, m.subject), m.subject_len),
            PyBytes_FromStringAndSize(cython.cast(cython.p_char, m.reply), m.reply_len),
            PyBytes_FromStringAndSize(body, m.header_len),
            PyBytes_FromStringAndSize(body + m.header_len, m.size - m.header_len),
            sender,
        )
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def answer(self, m: cython.pointer(Msg), sender: Endpoint) -> cython.int:
        """Send the last message of the subject that the request names, 404, or 500 when it is
        damaged."""
        record: Record
        out: Msg
        subject: cython.p_const_uchar = m.subject + self.prefix_len
        n: cython.Py_ssize_t = m.subject_len - self.prefix_len
        sequence: cython.ulonglong = self.stream.store.last_for(subject, n)
        out.subject = m.reply
        out.subject_len = m.reply_len
        out.reply = out.shown = cython.NULL
        out.reply_len = out.shown_len = 0
        out.via = MADE
        damage: bytes = b""
        loaded: cython.int = 0
        try:
            loaded = self.stream.store.load(sequence, cython.address(record)) if sequence else 0
        except Damaged as error:
            damage = str(error).encode()
        if damage:
            text: bytes = b"NATS/1.0 500 %b\r\n\r\n" % damage
            out.header_len = PyBytes_GET_SIZE(text)
        elif loaded:
            text = direct_body(self.stream.name_bytes, cython.address(record), cython.NULL)
            out.header_len = PyBytes_GET_SIZE(text) - (record.size - record.header_len)
        elif sequence or not is_literal(subject, n):
            return self.hand_on(m, sender)
        else:
            text = b"NATS/1.0 404 Message Not Found\r\n\r\n"
            out.header_len = PyBytes_GET_SIZE(text)
        out.body = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(text))
        out.size = PyBytes_GET_SIZE(text)
        self.stream.account.publish(cython.address(out), None)
        return 0
