"""Wire bytes to Arrow-layout columns: the NATS client protocol, read into growing buffers.

Compiled. A `WireReader` owns one receive buffer and the columns of the batch that is being
filled. It parses MSG and HMSG frames of one consumer subscription straight into offsets and
data; every other frame is handed back as a `Frame`. It must not know sockets, Spark or options.

The caller loops on `advance()` and acts on its answer:

    NEED      more bytes are needed: call `receive` (or `feed`)
    FRAME     a control frame is in `frame`
    FULL      the batch reached its target: call `drain`
    END       the end sequence was delivered, or a later one: the range is complete
    DRAINED   the server says that nothing is pending, below the end sequence
    DISORDER  a delivery is missing or repeated: open a new consumer after `last_sequence`

Sources: the client protocol (INFO, MSG, HMSG, PING, -ERR), ADR-4 (headers), ADR-15 (the
`$JS.ACK` reply, 9 tokens, or 11 and more with domain and account).
"""

from typing import NamedTuple

import cython
from cython.cimports.cpython.bytearray import (
    PyByteArray_AS_STRING,
    PyByteArray_FromStringAndSize,
    PyByteArray_Resize,
)
from cython.cimports.cpython.bytes import (
    PyBytes_AS_STRING,
    PyBytes_FromStringAndSize,
    PyBytes_GET_SIZE,
)
from cython.cimports.cpython.memoryview import PyMemoryView_FromMemory
from cython.cimports.headwater.spark.wire.arrow_columns import Buffer, TextColumn
from cython.cimports.headwater.spark.wire.header_maps import HeaderMaps
from cython.cimports.libc.stdint import int32_t, int64_t
from cython.cimports.libc.string import memchr, memcmp, memcpy, memmove

from headwater.spark.wire.errors import WireError

_ROW = cython.declare(cython.int, -1)
_NEED = cython.declare(cython.int, 0)
_FRAME = cython.declare(cython.int, 1)
_FULL = cython.declare(cython.int, 2)
_END = cython.declare(cython.int, 3)
_DRAINED = cython.declare(cython.int, 4)
_DISORDER = cython.declare(cython.int, 5)

NEED, FRAME, FULL, END, DRAINED, DISORDER = 0, 1, 2, 3, 4, 5

_RAW = cython.declare(cython.int, 1)
_MAP = cython.declare(cython.int, 2)
_ARROW = cython.declare(cython.int, 1)
_LIST = cython.declare(cython.int, 2)

HEADERS_OFF, HEADERS_RAW, HEADERS_MAP = 0, 1, 2
PAYLOAD_OFF, PAYLOAD_ARROW, PAYLOAD_LIST = 0, 1, 2

#: Largest control line taken, bytes. INFO of a big cluster is the longest line there is.
MAX_LINE = 1 << 20
#: Largest message taken, bytes; nats-server itself allows no `max_payload` above 64 MiB.
MAX_MESSAGE = 64 << 20
#: Free room made before each read from the socket, bytes.
READ_SIZE = 256 << 10
#: Most rows of one batch.
MAX_ROWS = 65536

_MAX_TOKENS = cython.declare(cython.int, 16)
_C_READ_SIZE = cython.declare(cython.Py_ssize_t, READ_SIZE)
# What is read behind the end of a large message is copied once more.
_AFTER_LARGE = cython.declare(cython.Py_ssize_t, 32 << 10)
# Messages from this size on, bytes, are read to where they stay.
_LARGE = cython.declare(cython.Py_ssize_t, 128 << 10)
_PY_WRITE = cython.declare(cython.int, 0x200)
_C_MAX_LINE = cython.declare(cython.Py_ssize_t, MAX_LINE)
_C_MAX_MESSAGE = cython.declare(cython.Py_ssize_t, MAX_MESSAGE)
_C_MAX_ROWS = cython.declare(cython.Py_ssize_t, MAX_ROWS)


class Frame(NamedTuple):
    """A frame that is not a row. `verb` is INFO, MSG, PING, PONG, OK or ERR.

    `payload` is the JSON of INFO, the text of -ERR, or the message. `headers` is the raw
    header block, empty when there is none. `sid` is 0 unless the verb is MSG.
    """

    verb: str
    subject: str
    sid: int
    reply: str
    headers: bytes
    payload: bytes


class Columns(NamedTuple):
    """One batch. Buffers are (bytearray, used bytes); a column that is off is None.

    Offsets are int32, `sequence` int64, `timestamp` int64 ns since 1970 UTC.
    `payloads` is a list of bytes when payloads were asked for as objects.
    """

    rows: int
    sequence: tuple
    timestamp: tuple
    subject_offsets: tuple | None
    subject_data: tuple | None
    payload_offsets: tuple | None
    payload_data: tuple | None
    payloads: list | None
    header_offsets: tuple | None
    header_data: tuple | None
    pairs: int
    key_offsets: tuple | None
    key_data: tuple | None
    value_offsets: tuple | None
    value_data: tuple | None


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _digits(source: cython.p_char, size: cython.Py_ssize_t) -> int64_t:
    """An unsigned decimal number of 1 to 18 digits; -1 when it is not one."""
    i: cython.Py_ssize_t
    value: int64_t = 0
    if size < 1 or size > 18:
        return -1
    for i in range(size):
        if source[i] < 48 or source[i] > 57:
            return -1
        value = value * 10 + (source[i] - 48)
    return value


@cython.cfunc
@cython.inline
def _nanoseconds(source: cython.p_char, size: cython.Py_ssize_t, ok: cython.p_int) -> int64_t:
    """A signed decimal number of at most 19 digits; sets `ok[0]` to 0 when it is not one."""
    i: cython.Py_ssize_t = 0
    value: int64_t = 0
    sign: int64_t = 1
    if size > 0 and source[0] == 45:
        sign = -1
        i = 1
    if size - i < 1 or size - i > 19 or (size - i == 19 and source[i] > 56):
        ok[0] = 0
        return 0
    while i < size:
        if source[i] < 48 or source[i] > 57:
            ok[0] = 0
            return 0
        value = value * 10 + (source[i] - 48)
        i += 1
    return value * sign


@cython.final
@cython.cclass
class WireReader:
    """Parses one connection and fills one batch at a time.

    `first` is the first sequence wanted and `end` the last one, both inclusive. `target_bytes`
    is the size after which a batch is full. Memory is bounded by the batch target, one
    message above it, and one receive buffer of at most `MAX_MESSAGE` plus a control line.
    """

    frame = cython.declare(object, visibility="readonly")
    last_sequence = cython.declare(int64_t, visibility="readonly")
    received = cython.declare(int64_t, visibility="readonly")
    rows = cython.declare(cython.Py_ssize_t, visibility="readonly")
    _end: int64_t
    _delivered: int64_t
    _data_sid: int64_t
    _target: cython.Py_ssize_t
    _row_bytes: cython.Py_ssize_t
    _want_subject: cython.bint
    _payload_mode: cython.int
    _headers_mode: cython.int
    _sequence: Buffer
    _timestamp: Buffer
    _subject: TextColumn
    _payload: TextColumn
    _payloads: list
    _header: TextColumn
    _maps: HeaderMaps
    _chunk: bytearray
    _ptr: cython.p_char
    _capacity: cython.Py_ssize_t
    _pos: cython.Py_ssize_t
    _filled: cython.Py_ssize_t
    _large: bytes
    _large_at: cython.Py_ssize_t
    _large_sid: int64_t
    _large_subject: str
    _large_reply: str
    _read_size: cython.Py_ssize_t
    _token_at: cython.Py_ssize_t[16]
    _token_size: cython.Py_ssize_t[16]

    def __init__(
        self,
        first: int = 1,
        end: int = 0,
        target_bytes: int = 2 << 20,
        subject: bool = True,
        payload: int = PAYLOAD_ARROW,
        headers: int = HEADERS_OFF,
    ) -> None:
        self.frame = None
        self.last_sequence = first - 1
        self.received = 0
        self.rows = 0
        self._end = end
        self._delivered = 0
        self._data_sid = 0
        self._target = target_bytes
        self._row_bytes = 0
        self._want_subject = subject
        self._payload_mode = payload
        self._headers_mode = headers
        self._sequence = Buffer()
        self._timestamp = Buffer()
        self._subject = TextColumn()
        self._payload = TextColumn()
        self._payloads = []
        self._header = TextColumn()
        self._maps = HeaderMaps()
        self._capacity = 2 * _C_READ_SIZE
        self._chunk = PyByteArray_FromStringAndSize(cython.NULL, self._capacity)
        self._ptr = PyByteArray_AS_STRING(self._chunk)
        self._pos = 0
        self._filled = 0
        self._large = None
        self._large_at = 0
        self._large_sid = 0
        self._large_subject = self._large_reply = ""
        self._read_size = _C_READ_SIZE

    def expect(self, sid: int) -> None:
        """Rows now come from subscription `sid`, whose consumer starts to count at 1.

        Frames of any other subscription are handed back; 0 turns rows off.
        """
        self._data_sid = sid
        self._delivered = 0

    def reset(self) -> None:
        """Forget received bytes, for a new connection. Rows that are in the batch stay."""
        self._pos = 0
        self._filled = 0
        self._large = None
        self._read_size = _C_READ_SIZE
        self._data_sid = 0
        self.frame = None

    def feed(self, data: bytes) -> None:
        """Append received bytes."""
        size: cython.Py_ssize_t = len(data)
        source: cython.p_char = data
        some: cython.Py_ssize_t
        if self._lacks():
            some = min(size, PyBytes_GET_SIZE(self._large) - self._large_at)
            memcpy(PyBytes_AS_STRING(self._large) + self._large_at, source, some)
            self._large_at += some
            source += some
            size -= some
        self._make_room(size)
        memcpy(self._ptr + self._filled, source, size)
        self._filled += size

    def receive(self, recv_into) -> int:
        """Call `recv_into(memoryview)` once on the free room; returns the bytes it read."""
        count: cython.Py_ssize_t
        most: cython.Py_ssize_t
        target: cython.p_char
        if self._lacks():
            most = PyBytes_GET_SIZE(self._large) - self._large_at
            target = PyBytes_AS_STRING(self._large) + self._large_at
        else:
            self._make_room(self._read_size)
            most = self._read_size
            target = self._ptr + self._filled
        room = PyMemoryView_FromMemory(target, most, _PY_WRITE)
        try:
            count = recv_into(room)
        finally:
            room.release()
        if count < 0 or count > most:
            raise WireError("the read reported an impossible size")
        if self._lacks():
            self._large_at += count
        else:
            self._filled += count
        return count

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _lacks(self) -> cython.bint:
        """Whether what comes next belongs to a large message."""
        return self._large is not None and self._large_at < PyBytes_GET_SIZE(self._large)

    @cython.cfunc
    @cython.exceptval(-1)
    def _make_room(self, extra: cython.Py_ssize_t) -> cython.int:
        left: cython.Py_ssize_t = self._filled - self._pos
        if self._pos > 0:
            if left > 0:
                memmove(self._ptr, self._ptr + self._pos, left)
            self._pos = 0
            self._filled = left
        if self._capacity - left < extra:
            size: cython.Py_ssize_t = self._capacity
            while size - left < extra:
                size *= 2
            PyByteArray_Resize(self._chunk, size)
            self._ptr = PyByteArray_AS_STRING(self._chunk)
            self._capacity = size
        return 0

    def advance(self) -> int:
        """Parse until something must be done; see the module for the answers.

        Raises WireError on bytes that are not the protocol. The connection is useless then.
        """
        answer: cython.int
        while True:
            if self._row_bytes >= self._target or self.rows >= _C_MAX_ROWS:
                return _FULL
            answer = self._step()
            if answer >= 0:
                return answer

    @cython.cfunc
    @cython.exceptval(-2)
    def _step(self) -> cython.int:
        """One frame: an answer of `advance`, or -1 when a row was added and parsing goes on."""
        left: cython.Py_ssize_t = self._filled - self._pos
        line: cython.p_char = self._ptr + self._pos
        newline: cython.p_char
        size: cython.Py_ssize_t
        if self._large is not None:
            return self._end_large(line, left)
        if left == 0:
            return _NEED
        newline = cython.cast(cython.p_char, memchr(line, 10, left))
        if newline == cython.NULL:
            if left > _C_MAX_LINE:
                raise WireError("a control line is longer than 1 MiB")
            return _NEED
        size = newline - line
        taken: cython.Py_ssize_t = size + 1
        if size > 0 and line[size - 1] == 13:
            size -= 1
        if size >= 4 and memcmp(line, b"MSG ", 4) == 0:
            return self._message(line, 4, size, taken, False)
        if size >= 5 and memcmp(line, b"HMSG ", 5) == 0:
            return self._message(line, 5, size, taken, True)
        self._pos += taken
        self._control(line[:size])
        return _FRAME

    @cython.cfunc
    @cython.exceptval(-1)
    def _control(self, line: bytes) -> cython.int:
        head: bytes = line[:5].upper()
        if head == b"PING":
            self.frame = Frame("PING", "", 0, "", b"", b"")
        elif head == b"PONG":
            self.frame = Frame("PONG", "", 0, "", b"", b"")
        elif head == b"INFO ":
            self.frame = Frame("INFO", "", 0, "", b"", line[5:].strip())
        elif head == b"-ERR ":
            self.frame = Frame("ERR", "", 0, "", b"", line[5:].strip().strip(b"'"))
        elif head == b"+OK":
            self.frame = Frame("OK", "", 0, "", b"", b"")
        else:
            raise WireError(f"unknown protocol line {line[:32]!r}")
        return 0

    @cython.cfunc
    def _split(
        self,
        line: cython.p_char,
        at: cython.Py_ssize_t,
        size: cython.Py_ssize_t,
        separator: cython.char,
    ) -> cython.int:
        """Cut line[at:size] into `_token_at` and `_token_size`; at most 16 are kept.

        Runs of spaces count as one separator; runs of dots are empty tokens.
        """
        count: cython.int = 0
        start: cython.Py_ssize_t = at
        while at <= size:
            if at == size or line[at] == separator or (separator == 32 and line[at] == 9):
                if at > start or separator != 32:
                    if count == _MAX_TOKENS:
                        return count
                    self._token_at[count] = start
                    self._token_size[count] = at - start
                    count += 1
                start = at + 1
            at += 1
        return count

    @cython.cfunc
    @cython.exceptval(-2)
    def _message(
        self,
        line: cython.p_char,
        at: cython.Py_ssize_t,
        size: cython.Py_ssize_t,
        taken: cython.Py_ssize_t,
        headers: cython.bint,
    ) -> cython.int:
        count: cython.int = self._split(line, at, size, 32)
        fixed: cython.int = 4 if headers else 3
        total: int64_t
        header_size: int64_t = 0
        if count != fixed and count != fixed + 1:
            raise WireError("a MSG line has the wrong number of arguments")
        sid: int64_t = _digits(line + self._token_at[1], self._token_size[1])
        total = _digits(line + self._token_at[count - 1], self._token_size[count - 1])
        if headers:
            header_size = _digits(line + self._token_at[count - 2], self._token_size[count - 2])
        if total < 0 or total > _C_MAX_MESSAGE or header_size < 0 or header_size > total:
            raise WireError("a MSG line has an impossible size")
        if self._filled - self._pos < taken + total + 2:
            if total >= _LARGE and not headers and sid != self._data_sid:
                return self._begin_large(line, count, sid, taken, total)
            self._make_room(taken + total + 2 - (self._filled - self._pos))
            return _NEED
        body: cython.p_char = line + taken
        if body[total] != 13 or body[total + 1] != 10:
            raise WireError("a message does not end where its size says")
        subject: cython.p_char = line + self._token_at[0]
        subject_size: cython.Py_ssize_t = self._token_size[0]
        reply: cython.p_char = line
        reply_size: cython.Py_ssize_t = 0
        if count == fixed + 1:
            reply = line + self._token_at[2]
            reply_size = self._token_size[2]
        if (
            sid == self._data_sid
            and sid > 0
            and reply_size > 8
            and memcmp(reply, b"$JS.ACK.", 8) == 0
        ):
            return self._row(
                subject, subject_size, reply, reply_size, body, header_size, total, taken
            )
        self.frame = Frame(
            "MSG",
            subject[:subject_size].decode("utf-8", "replace"),
            sid,
            reply[:reply_size].decode("utf-8", "replace"),
            body[:header_size],
            body[header_size:total],
        )
        self._pos += taken + total + 2
        return _FRAME

    @cython.cfunc
    @cython.exceptval(-2)
    def _begin_large(
        self,
        line: cython.p_char,
        count: cython.int,
        sid: int64_t,
        taken: cython.Py_ssize_t,
        total: cython.Py_ssize_t,
    ) -> cython.int:
        """Have the rest of a message read to where it stays: it is not copied any more."""
        there: cython.Py_ssize_t = min(self._filled - self._pos - taken, total)
        subject: bytes = line[self._token_at[0] : self._token_at[0] + self._token_size[0]]
        reply: bytes = b""
        if count == 4:
            reply = line[self._token_at[2] : self._token_at[2] + self._token_size[2]]
        self._large = PyBytes_FromStringAndSize(cython.NULL, total)
        memcpy(PyBytes_AS_STRING(self._large), line + taken, there)
        self._large_at = there
        self._large_subject = subject.decode("utf-8", "replace")
        self._large_reply = reply.decode("utf-8", "replace")
        self._large_sid = sid
        self._pos += taken + there
        self._read_size = _AFTER_LARGE
        return _NEED

    @cython.cfunc
    @cython.exceptval(-2)
    def _end_large(self, line: cython.p_char, left: cython.Py_ssize_t) -> cython.int:
        """The frame of a large message, when all of it is there."""
        if left < 2:
            return _NEED
        if line[0] != 13 or line[1] != 10:
            raise WireError("a message does not end where its size says")
        self.frame = Frame(
            "MSG", self._large_subject, self._large_sid, self._large_reply, b"", self._large
        )
        self._large = None
        self._pos += 2
        return _FRAME

    @cython.cfunc
    @cython.cdivision(True)
    @cython.exceptval(-2)
    def _row(
        self,
        subject: cython.p_char,
        subject_size: cython.Py_ssize_t,
        reply: cython.p_char,
        reply_size: cython.Py_ssize_t,
        body: cython.p_char,
        header_size: cython.Py_ssize_t,
        total: cython.Py_ssize_t,
        taken: cython.Py_ssize_t,
    ) -> cython.int:
        tokens: cython.int = self._split(reply, 0, reply_size, 46)
        base: cython.int
        ok: cython.int = 1
        if tokens == 9:
            base = 5
        elif tokens >= 11:
            base = 7
        else:
            raise WireError("a delivery has an unknown ack subject")
        sequence: int64_t = _digits(reply + self._token_at[base], self._token_size[base])
        count: int64_t = _digits(reply + self._token_at[base + 1], self._token_size[base + 1])
        stamp: int64_t = _nanoseconds(
            reply + self._token_at[base + 2], self._token_size[base + 2], cython.address(ok)
        )
        pending: int64_t = _digits(reply + self._token_at[base + 3], self._token_size[base + 3])
        if sequence < 1 or count < 1 or pending < 0 or not ok:
            raise WireError("a delivery has an unreadable ack subject")
        if count != self._delivered + 1 or sequence <= self.last_sequence:
            return _DISORDER
        self._delivered = count
        self.received += 1
        self._pos += taken + total + 2
        if sequence > self._end:
            return _END
        self.last_sequence = sequence
        self._append(subject, subject_size, sequence, stamp, body, header_size, total)
        if sequence == self._end:
            return _END
        if pending == 0:
            return _DRAINED
        return _ROW

    @cython.cfunc
    @cython.exceptval(-1)
    def _append(
        self,
        subject: cython.p_char,
        subject_size: cython.Py_ssize_t,
        sequence: int64_t,
        stamp: int64_t,
        body: cython.p_char,
        header_size: cython.Py_ssize_t,
        total: cython.Py_ssize_t,
    ) -> cython.int:
        self._sequence.put_int64(sequence)
        self._timestamp.put_int64(stamp)
        self._row_bytes += 16
        if self._want_subject:
            self._subject.put_text(subject, subject_size)
            self._row_bytes += subject_size
        if self._payload_mode == _ARROW:
            self._payload.put(body + header_size, total - header_size)
            self._row_bytes += total - header_size
        elif self._payload_mode == _LIST:
            self._payloads.append(body[header_size:total])
            self._row_bytes += total - header_size
        if self._headers_mode == _RAW:
            self._header.put(body, header_size)
            self._row_bytes += header_size
        elif self._headers_mode == _MAP:
            self._maps.put(body, header_size)
            self._row_bytes += header_size
        self.rows += 1
        return 0

    def add_headers(self, block: bytes) -> None:
        """Append one header block to the maps, for a block read. Needs HEADERS_MAP."""
        self._maps.put(PyBytes_AS_STRING(block), len(block))

    def drain_maps(self) -> tuple:
        """(pairs, offsets, key offsets, keys, value offsets, values) of what was added."""
        return self._maps.drain()

    def drain(self) -> Columns:
        """Give the batch away and start an empty one."""
        subject: tuple = self._subject.drain() if self._want_subject else (None, None)
        payload: tuple = self._payload.drain() if self._payload_mode == _ARROW else (None, None)
        header: tuple = self._header.drain() if self._headers_mode == _RAW else (None, None)
        maps: tuple = (0, None, None, None, None, None)
        payloads = self._payloads if self._payload_mode == _LIST else None
        rows = self.rows
        if self._headers_mode == _MAP:
            maps = self._maps.drain()
        self._payloads = []
        self.rows = 0
        self._row_bytes = 0
        return Columns(
            rows=rows,
            sequence=self._sequence.drain(),
            timestamp=self._timestamp.drain(),
            subject_offsets=subject[0],
            subject_data=subject[1],
            payload_offsets=payload[0],
            payload_data=payload[1],
            payloads=payloads,
            header_offsets=maps[1] if self._headers_mode == _MAP else header[0],
            header_data=header[1],
            pairs=maps[0],
            key_offsets=maps[2],
            key_data=maps[3],
            value_offsets=maps[4],
            value_data=maps[5],
        )


def cut_texts(block: bytes, offsets_at: int, data_at: int, rows: int) -> list:
    """The texts of a column that lies in `block`: int32 offsets and data, from there on.

    Raises WireError when an offset points outside.
    """
    base: cython.p_char = PyBytes_AS_STRING(block)
    size: cython.Py_ssize_t = PyBytes_GET_SIZE(block)
    at: cython.Py_ssize_t = offsets_at
    data: cython.Py_ssize_t = data_at
    count: cython.Py_ssize_t = rows
    i: cython.Py_ssize_t
    start: int32_t = 0
    stop: int32_t = 0
    found: list = []
    if at < 0 or count < 0 or data < 0 or data > size or (size - at) // 4 <= count:
        raise WireError("a block is too short for its column")
    memcpy(cython.address(start), base + at, 4)
    for i in range(count):
        memcpy(cython.address(stop), base + at + 4 * (i + 1), 4)
        if start < 0 or stop < start or stop > size - data:
            raise WireError("an offset of a block points outside")
        found.append(PyBytes_FromStringAndSize(base + data + start, stop - start))
        start = stop
    return found


def is_ascii(block: bytes, start: int, end: int) -> bool:
    """Whether `block[start:end]` is ASCII, without a copy. Raises WireError when it is outside."""
    at: cython.Py_ssize_t = start
    stop: cython.Py_ssize_t = end
    base: cython.p_uchar = cython.cast(cython.p_uchar, PyBytes_AS_STRING(block))
    seen: cython.uchar = 0
    if at < 0 or stop < at or stop > PyBytes_GET_SIZE(block):
        raise WireError("a part of a block lies outside")
    while at < stop:
        seen |= base[at]
        at += 1
    return seen < 128
