"""A connection: one non-blocking socket, its buffers, back-pressure and end.

It owns the file descriptor, the bytes not yet parsed and the bytes not yet sent. What the bytes
mean is for the subclasses (`parse`). Both buffers are bounded: the unparsed one by what `parse`
refuses, the unsent one by `max_pending`, beyond which the peer is cut as a slow consumer.
"""

import logging

import cython
from cython.cimports.cpython.bytes import (
    PyBytes_AS_STRING,
    PyBytes_FromStringAndSize,
    PyBytes_GET_SIZE,
)
from cython.cimports.headwater.edge.kernel.kernel import Endpoint, Kernel, Task
from cython.cimports.headwater.edge.kernel.send_crew import Piece
from cython.cimports.headwater.edge.kernel.sockets import MSG_DONTWAIT, MSG_NOSIGNAL, recv, send
from cython.cimports.libc.errno import EAGAIN, EINTR, errno
from cython.cimports.libc.stdlib import free, realloc
from cython.cimports.libc.string import memcpy, memmove

from headwater.edge.broker.lingering import SHUT_WRITE, Lingering
from headwater.edge.broker.peer_faults import peer_of, tell_excess, tell_fault, tell_handshake
from headwater.edge.logging.logs import TRACE

# Above this many queued bytes producers wait for the receiver, until a quarter of it is left; four
# read buffers, so that one turn's worth of fan-out never stalls a healthy receiver.
HIGH_WATER = cython.declare(cython.Py_ssize_t, 4 << 20)
# Below `max_pending`, what producers may add in the turn in which they begin to wait.
STRETCH_KEPT = cython.declare(cython.Py_ssize_t, 4 << 20)
OUT_INITIAL = cython.declare(cython.Py_ssize_t, 16 << 10)
# A buffer that grew beyond this is given back when it is empty.
OUT_KEPT = cython.declare(cython.Py_ssize_t, 1 << 20)
# An output buffer up to this is given back `REUSE_S` later: a busy receiver fills the next one at
# once, and fresh memory for each turn costs more than the copy into it.
OUT_REUSED = cython.declare(cython.Py_ssize_t, 4 << 20)
REUSE_S = 0.5
# What an accepted connection may send before it has logged in: CONNECT with a long token, and what
# a client sends behind it without waiting.
LOGIN_BYTES = 16 << 10
# What a TLS handshake may take beside that: a client's chain of certificates.
HANDSHAKE_BYTES = cython.declare(cython.Py_ssize_t, 48 << 10)
# Bytes that go through a filter at a time. To a socket that fills up, one TLS record, or what it
# takes in `PIECE_NS`: what has passed the filter cannot be overtaken.
PIECE_FAST = cython.declare(cython.Py_ssize_t, 256 << 10)
PIECE_SLOW = cython.declare(cython.Py_ssize_t, 16 << 10)
PIECE_NS = cython.declare(cython.longlong, 10_000_000)
# Bytes of one read that goes through a filter: its copies fit the processor's cache.
READ_FILTERED = cython.declare(cython.Py_ssize_t, 256 << 10)
HANDSHAKE_FAILURE = "TLS Handshake Failure"

log = logging.getLogger("headwater.broker")
protocol = logging.getLogger("headwater.protocol")


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def usual_high_water(max_pending: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Queued bytes above which producers wait for a receiver that makes progress."""
    return min(HIGH_WATER, max_pending >> 1)


@cython.cclass
class Conn(Endpoint):
    """One peer. `attach` starts it, `close` ends it; `on_closed(conn, reason)` is called once."""

    def __cinit__(self, *args, **kwargs):
        self.fd = -1
        self.out = cython.NULL
        self.buffered = cython.NULL

    def __init__(self, kernel: Kernel, cid: int, max_pending: int):
        self.kernel = kernel
        self.loop = kernel.loop
        self.cid = cid
        self.bound(max_pending)
        self.reason = ""
        self.kept = OUT_KEPT
        self.allowance = -1
        self.progress_ns = self.received_ns = kernel.monotonic_ns()

    def __dealloc__(self):
        free(self.out)
        free(self.buffered)

    def bound(self, max_pending: int) -> None:
        """Let at most `max_pending` bytes wait to be sent before the peer is cut."""
        self.max_pending = max_pending
        self.high_water = usual_high_water(max_pending)
        self.piece = PIECE_SLOW

    def attach(self, sock: object, filter: object = None) -> None:
        """Serve a connected socket, through `filter` when one is given."""
        sock.setblocking(False)
        self.sock = sock
        self.peer = peer_of(sock)
        self.fd = sock.fileno()
        self.use_filter(filter)
        self.trace_protocol()
        self.resume()

    def trace_protocol(self) -> None:
        """Log what is said and heard from now on, or no longer, as the level of the log is."""
        if self.closed or not protocol.isEnabledFor(TRACE):
            self.tracer = None
        elif self.tracer is None:
            from headwater.edge.logging.protocol_log import ProtocolLog

            self.tracer = ProtocolLog(self)

    def use_filter(self, filter: object) -> None:
        """Pass bytes through `filter.receive(data) -> bytes` and `filter.send(data) -> bytes`.

        A filter that has `finish(reason)` is told before the last bytes are sent. What came in one
        read with the line that asked for it goes through it, too: nobody slips plain text past a
        handshake. A filter around another one has `receive_inner(data)` for that.
        """
        self.refitted = filter is not None
        self.filter = filter
        self.wire = bytearray() if filter is not None else None
        if filter is not None and self.allowance >= 0:
            self.allowance += HANDSHAKE_BYTES

    def wrap_filter(self, filter: object) -> None:
        """Put a filter between the one that is there and the protocol."""
        self.refitted = True
        self.filter = filter

    def pass_queued(self) -> None:
        """Pass what is queued through the filter that is there, before another takes its place."""
        while self.out_start < self.out_end or self.next_lane():
            self.filter_piece()

    def prove(self) -> None:
        """The login has succeeded: what comes from now on is bounded by the protocol alone."""
        self.allowance = -1
        if hasattr(self.filter, "prove"):
            self.filter.prove()

    def halt(self) -> None:
        """Read and parse nothing until `proceed`: a login is being decided elsewhere."""
        self.deciding = True
        if self.reading:
            self.reading = False
            self.loop.remove_reader(self.fd)

    def proceed(self) -> None:
        """The login has been decided: go on with what came behind it."""
        if not self.deciding:
            return
        self.deciding = False
        if self.closed:
            return
        self.resume()
        if self.buffered_len:
            self.handle(0)
        self.kernel.kick()

    def resume(self) -> None:
        """Read again."""
        if self.closed or self.reading or self.deciding:
            return
        if self.unfed:
            self.loop.call_soon(self.feed_rest)
        else:
            self.reading = True
            self.loop.add_reader(self.fd, self.on_readable)

    def rest(self) -> None:
        """Let others have their turn before what is left of this peer's input."""
        if self.paused or self.closed:
            return
        self.paused = True
        if self.reading:
            self.reading = False
            self.loop.remove_reader(self.fd)
        self.loop.call_soon(self.go_on)

    def go_on(self) -> None:
        """The end of a `rest`."""
        self.run()
        self.kernel.turn()

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def run(self) -> cython.int:
        """A receiver that this producer waited for has sent enough: go on where it stopped."""
        if not self.paused or self.closed:
            return 0
        self.paused = False
        if self.buffered_len and not self.deciding:
            self.handle(0)
        if not self.paused:
            self.resume()
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def pause(self) -> cython.int:
        """Take no more until `kernel.congested` has sent enough. It may be this very connection."""
        receiver: Endpoint = self.kernel.congested
        self.kernel.congested = None
        if receiver is None or receiver.closed or self.closed:
            return 0
        if receiver is self and self.pending <= self.max_pending >> 1:
            # A client that first sends and then reads has room for what a pause would hold up.
            return 0
        receiver.waiters.append(self)
        self.stalls += 1
        if not self.paused:
            self.paused = True
            self.reading = False
            self.loop.remove_reader(self.fd)
        return 0

    def on_readable(self) -> None:
        """One turn: read once, parse, and let the kernel finish."""
        kernel: Kernel = self.kernel
        limit: cython.Py_ssize_t = kernel.read_capacity if self.filter is None else READ_FILTERED
        n: cython.Py_ssize_t
        if 0 <= self.allowance < limit:
            limit = self.allowance + 1
        n = recv(self.fd, kernel.read_buffer, limit, MSG_DONTWAIT)
        if n < 0:
            if errno == EAGAIN or errno == EINTR:
                return
            self.close("Read Error")
        elif n == 0:
            self.close("Client Closed")
        else:
            self.received_ns = kernel.monotonic_ns()
            self.read_bytes += n
            self.handle(n)
            if self.allowance >= 0:
                self.spend(n)
        kernel.turn_of_read(self)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def spend(self, n: cython.Py_ssize_t) -> cython.int:
        """Count bytes of a peer that has not logged in yet, and cut one that sends too many."""
        self.allowance = max(0, self.allowance - n)
        if self.allowance == 0 and not self.deciding and not self.closed:
            tell_excess(self.peer, self.cid)
            self.queue(b"-ERR 'Authorization Violation'\r\n")
            self.close("Authentication Failure")
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def handle(self, n: cython.Py_ssize_t) -> cython.int:
        """Act on `n` bytes in the kernel's buffer, or, with none there, on those that were kept."""
        kernel: Kernel = self.kernel
        kicked: cython.bint = kernel.kicked
        kernel.kicked = kernel.reading = True
        kernel.stamped = False
        try:
            if n == 0:
                self.parse_buffered()
            elif self.filter is None:
                self.parse_received(kernel.read_buffer, n)
            else:
                self.feed(
                    PyBytes_FromStringAndSize(cython.cast(cython.p_char, kernel.read_buffer), n)
                )
        except Exception:
            tell_fault(self.cid)
            self.close("Parse Error")
        finally:
            kernel.kicked = kicked
            kernel.reading = False
        return 0

    def feed(self, data: bytes) -> None:
        """Take bytes as they came from the wire, through the filter if there is one."""
        if self.filter is not None:
            try:
                data = self.filter.receive(data)
            except ConnectionError as error:
                if not self.writing:
                    self.send_filtered()
                if str(error) == HANDSHAKE_FAILURE:
                    tell_handshake(self.peer, self.cid, error.__cause__)
                self.close(str(error))
                return
            self.kernel.queue_send(self)
        if data:
            self.parse_received(
                cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(data)), PyBytes_GET_SIZE(data)
            )
        if self.filter is not None and not self.closed:
            self.unfed = getattr(self.filter, "more", False)
            if self.unfed and self.reading:
                self.reading = False
                self.loop.remove_reader(self.fd)
                self.resume()

    def feed_rest(self) -> None:
        """Take a further part of what the filter made of one read; others had their turn."""
        if self.closed or self.reading or self.paused or self.deciding or not self.unfed:
            return
        self.unfed = False
        try:
            self.feed(b"")
        except Exception:
            tell_fault(self.cid)
            self.close("Parse Error")
        self.resume()
        self.kernel.turn()

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def parse_received(self, data: cython.p_const_uchar, n: cython.Py_ssize_t) -> cython.int:
        """Log what came where that is wanted, and parse it."""
        if self.tracer is None:
            return self.parse_piece(data, n)
        for item in self.tracer.heard(
            PyBytes_FromStringAndSize(cython.cast(cython.p_char, data), n)
        ):
            piece: bytes = item
            if self.closed:
                break
            self.parse_piece(
                cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(piece)), PyBytes_GET_SIZE(piece)
            )
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def parse_piece(self, data: cython.p_const_uchar, n: cython.Py_ssize_t) -> cython.int:
        """Parse what came, keeping the bytes of an unfinished frame, or of a pause."""
        used: cython.Py_ssize_t
        if self.buffered_len:
            self.buffer(data, n)
            self.parse_buffered()
        else:
            self.refitted = False
            used = self.parse_on(data, n)
            if self.closed:
                return 0
            if self.refitted:
                self.through(
                    PyBytes_FromStringAndSize(
                        cython.cast(cython.p_char, cython.cast(cython.p_uchar, data) + used),
                        n - used,
                    )
                )
            elif used < n:
                self.buffer(data + used, n - used)
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def through(self, rest: bytes) -> cython.int:
        """Have the new filter take what had come when it was put in."""
        self.refitted = False
        if not rest:
            return 0
        try:
            rest = getattr(self.filter, "receive_inner", self.filter.receive)(rest)
        except ConnectionError as error:
            self.close(str(error))
            return 0
        if rest:
            self.parse_piece(
                cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(rest)), PyBytes_GET_SIZE(rest)
            )
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def parse_buffered(self) -> cython.int:
        """Parse the bytes that were kept."""
        rest: bytes
        used: cython.Py_ssize_t
        self.refitted = False
        used = self.parse_on(self.buffered, self.buffered_len)
        if self.refitted and not self.closed:
            rest = PyBytes_FromStringAndSize(
                cython.cast(cython.p_char, self.buffered + used), self.buffered_len - used
            )
            self.buffered_len = 0
            self.through(rest)
        elif used and not self.closed:
            self.buffered_len -= used
            memmove(self.buffered, self.buffered + used, self.buffered_len)
        if self.buffered_len == 0 and self.buffered_capacity > self.kept:
            free(self.buffered)
            self.buffered = cython.NULL
            self.buffered_capacity = 0
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def parse_on(self, data: cython.p_const_uchar, n: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """`parse`, and go on behind a message that could not be handled: what one asks for costs
        no other of this peer, which may speak for many. `message_end` says where that is."""
        pos: cython.Py_ssize_t = 0
        while True:
            self.message_end = cython.NULL
            try:
                return pos + self.parse(data + pos, n - pos)
            except Exception:
                if self.message_end <= data + pos or self.closed:
                    raise
                log.exception(
                    "cid %d: a message could not be handled; it is left out; report this fault",
                    self.cid,
                )
                pos = self.message_end - data

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def buffer(self, data: cython.p_const_uchar, n: cython.Py_ssize_t) -> cython.int:
        """Append to the bytes of the unfinished frame."""
        capacity: cython.Py_ssize_t
        grown: cython.p_uchar
        if self.buffered_len + n > self.buffered_capacity:
            capacity = (self.buffered_len + n) * 2
            grown = cython.cast(cython.p_uchar, realloc(self.buffered, capacity))
            if grown == cython.NULL:
                raise MemoryError
            self.buffered = grown
            self.buffered_capacity = capacity
        memcpy(self.buffered + self.buffered_len, data, n)
        self.buffered_len += n
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def parse(self, data: cython.p_const_uchar, n: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Act on the complete frames in `data`; returns the bytes they took."""
        return n

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def room(self, need: cython.Py_ssize_t) -> cython.int:
        """Make room for `need` bytes at `out + out_end`; follow with `count_queued(used)`."""
        capacity: cython.Py_ssize_t
        grown: cython.p_uchar
        if self.out_end + need > self.out_capacity:
            if self.out_start:
                memmove(self.out, self.out + self.out_start, self.out_end - self.out_start)
                self.out_end -= self.out_start
                self.out_start = 0
            if self.out_end + need > self.out_capacity:
                capacity = max(OUT_INITIAL, (self.out_end + need) * 2)
                grown = cython.cast(cython.p_uchar, realloc(self.out, capacity))
                if grown == cython.NULL:
                    raise MemoryError
                self.out = grown
                self.out_capacity = capacity
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def count_queued(self, used: cython.Py_ssize_t) -> cython.int:
        """Count `used` reserved bytes as queued."""
        self.out_end += used
        self.pending += used
        if not self.dirty:
            self.kernel.queue_send(self)
        if self.pending > self.high_water and not self.overtaken:
            self.kernel.congested = self
        return 0

    @cython.ccall
    def queue(self, data: bytes):
        """Queue protocol bytes; they are sent when the turn ends. Without any, what a filter has to
        say is sent."""
        n: cython.Py_ssize_t = PyBytes_GET_SIZE(data)
        if self.closed:
            return
        if n:
            self.room(n)
            memcpy(self.out + self.out_end, PyBytes_AS_STRING(data), n)
        self.count_queued(n)
        if not self.kernel.turning:
            self.kernel.kick()

    def queue_pieces(self, pieces: list[bytes]) -> None:
        """Queue bytes that follow each other, without a copy that joins them first."""
        size: cython.Py_ssize_t = 0
        for piece in pieces:
            size += PyBytes_GET_SIZE(piece)
        if self.closed:
            return
        self.room(size)
        for piece in pieces:
            self.queue(piece)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def push(self) -> cython.int:
        """Send what is queued; what the socket does not take waits for it to be writable."""
        if self.closed or self.fd < 0:
            return 0
        if self.last_words is not None:
            self.out_start = self.out_end = self.pending = 0
            return 0
        if not self.writing:
            if self.filter is None:
                self.send_plain()
            else:
                self.send_filtered()
        if self.pending > self.max_pending and not self.closed:
            self.close("Slow Consumer (Pending Bytes)")
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def send_plain(self) -> cython.int:
        """Send what is queued as it is, up to what the socket takes."""
        n: cython.Py_ssize_t
        while self.out_start < self.out_end or self.next_lane():
            n = send(
                self.fd,
                self.out + self.out_start,
                self.out_end - self.out_start,
                MSG_DONTWAIT | MSG_NOSIGNAL,
            )
            if n < 0:
                if errno == EINTR:
                    continue
                if errno != EAGAIN:
                    self.close("Write Error")
                    return 0
                break
            if self.tracer is not None:
                self.tracer.said(
                    PyBytes_FromStringAndSize(
                        cython.cast(cython.p_char, self.out + self.out_start), n
                    )
                )
            self.count_sent(n)
        return self.finish_send()

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def count_sent(self, n: cython.Py_ssize_t) -> cython.int:
        """The socket has taken so many bytes as they are."""
        self.out_start += n
        self.pending -= n
        self.progress_ns = self.kernel.monotonic_ns()
        self.overtaken = False
        self.high_water = usual_high_water(self.max_pending)
        return 0

    @cython.cfunc
    @cython.exceptval(check=False)
    def offer(self, piece: cython.pointer(Piece)) -> cython.bint:
        """Whether what is queued may be sent as it is, and by anyone: then `piece` says what."""
        if (
            self.closed
            or self.fd < 0
            or self.writing
            or self.out_start == self.out_end
            or self.filter is not None
            or self.tracer is not None
            or self.last_words is not None
        ):
            return False
        piece.fd = self.fd
        piece.data = self.out + self.out_start
        piece.size = self.out_end - self.out_start
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def send_filtered(self) -> cython.int:
        """Send through the filter, which gets no more than the socket takes: what waits stays
        plain, where it can be put in order."""
        taken: cython.Py_ssize_t
        total: cython.Py_ssize_t = 0
        try:
            if self.out_start == self.out_end:
                self.wire += self.filter.send(b"")
            while self.wire or self.out_start < self.out_end or self.next_lane():
                if not self.wire:
                    self.filter_piece()
                    continue
                taken = self.sock.send(self.wire)
                del self.wire[:taken]
                total += taken
                self.progress_ns = self.kernel.monotonic_ns()
                self.overtaken = False
                self.high_water = usual_high_water(self.max_pending)
        except BlockingIOError:
            self.measure_piece(total)
        except OSError:
            self.close("Write Error")
            return 0
        self.pending = len(self.wire) + self.unsent()
        return self.finish_send()

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def measure_piece(self, total: cython.Py_ssize_t) -> cython.int:
        """The socket is full after `total` bytes. What an empty one took tells nothing."""
        now: cython.longlong = self.kernel.monotonic_ns()
        share: cython.double = total * PIECE_NS / max(now - self.full_ns, 1) if self.writing else 0
        self.piece = cython.cast(cython.Py_ssize_t, min(max(share, PIECE_SLOW), PIECE_FAST))
        self.full_ns = now
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def filter_piece(self) -> cython.int:
        """Pass the next bytes through the filter: few to a socket that was full and is slow."""
        n: cython.Py_ssize_t = min(
            self.out_end - self.out_start, self.piece if self.writing else PIECE_FAST
        )
        piece: bytes = PyBytes_FromStringAndSize(
            cython.cast(cython.p_char, self.out + self.out_start), n
        )
        if self.tracer is not None:
            self.tracer.said(piece)
        self.wire += self.filter.send(piece)
        self.out_start += n
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def next_lane(self) -> cython.bint:
        """Hook of the subclasses: all of `out` has been sent; whether it has been filled again with
        what stood behind it."""
        return False

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def unsent(self) -> cython.Py_ssize_t:
        """Bytes that wait before the filter."""
        return self.out_end - self.out_start

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def finish_send(self) -> cython.int:
        """After sending: watch for writability or stop, and wake who waited."""
        if self.out_start == self.out_end:
            self.out_start = self.out_end = 0
            if self.out_capacity > max(self.kept, OUT_REUSED):
                self.give_back()
            elif self.out_capacity > self.kept and not self.returning:
                self.returning = True
                self.loop.call_later(REUSE_S, self.give_back)
        if self.pending and not self.writing:
            self.writing = True
            self.loop.add_writer(self.fd, self.on_writable)
        elif not self.pending and self.writing:
            self.writing = False
            self.loop.remove_writer(self.fd)
        if self.waiters and self.pending <= self.high_water >> 2:
            self.kernel.resume_producers(self)
        return 0

    @cython.ccall
    def give_back(self):
        """Free a large output buffer, if nothing is queued in it."""
        self.returning = False
        if self.out_start == self.out_end and self.out_capacity > self.kept:
            free(self.out)
            self.out = cython.NULL
            self.out_start = self.out_end = self.out_capacity = 0

    def on_writable(self) -> None:
        """The socket takes bytes again."""
        if self.closed:
            return
        if self.filter is None:
            self.send_plain()
        else:
            self.send_filtered()
        self.kernel.turn()

    @property
    def reserved(self) -> int:
        """Bytes of memory that the output buffer takes, queued or not."""
        return self.out_capacity

    @property
    def midway(self) -> bool:
        """Whether a frame has come in part."""
        return self.buffered_len > 0

    @property
    def active_ns(self) -> int:
        """When bytes came in or went out last, ns since the epoch by the wall clock of now."""
        passed: int = self.kernel.monotonic_ns() - max(self.received_ns, self.progress_ns)
        return self.kernel.wall_ns() - passed

    @property
    def waiting(self) -> bool:
        """Whether bytes wait for the socket to become writable."""
        return self.writing

    def overtake(self) -> None:
        """Stop making producers wait: the receiver has made no progress for too long."""
        self.overtaken = True
        self.kernel.resume_producers(self)

    def stretch(self, share: float) -> None:
        """Until the receiver makes progress, let producers wait only beyond `share` (0 to 1) of
        what lies between the usual bound and `max_pending`."""
        usual: cython.Py_ssize_t = usual_high_water(self.max_pending)
        room: cython.Py_ssize_t = max(self.max_pending - usual - STRETCH_KEPT, 0)
        self.high_water = usual + cython.cast(cython.Py_ssize_t, share * room)
        if self.pending <= self.high_water:
            self.kernel.resume_producers(self)

    def finish_filter(self, reason: str) -> None:
        """Tell the filter that nothing follows what waits."""
        if hasattr(self.filter, "finish"):
            self.pass_queued()
            self.filter.finish(reason)

    def say_last(self, reason: str) -> bool:
        """Tell the peer that nothing follows what is queued, and go on hearing it until it closes;
        `reason` is why. False when that cannot be told now, or not without a filter."""
        if self.closed or self.sock is None or self.filter is not None or self.writing:
            return False
        self.send_plain()
        if self.closed or self.pending:
            return False
        self.last_words = reason
        try:
            self.sock.shutdown(SHUT_WRITE)
        except OSError:
            return False
        return True

    @cython.ccall
    def close(self, reason: str):
        """End the connection: what is queued is offered to the socket once more."""
        if self.closed:
            return
        if self.last_words is not None:
            self.pending = 0
        elif not self.writing and reason not in ("Write Error", "Read Error", "Client Closed"):
            if self.filter is not None:
                self.finish_filter(reason)
                self.send_filtered()
            elif self.pending:
                self.send_plain()
            if self.closed:
                return
        self.closed = True
        self.reason = reason if self.last_words is None else self.last_words
        self.pending = 0
        if self.writing:
            self.writing = False
            self.loop.remove_writer(self.fd)
        self.kernel.resume_producers(self)
        self.ended()
        if self.on_closed is not None:
            self.on_closed(self, self.reason)
        self.linger(reason)
        self.loop.call_soon(self.shed)

    def shed(self) -> None:
        """Give the buffers of a closed connection back; no parser is at work on them by now."""
        free(self.out)
        free(self.buffered)
        self.out = self.buffered = cython.NULL
        self.out_start = self.out_end = self.out_capacity = 0
        self.buffered_len = self.buffered_capacity = 0
        self.filter = self.wire = self.tracer = None

    def ended(self) -> None:
        """Hook of the subclasses: forget subscriptions. Called once, before `on_closed`."""

    def linger(self, reason: str) -> None:
        """Shut down for writing and discard what comes, so that no reset eats the last line."""
        sock: object = self.sock
        if sock is None:
            return
        if reason in ("Client Closed", "Read Error", "Write Error"):
            self.drop()
            return
        if self.reading:
            self.reading = False
            self.loop.remove_reader(self.fd)
        self.sock = None
        self.fd = -1
        Lingering(self.loop, sock)

    def drop(self) -> None:
        """Give the file descriptor back."""
        if self.sock is None:
            return
        if self.reading:
            self.reading = False
            self.loop.remove_reader(self.fd)
        self.sock.close()
        self.sock = None
        self.fd = -1
