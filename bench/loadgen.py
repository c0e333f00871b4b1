"""Compiled load generator: raw sockets, prebuilt batches, and no interpreter while it measures.

Every entry point takes file descriptors of connected, blocking sockets whose SO_RCVTIMEO and
SO_SNDTIMEO are set (a silent server then shows as `LoadError`, never as a hang), and drops the
GIL for its whole run, so that one Python thread per socket is real parallelism. Received
messages are counted by the lengths in their frames; payload bytes are never searched.

Sids mean: 1 measured messages, 2 the end mark, 3 publish acknowledgements, 4 stream messages.
"""

from array import array

import cython
from cython.cimports.libc.errno import EAGAIN, EINTR, errno
from cython.cimports.libc.stdlib import free, malloc
from cython.cimports.libc.string import memchr, memcmp, memcpy, memmove
from cython.cimports.posix.time import CLOCK_MONOTONIC, clock_gettime, timespec
from cython.cimports.posix.unistd import read, write

BUFFER = cython.declare(cython.Py_ssize_t, 1 << 20)
"""Bytes of the receive buffer; one frame must fit."""

NEED_MORE = cython.declare(cython.int, 0)
MESSAGE = cython.declare(cython.int, 1)
PONG = cython.declare(cython.int, 2)
OTHER = cython.declare(cython.int, 3)
FAULT = cython.declare(cython.int, -1)

F_EOF = cython.declare(cython.int, 1)
F_TIMEOUT = cython.declare(cython.int, 2)
F_ERR = cython.declare(cython.int, 3)
F_GARBAGE = cython.declare(cython.int, 4)
F_REFUSED = cython.declare(cython.int, 5)
F_WRITE = cython.declare(cython.int, 6)

FAULT_NAMES = {
    1: "server closed the connection",
    2: "server sent nothing for the whole timeout",
    3: "server reported an error",
    4: "bytes that are no frame",
    5: "JetStream refused",
    6: "server took no bytes for the whole timeout, or closed the connection",
}

NO_REPLIES = b""


class LoadError(Exception):
    """A measurement that cannot be trusted: lost link, -ERR, refusal, timeout or bad bytes."""


@cython.cfunc
@cython.nogil
@cython.inline
@cython.exceptval(check=False)
def now_ns() -> cython.longlong:
    t = cython.declare(timespec)
    clock_gettime(CLOCK_MONOTONIC, cython.address(t))
    return t.tv_sec * cython.cast(cython.longlong, 1000000000) + t.tv_nsec


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def write_all(fd: cython.int, data: cython.p_char, size: cython.Py_ssize_t) -> cython.int:
    """Write everything; 0, or F_WRITE when the socket refuses for its timeout."""
    done: cython.Py_ssize_t = 0
    n: cython.Py_ssize_t
    while done < size:
        n = write(fd, data + done, size - done)
        if n > 0:
            done += n
        elif n < 0 and errno == EINTR:
            continue
        else:
            return F_WRITE
    return 0


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def find(
    hay: cython.p_char, size: cython.Py_ssize_t, needle: cython.p_char, length: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """Offset of `needle` in `hay`, or -1."""
    at: cython.Py_ssize_t = 0
    hit: cython.p_char
    while size - at >= length:
        hit = cython.cast(cython.p_char, memchr(hay + at, needle[0], size - at - length + 1))
        if hit == cython.NULL:
            return -1
        at = hit - hay
        if memcmp(hit, needle, length) == 0:
            return at
        at += 1
    return -1


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def digits(data: cython.p_char, size: cython.Py_ssize_t) -> cython.longlong:
    """The decimal number at the start of `data`; -1 when there is no digit."""
    value: cython.longlong = 0
    i: cython.Py_ssize_t = 0
    while i < size and i < 18 and 48 <= data[i] <= 57:
        value = value * 10 + (data[i] - 48)
        i += 1
    return value if i else -1


@cython.cclass
class Reader:
    """Frames of one socket: reads, splits, answers PING, remembers why it stopped."""

    fd: cython.int
    buf: cython.p_char
    have: cython.Py_ssize_t
    pos: cython.Py_ssize_t
    fault: cython.int
    why: cython.p_char
    why_len: cython.Py_ssize_t
    sid: cython.char
    reply: cython.p_char
    reply_len: cython.Py_ssize_t
    head: cython.p_char
    head_len: cython.Py_ssize_t
    body: cython.p_char
    body_len: cython.Py_ssize_t

    def __cinit__(self, fd: cython.int):
        self.fd = fd
        self.buf = cython.cast(cython.p_char, malloc(BUFFER))
        if self.buf == cython.NULL:
            raise MemoryError
        self.have = self.pos = self.why_len = 0
        self.fault = 0

    def __dealloc__(self):
        free(self.buf)

    @cython.cfunc
    def check(self) -> object:
        """Raise `LoadError` when a nogil part stopped on a fault."""
        if self.fault == 0:
            return None
        text = FAULT_NAMES[self.fault]
        if self.why_len:
            text += ": " + self.why[: self.why_len].decode("utf-8", "replace").strip()
        raise LoadError(text)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def fail(self, fault: cython.int, why: cython.p_char, size: cython.Py_ssize_t) -> cython.int:
        self.fault = fault
        self.why = why
        self.why_len = size if size < 300 else 300
        return FAULT

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def fill(self) -> cython.int:
        """Block for more bytes; 0 or FAULT."""
        n: cython.Py_ssize_t
        if self.pos:
            memmove(self.buf, self.buf + self.pos, self.have - self.pos)
            self.have -= self.pos
            self.pos = 0
        if self.have >= BUFFER:
            return self.fail(F_GARBAGE, self.buf, 60)
        while True:
            n = read(self.fd, self.buf + self.have, BUFFER - self.have)
            if n > 0:
                self.have += n
                return 0
            if n == 0:
                return self.fail(F_EOF, self.buf, 0)
            if errno == EAGAIN:
                return self.fail(F_TIMEOUT, self.buf, 0)
            if errno != EINTR:
                return self.fail(F_EOF, self.buf, 0)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def next(self) -> cython.int:
        """Take one frame from the buffer: NEED_MORE, MESSAGE, PONG, OTHER or FAULT."""
        p: cython.p_char = self.buf + self.pos
        left: cython.Py_ssize_t = self.have - self.pos
        end: cython.p_char
        line: cython.Py_ssize_t
        if left < 1:
            return NEED_MORE
        end = cython.cast(cython.p_char, memchr(p, 10, left))
        if end == cython.NULL:
            return NEED_MORE
        line = end - p + 1
        if line < 5 or p[line - 2] != 13:
            self.pos += line
            return OTHER if line == 5 and p[0] == 43 else self.fail(F_GARBAGE, p, line)
        if p[0] == 77:
            return self.message(p + 4, line - 6, p + line, left - line, False)
        if p[0] == 72:
            return self.message(p + 5, line - 7, p + line, left - line, True)
        self.pos += line
        return self.control(p, line)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def control(self, p: cython.p_char, line: cython.Py_ssize_t) -> cython.int:
        if p[0] == 80 and p[1] == 79:
            return PONG
        if p[0] == 80 and p[1] == 73:
            if write_all(self.fd, b"PONG\r\n", 6):
                return self.fail(F_WRITE, p, 0)
            return OTHER
        if p[0] == 45:
            return self.fail(F_ERR, p, line)
        if p[0] == 73 or p[0] == 43:
            return OTHER
        return self.fail(F_GARBAGE, p, line)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def message(
        self,
        args: cython.p_char,
        size: cython.Py_ssize_t,
        body: cython.p_char,
        left: cython.Py_ssize_t,
        headers: cython.bint,
    ) -> cython.int:
        """Split `<subject> <sid> [reply] [header size] <total size>` of `size` bytes."""
        at = cython.declare(cython.Py_ssize_t[5])
        n: cython.Py_ssize_t = 1
        i: cython.Py_ssize_t = 0
        hit: cython.p_char
        total: cython.longlong
        head: cython.longlong = 0
        at[0] = 0
        while n < 5:
            hit = cython.cast(cython.p_char, memchr(args + i, 32, size - i))
            if hit == cython.NULL:
                break
            i = hit - args + 1
            at[n] = i
            n += 1
        if n < (4 if headers else 3):
            return self.fail(F_GARBAGE, args, size)
        total = digits(args + at[n - 1], size - at[n - 1])
        if headers:
            head = digits(args + at[n - 2], size - at[n - 2])
            n -= 1
        if total < 0 or head < 0 or head > total or total + 2 > BUFFER - 4096:
            return self.fail(F_GARBAGE, args, size)
        if left < total + 2:
            return NEED_MORE
        self.sid = args[at[1]]
        self.reply = args + at[2]
        self.reply_len = at[3] - at[2] - 1 if n == 4 else 0
        self.head = body
        self.head_len = head
        self.body = body + head
        self.body_len = total - head
        self.pos = body + total + 2 - self.buf
        return MESSAGE

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def until(self, kind: cython.int) -> cython.int:
        """Read on until a frame of this kind; the kind or FAULT."""
        got: cython.int
        while True:
            got = self.next()
            if got in (kind, FAULT):
                return got
            if got == NEED_MORE and self.fill():
                return FAULT

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def same(
        self, want: cython.p_char, want_len: cython.Py_ssize_t, frame: cython.Py_ssize_t
    ) -> cython.longlong:
        """Take the run of frames of `frame` bytes that begin with `want`; how many."""
        count: cython.longlong = 0
        p: cython.p_char = self.buf + self.pos
        last: cython.p_char = self.buf + self.have - frame
        while p <= last and p[frame - 1] == 10 and memcmp(p, want, want_len) == 0:
            p += frame
            count += 1
        self.pos = p - self.buf
        return count

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def status(self) -> cython.longlong:
        """The status number of a message that has only a status header; 0 for others."""
        if self.head_len < 12 or memcmp(self.head, b"NATS/1.0 ", 9) != 0:
            return 0
        number: cython.longlong = digits(self.head + 9, self.head_len - 9)
        return number if number > 0 else 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def acknowledged(self) -> cython.longlong:
        """The sequence in a publish acknowledgement, or FAULT."""
        at: cython.Py_ssize_t = find(self.body, self.body_len, b'"seq":', 6)
        if self.sid != 51 or self.head_len:
            return self.fail(F_REFUSED, self.head, self.head_len + self.body_len)
        if at < 0 or find(self.body, self.body_len, b'"error"', 7) >= 0:
            return self.fail(F_REFUSED, self.body, self.body_len)
        return digits(self.body + at + 6, self.body_len - at - 6)


def publish(
    fd: cython.int,
    frames: bytes,
    frame: cython.Py_ssize_t,
    per_write: cython.Py_ssize_t,
    total: cython.longlong,
    end: bytes,
    cap_ns: cython.longlong,
) -> tuple:
    """Write `total` frames (a multiple of `per_write`), then `end` (which must ask for a PONG).

    `frames` holds whole writes of equal frames of `frame` bytes and is used round and round.
    Stops early once `cap_ns` have passed. Returns (frames sent, start ns, ns at the PONG).
    """
    reader: Reader = Reader(fd)
    data: cython.p_char = frames
    mark: cython.p_char = end
    mark_len: cython.Py_ssize_t = len(end)
    step: cython.Py_ssize_t = frame * per_write
    size: cython.Py_ssize_t = len(frames)
    at: cython.Py_ssize_t = 0
    sent: cython.longlong = 0
    begin: cython.longlong
    if step <= 0 or size % step or not size:
        raise ValueError("frames must be whole writes")
    with cython.nogil:
        begin = now_ns()
        while sent < total and now_ns() - begin < cap_ns:
            if write_all(fd, data + at, step):
                reader.fail(F_WRITE, data, 0)
                break
            sent += per_write
            at += step
            if at == size:
                at = 0
        if reader.fault == 0:
            if write_all(fd, mark, mark_len):
                reader.fail(F_WRITE, data, 0)
            else:
                reader.until(PONG)
    reader.check()
    return sent, begin, now_ns()


def receive(fd: cython.int, header: bytes, payload: cython.Py_ssize_t) -> tuple:
    """Count messages that begin with `header` until the end mark; (count, ns at the end mark).

    Any other message is a fault: the count is of exactly what was published.
    """
    reader: Reader = Reader(fd)
    want: cython.p_char = header
    want_len: cython.Py_ssize_t = len(header)
    frame: cython.Py_ssize_t = want_len + payload + 2
    count: cython.longlong = 0
    got: cython.int
    with cython.nogil:
        while True:
            count += reader.same(want, want_len, frame)
            got = reader.next()
            if got == FAULT or (got == NEED_MORE and reader.fill()):
                break
            if got == MESSAGE:
                if reader.sid == 50:
                    break
                reader.fail(F_GARBAGE, reader.reply, 60)
                break
    reader.check()
    return count, now_ns()


def receive_any(fd: cython.int) -> tuple:
    """Count messages of any subject on sids that begin with 1, until the end mark; (count, ns)."""
    reader: Reader = Reader(fd)
    count: cython.longlong = 0
    got: cython.int
    with cython.nogil:
        while True:
            got = reader.next()
            if got == FAULT or (got == NEED_MORE and reader.fill()):
                break
            if got == MESSAGE:
                if reader.sid == 50:
                    break
                count += 1
    reader.check()
    return count, now_ns()


def receive_count(fd: cython.int, total: cython.longlong) -> tuple:
    """Take so many messages on sids that begin with 1; (count, ns at the last)."""
    reader: Reader = Reader(fd)
    count: cython.longlong = 0
    with cython.nogil:
        while count < total and reader.until(MESSAGE) != FAULT:
            if reader.sid == 49:
                count += 1
    reader.check()
    return count, now_ns()


def ask_window(
    fd: cython.int,
    frames: bytes,
    frame: cython.Py_ssize_t,
    per_write: cython.Py_ssize_t,
    cap_ns: cython.longlong,
) -> tuple:
    """Send requests, `per_write` at a time, and wait for as many answers; (answers, ns).

    An answer with a status is a fault.
    """
    reader: Reader = Reader(fd)
    data: cython.p_char = frames
    size: cython.Py_ssize_t = len(frames)
    step: cython.Py_ssize_t = frame * per_write
    at: cython.Py_ssize_t = 0
    open_: cython.Py_ssize_t
    done: cython.longlong = 0
    begin: cython.longlong
    if step <= 0 or size % step:
        raise ValueError("frames must be whole writes")
    with cython.nogil:
        begin = now_ns()
        while reader.fault == 0 and at < size and now_ns() - begin < cap_ns:
            if write_all(fd, data + at, step):
                reader.fail(F_WRITE, data, 0)
            at += step
            open_ = per_write
            while open_ and reader.until(MESSAGE) != FAULT:
                if reader.status():
                    reader.fail(F_REFUSED, reader.head, reader.head_len)
                    break
                open_ -= 1
                done += 1
    reader.check()
    return done, now_ns() - begin


def roundtrips(
    asker_fd: cython.int,
    server_fd: cython.int,
    request: bytes,
    answer: bytes,
    total: cython.longlong,
    cap_ns: cython.longlong,
) -> tuple:
    """Ask, be asked, answer, be answered, one at a time; (array of ns each, ns in all)."""
    asker: Reader = Reader(asker_fd)
    server: Reader = Reader(server_fd)
    samples = array("q", bytes(8 * total))
    out: cython.longlong[:] = samples
    ask: cython.p_char = request
    ask_len: cython.Py_ssize_t = len(request)
    tell: cython.p_char = answer
    tell_len: cython.Py_ssize_t = len(answer)
    done: cython.longlong = 0
    begin: cython.longlong
    last: cython.longlong
    at: cython.longlong
    with cython.nogil:
        begin = last = now_ns()
        while done < total and last - begin < cap_ns:
            if write_all(asker_fd, ask, ask_len):
                asker.fail(F_WRITE, ask, 0)
                break
            if server.until(MESSAGE) == FAULT:
                break
            if write_all(server_fd, tell, tell_len):
                server.fail(F_WRITE, ask, 0)
                break
            if asker.until(MESSAGE) == FAULT:
                break
            if asker.head_len:
                asker.fail(F_REFUSED, asker.head, asker.head_len)
                break
            at = now_ns()
            out[done] = at - last
            last = at
            done += 1
    asker.check()
    server.check()
    return samples[:done], last - begin


def publish_window(
    fd: cython.int,
    frames: bytes,
    frame: cython.Py_ssize_t,
    per_write: cython.Py_ssize_t,
    total: cython.longlong,
    window: cython.longlong,
    cap_ns: cython.longlong,
) -> tuple:
    """Publish to a stream with at most `window` unacknowledged messages.

    Returns (acknowledged, last sequence acknowledged, ns). Stops sending after `cap_ns` and
    then waits for what is outstanding.
    """
    reader: Reader = Reader(fd)
    data: cython.p_char = frames
    step: cython.Py_ssize_t = frame * per_write
    size: cython.Py_ssize_t = len(frames)
    at: cython.Py_ssize_t = 0
    sent: cython.longlong = 0
    acked: cython.longlong = 0
    seq: cython.longlong = 0
    got: cython.int
    begin: cython.longlong
    finish: cython.longlong
    sending: cython.bint = True
    if step <= 0 or size % step or not size or window < per_write:
        raise ValueError("frames must be whole writes, and a write must fit the window")
    with cython.nogil:
        begin = now_ns()
        while sending or acked < sent:
            if sending and sent - acked <= window - per_write:
                if write_all(fd, data + at, step):
                    reader.fail(F_WRITE, data, 0)
                    break
                sent += per_write
                at = at + step if at + step < size else 0
                sending = sent < total and now_ns() - begin < cap_ns
                continue
            got = reader.next()
            if got == FAULT or (got == NEED_MORE and reader.fill()):
                break
            if got == MESSAGE:
                seq = reader.acknowledged()
                if seq < 0:
                    break
                acked += 1
        finish = now_ns()
    reader.check()
    return acked, seq, finish - begin


def publish_sync(
    fd: cython.int, request: bytes, total: cython.longlong, cap_ns: cython.longlong
) -> tuple:
    """Publish to a stream and wait for each acknowledgement; (array of ns, ns in all)."""
    reader: Reader = Reader(fd)
    samples = array("q", bytes(8 * total))
    out: cython.longlong[:] = samples
    data: cython.p_char = request
    size: cython.Py_ssize_t = len(request)
    done: cython.longlong = 0
    begin: cython.longlong
    last: cython.longlong
    at: cython.longlong
    with cython.nogil:
        begin = last = now_ns()
        while done < total and last - begin < cap_ns:
            if write_all(fd, data, size):
                reader.fail(F_WRITE, data, 0)
                break
            if reader.until(MESSAGE) == FAULT or reader.acknowledged() < 0:
                break
            at = now_ns()
            out[done] = at - last
            last = at
            done += 1
    reader.check()
    return samples[:done], last - begin


@cython.cclass
class Outbox:
    """Small commands collected while a received chunk is walked, written once after it."""

    fd: cython.int
    buf: cython.p_char
    size: cython.Py_ssize_t

    def __cinit__(self, fd: cython.int):
        self.fd = fd
        self.size = 0
        self.buf = cython.cast(cython.p_char, malloc(BUFFER))
        if self.buf == cython.NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.buf)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def put(
        self,
        subject: cython.p_char,
        size: cython.Py_ssize_t,
        tail: cython.p_char,
        tail_len: cython.Py_ssize_t,
    ) -> cython.int:
        """Append `PUB <subject><tail>`; F_WRITE when the buffer had to be flushed and was not."""
        need: cython.Py_ssize_t = 4 + size + tail_len
        if need > BUFFER or (self.size + need > BUFFER and self.flush()):
            return F_WRITE
        memcpy(self.buf + self.size, b"PUB ", 4)
        memcpy(self.buf + self.size + 4, subject, size)
        memcpy(self.buf + self.size + 4 + size, tail, tail_len)
        self.size += need
        return 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def flush(self) -> cython.int:
        got: cython.int = 0
        if self.size:
            got = write_all(self.fd, self.buf, self.size)
            self.size = 0
        return got


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def flow(reader: Reader, outbox: Outbox) -> cython.int:
    """Answer flow control: the request itself, or a heartbeat that says that one was missed."""
    at: cython.Py_ssize_t
    end: cython.p_char
    if reader.reply_len:
        return outbox.put(reader.reply, reader.reply_len, b" 0\r\n\r\n", 6)
    at = find(reader.head, reader.head_len, b"Nats-Consumer-Stalled: ", 23)
    if at < 0:
        return 0
    at += 23
    end = cython.cast(cython.p_char, memchr(reader.head + at, 13, reader.head_len - at))
    if end == cython.NULL:
        return 0
    return outbox.put(reader.head + at, end - reader.head - at, b" 0\r\n\r\n", 6)


def drain_push(
    fd: cython.int, command: bytes, total: cython.longlong, cap_ns: cython.longlong
) -> tuple:
    """Send `command` (which creates a push consumer on sid 4) and take its messages.

    Answers flow control. Returns (messages, ns from the command to the last message).
    """
    reader: Reader = Reader(fd)
    outbox: Outbox = Outbox(fd)
    data: cython.p_char = command
    size: cython.Py_ssize_t = len(command)
    count: cython.longlong = 0
    status: cython.longlong
    got: cython.int
    begin: cython.longlong
    finish: cython.longlong
    with cython.nogil:
        begin = now_ns()
        if write_all(fd, data, size):
            reader.fail(F_WRITE, data, 0)
        while reader.fault == 0 and count < total:
            got = reader.next()
            if got == NEED_MORE:
                if outbox.flush():
                    reader.fail(F_WRITE, data, 0)
                elif now_ns() - begin > cap_ns or reader.fill():
                    break
            elif got == MESSAGE:
                status = reader.status()
                if reader.sid != 52:
                    if find(reader.body, reader.body_len, b'"error"', 7) >= 0 or status:
                        reader.fail(F_REFUSED, reader.head, reader.head_len + reader.body_len)
                elif status == 100:
                    if flow(reader, outbox):
                        reader.fail(F_WRITE, data, 0)
                elif status:
                    reader.fail(F_REFUSED, reader.head, reader.head_len)
                else:
                    count += 1
        finish = now_ns()
    reader.check()
    return count, finish - begin


def drain_pull(
    fd: cython.int,
    request: bytes,
    batch: cython.longlong,
    low: cython.longlong,
    ack: cython.bint,
    total: cython.longlong,
    cap_ns: cython.longlong,
) -> tuple:
    """Take a stream by pull requests; (messages, ns).

    `request` asks for `batch` messages on sid 4 and is sent again whenever no more than `low`
    of those asked for are outstanding. With `ack` every message is acknowledged with +ACK.
    """
    reader: Reader = Reader(fd)
    outbox: Outbox = Outbox(fd)
    data: cython.p_char = request
    size: cython.Py_ssize_t = len(request)
    count: cython.longlong = 0
    asked: cython.longlong = 0
    status: cython.longlong
    got: cython.int
    begin: cython.longlong
    finish: cython.longlong
    with cython.nogil:
        begin = now_ns()
        while reader.fault == 0 and count < total:
            if asked - count <= low and asked < total:
                if outbox.flush() or write_all(fd, data, size):
                    reader.fail(F_WRITE, data, 0)
                    break
                asked += batch
            got = reader.next()
            if got == NEED_MORE:
                if outbox.flush():
                    reader.fail(F_WRITE, data, 0)
                elif now_ns() - begin > cap_ns or reader.fill():
                    break
            elif got == MESSAGE:
                status = reader.status()
                if status == 404 or status == 408:
                    asked = count
                elif status > 100 or reader.sid != 52:
                    reader.fail(F_REFUSED, reader.head, reader.head_len + reader.body_len)
                elif status == 0:
                    count += 1
                    if ack and outbox.put(reader.reply, reader.reply_len, b" 4\r\n+ACK\r\n", 10):
                        reader.fail(F_WRITE, data, 0)
        if outbox.flush():
            reader.fail(F_WRITE, data, 0)
        finish = now_ns()
    reader.check()
    return count, finish - begin
