"""Republishing: what a stream has stored, published again on a subject made from the stored one.

A copy is kept from the moment of storing until its message is committed, so that receivers never
see one that nobody was promised. The copies are bounded by what the log lets wait to be written.
"""

from collections import deque

import cython
from cython.cimports.cpython.bytes import PyBytes_FromStringAndSize
from cython.cimports.headwater.edge.broker.account import Account
from cython.cimports.headwater.edge.kernel.kernel import Msg
from cython.cimports.headwater.edge.subjects.transform import Transform

from headwater.edge.jetstream.model.times import format_time
from headwater.edge.wire.header_block import opened


@cython.cclass
class Republisher:
    """The republishing of one stream (`republish` of its configuration)."""

    def __init__(self, stream_name: bytes, transform: Transform, headers_only: bool):
        self.stream_name = stream_name
        self.transform = transform
        self.headers_only = headers_only
        self.waiting = deque()

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def add(
        self,
        m: cython.pointer(Msg),
        sequence: cython.ulonglong,
        timestamp: cython.longlong,
        last: cython.ulonglong,
        pick: cython.ulonglong,
    ) -> cython.int:
        """Keep a copy of a message just stored; `last` is its subject's previous sequence, `pick` a
        number by chance."""
        body: cython.p_char = cython.cast(cython.p_char, m.body)
        size: cython.Py_ssize_t = m.size - m.header_len
        payload: bytes = b""
        head: bytes
        target: bytes = self.transform.apply(m.subject, m.subject_len, pick)
        if target is None or not target:
            return 0
        head = opened(PyBytes_FromStringAndSize(body, m.header_len))
        subject: bytes = PyBytes_FromStringAndSize(
            cython.cast(cython.p_char, m.subject), m.subject_len
        )
        head += (
            b"Nats-Stream: %b\r\nNats-Subject: %b\r\nNats-Sequence: %d\r\n"
            b"Nats-Time-Stamp: %b\r\nNats-Last-Sequence: %d\r\n"
        ) % (self.stream_name, subject, sequence, format_time(timestamp).encode(), last)
        if self.headers_only:
            head += b"Nats-Msg-Size: %d\r\n" % size
        else:
            payload = PyBytes_FromStringAndSize(body + m.header_len, size)
        self.waiting.append((sequence, target, head + b"\r\n", payload))
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def release(self, account: Account, committed: cython.ulonglong) -> cython.int:
        """Publish the copies up to `committed`."""
        while self.waiting and cython.cast(cython.ulonglong, self.waiting[0][0]) <= committed:
            _, subject, headers, payload = self.waiting.popleft()
            account.send(subject, payload, b"", headers)
        return 0
