"""Republishing: what a stream has stored, published again on a subject made from the stored one.

A copy is kept from the moment of storing until its message is committed, so that receivers never
see one that nobody was promised. The copies are bounded by what the log lets wait to be written.
"""

from collections import deque

import cython
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_GET_SIZE
from cython.cimports.headwater.edge.broker.account import Account
from cython.cimports.headwater.edge.jetstream.stream.identity import (
    LINES_MAX,
    Content,
    identified,
    put,
    put_place,
)
from cython.cimports.headwater.edge.kernel.kernel import MADE, Msg
from cython.cimports.headwater.edge.subjects.transform import Transform
from cython.cimports.headwater.edge.wire.numbers import put_number
from cython.cimports.libc.string import memset


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
        target: bytes = self.transform.apply(m.subject, m.subject_len, pick)
        if target is None or not target:
            return 0
        self.waiting.append((sequence, target, self.copy_of(m, sequence, timestamp, last)))
        return 0

    @cython.cfunc
    def copy_of(
        self,
        m: cython.pointer(Msg),
        sequence: cython.ulonglong,
        timestamp: cython.longlong,
        last: cython.ulonglong,
    ) -> tuple:
        """The copy, and the bytes of its header block."""
        original: Content
        lines: cython.uchar[LINES_MAX]
        at: cython.p_uchar = put_place(cython.address(lines[0]), sequence, timestamp)
        at = put(at, b"\r\nNats-Last-Sequence: ", 22)
        at += put_number(at, last)
        size: cython.Py_ssize_t = m.size - m.header_len
        if self.headers_only:
            at = put(at, b"\r\nNats-Msg-Size: ", 17)
            at += put_number(at, size)
            size = 0
        at = put(at, b"\r\n\r\n", 4)
        original.subject = m.subject
        original.subject_len = m.subject_len
        original.body = m.body
        original.header_len = m.header_len
        copy: bytes = identified(
            self.stream_name, cython.address(original), size, cython.address(lines[0]), at
        )
        return copy, PyBytes_GET_SIZE(copy) - size

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def release(self, account: Account, committed: cython.ulonglong) -> cython.int:
        """Publish the copies up to `committed`."""
        m: Msg
        while self.waiting and cython.cast(cython.ulonglong, self.waiting[0][0]) <= committed:
            _, target, made = self.waiting.popleft()
            subject: bytes = target
            copy: bytes = made[0]
            memset(cython.address(m), 0, cython.sizeof(Msg))
            m.subject = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(subject))
            m.subject_len = PyBytes_GET_SIZE(subject)
            m.body = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(copy))
            m.size = PyBytes_GET_SIZE(copy)
            m.header_len = made[1]
            m.via = MADE
            account.publish(cython.address(m), None)
            if not account.kernel.turning:
                account.kernel.kick()
        return 0
