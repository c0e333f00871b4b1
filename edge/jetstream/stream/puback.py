"""Answers to publishers, kept in order until what they promise is committed.

One small record and the reply subject per answer, in two growing C buffers: at a million messages a
second there is no room for an object each. The commit log bounds the queue: it holds publishers
back while too much waits to be written.
"""

import cython
from cython.cimports.cpython.bytes import (
    PyBytes_AS_STRING,
    PyBytes_FromStringAndSize,
    PyBytes_GET_SIZE,
)
from cython.cimports.headwater.edge.broker.account import Account
from cython.cimports.headwater.edge.kernel.kernel import MADE, Msg
from cython.cimports.headwater.edge.wire.numbers import put_number
from cython.cimports.libc.stdlib import free, malloc, realloc
from cython.cimports.libc.string import memcpy, memmove

from headwater.edge.storage.format.errors import broken

ENTRIES_INITIAL = cython.declare(cython.Py_ssize_t, 64)
ARENA_INITIAL = cython.declare(cython.Py_ssize_t, 4096)
# Room behind the head for a sequence of 20 digits and `,"duplicate": true}`.
TAIL_ROOM = cython.declare(cython.Py_ssize_t, 48)


@cython.cclass
class AckQueue:
    """Pending answers of one stream, first in first out."""

    def __cinit__(self, *args):
        self.line = cython.NULL
        self.entries = cython.NULL
        self.arena = cython.NULL

    def __init__(self, head: bytes):
        self.head = head
        self.line = cython.cast(cython.p_uchar, malloc(len(head) + TAIL_ROOM))
        self.capacity = ENTRIES_INITIAL
        self.entries = cython.cast(
            cython.pointer(OwedAnswer), malloc(ENTRIES_INITIAL * cython.sizeof(OwedAnswer))
        )
        self.arena_capacity = ARENA_INITIAL
        self.arena = cython.cast(cython.p_uchar, malloc(ARENA_INITIAL))
        if self.line == cython.NULL or self.entries == cython.NULL or self.arena == cython.NULL:
            raise MemoryError
        memcpy(self.line, PyBytes_AS_STRING(head), len(head))

    def __dealloc__(self):
        free(self.line)
        free(self.entries)
        free(self.arena)

    def __len__(self) -> int:
        return self.count

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def room(self, more: cython.Py_ssize_t) -> cython.int:
        """Make room for one entry with `more` bytes of arena."""
        entries: cython.pointer(OwedAnswer)
        arena: cython.p_uchar
        if self.count == 0:
            self.first = 0
            self.arena_start = self.arena_end = 0
        if self.first + self.count == self.capacity:
            if self.first >= self.capacity // 2:
                memmove(
                    self.entries,
                    self.entries + self.first,
                    self.count * cython.sizeof(OwedAnswer),
                )
                self.first = 0
            else:
                entries = cython.cast(
                    cython.pointer(OwedAnswer),
                    realloc(self.entries, self.capacity * 2 * cython.sizeof(OwedAnswer)),
                )
                if entries == cython.NULL:
                    raise MemoryError
                self.entries = entries
                self.capacity *= 2
        if self.arena_end + more > self.arena_capacity:
            if self.arena_start >= self.arena_capacity // 2:
                memmove(
                    self.arena, self.arena + self.arena_start, self.arena_end - self.arena_start
                )
                self.arena_end -= self.arena_start
                self.arena_start = 0
            while self.arena_end + more > self.arena_capacity:
                arena = cython.cast(cython.p_uchar, realloc(self.arena, self.arena_capacity * 2))
                if arena == cython.NULL:
                    raise MemoryError
                self.arena = arena
                self.arena_capacity *= 2
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def add(
        self,
        reply: cython.p_const_uchar,
        reply_len: cython.Py_ssize_t,
        wait: cython.ulonglong,
        sequence: cython.ulonglong,
        kind: cython.int,
        payload: bytes,
    ) -> cython.int:
        """Queue an answer of `kind`; a `payload` is sent as it is."""
        entry: cython.pointer(OwedAnswer)
        extra: cython.Py_ssize_t = 0 if payload is None else PyBytes_GET_SIZE(payload)
        self.room(reply_len + extra)
        entry = self.entries + self.first + self.count
        entry.wait = wait
        entry.sequence = sequence
        entry.payload_len = extra
        entry.reply_len = cython.cast(cython.int, reply_len)
        entry.kind = kind
        memcpy(self.arena + self.arena_end, reply, reply_len)
        if extra:
            memcpy(self.arena + self.arena_end + reply_len, PyBytes_AS_STRING(payload), extra)
        self.arena_end += reply_len + extra
        self.count += 1
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def send(
        self, account: Account, entry: cython.pointer(OwedAnswer), reply: cython.p_const_uchar
    ) -> cython.int:
        """Publish one answer."""
        m: Msg
        n: cython.Py_ssize_t = PyBytes_GET_SIZE(self.head)
        tail: cython.p_const_char
        tail_len: cython.Py_ssize_t
        m.subject = reply
        m.subject_len = entry.reply_len
        m.reply = m.shown = cython.NULL
        m.reply_len = m.shown_len = m.header_len = 0
        m.via = MADE
        if entry.payload_len:
            m.body = reply + entry.reply_len
            m.size = entry.payload_len
        elif entry.kind == EMPTY:
            m.body = reply
            m.size = 0
        else:
            n += put_number(self.line + n, entry.sequence)
            if entry.kind == DUPLICATE:
                tail = b',"duplicate": true}'
                tail_len = 19
            else:
                tail = b"}"
                tail_len = 1
            memcpy(self.line + n, tail, tail_len)
            m.body = self.line
            m.size = n + tail_len
        account.publish(cython.address(m), None)
        return 0

    @cython.cfunc
    @cython.exceptval(check=False)
    def skip(self, size: cython.Py_ssize_t) -> cython.int:
        """The first answer, of `size` bytes, is not owed any more."""
        self.first += 1
        self.count -= 1
        self.arena_start += size
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def release(self, account: Account, committed: cython.ulonglong) -> cython.int:
        """Send, in order, the answers that wait for `committed` or less; returns how many. One
        that names a sequence beyond it raises InvariantBroken, and is never sent."""
        entry: OwedAnswer
        text: cython.p_uchar = cython.NULL
        size: cython.Py_ssize_t
        sent: cython.int = 0
        buffer: cython.uchar[512]
        while self.count and self.entries[self.first].wait <= committed:
            entry = self.entries[self.first]
            if entry.sequence > committed or not (
                entry.sequence or entry.payload_len or entry.kind == EMPTY
            ):
                self.skip(entry.reply_len + entry.payload_len)
                broken(
                    f"{self.head!r} {entry.sequence} was about to be acknowledged, and the stream "
                    f"is safe up to {committed}"
                )
            size = entry.reply_len + entry.payload_len
            # A receiver may be a stream that answers into this queue, which may move the arena.
            text = cython.address(buffer[0])
            if size > 512:
                text = cython.cast(cython.p_uchar, malloc(size))
            if text == cython.NULL:
                raise MemoryError
            memcpy(text, self.arena + self.arena_start, size)
            self.skip(size)
            sent += 1
            try:
                self.send(account, cython.address(entry), text)
            finally:
                if size > 512:
                    free(text)
        return sent

    def refuse(self, account: Account, payload: bytes) -> None:
        """Send `payload` for each answer that waits: nobody will know what became of it."""
        entry: OwedAnswer
        reply: bytes
        m: Msg
        while self.count:
            entry = self.entries[self.first]
            reply = PyBytes_FromStringAndSize(
                cython.cast(cython.p_char, self.arena + self.arena_start), entry.reply_len
            )
            self.skip(entry.reply_len + entry.payload_len)
            m.subject = cython.cast(cython.p_uchar, PyBytes_AS_STRING(reply))
            m.subject_len = entry.reply_len
            m.reply = m.shown = cython.NULL
            m.reply_len = m.shown_len = m.header_len = 0
            m.via = MADE
            m.body = cython.cast(cython.p_uchar, PyBytes_AS_STRING(payload))
            m.size = PyBytes_GET_SIZE(payload)
            account.publish(cython.address(m), None)

    def clear(self) -> None:
        """Forget what waits; those publishers get no answer."""
        self.count = 0
