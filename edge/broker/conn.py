"""A connection: one non-blocking socket, its buffers, back-pressure and end.

It owns the file descriptor and the bytes not yet parsed; its base has the bytes not yet sent. What
the bytes mean is for the subclasses (`parse`). Both buffers are bounded: the unparsed one by what
`parse` refuses, the unsent one by `max_pending`, beyond which the peer is cut as a slow consumer.
"""

import logging

import cython
from cython.cimports.cpython.buffer import PyBUF_READ, PyBUF_WRITE
from cython.cimports.cpython.bytes import (
    PyBytes_AS_STRING,
    PyBytes_FromStringAndSize,
    PyBytes_GET_SIZE,
)
from cython.cimports.cpython.memoryview import PyMemoryView_FromMemory
from cython.cimports.headwater.edge.broker.output import UNBOUNDED, Output
from cython.cimports.headwater.edge.kernel.kernel import Endpoint, Kernel
from cython.cimports.headwater.edge.kernel.sockets import MSG_DONTWAIT, recv
from cython.cimports.libc.errno import EAGAIN, EINTR, errno
from cython.cimports.libc.stdlib import free, realloc
from cython.cimports.libc.string import memcpy, memmove

from headwater.edge.broker.lingering import Lingering, reset_at_close
from headwater.edge.broker.peer_faults import peer_of, tell_excess, tell_fault, tell_handshake
from headwater.edge.logging.logs import TRACE

# What an accepted connection may send before it has logged in: CONNECT with a long token, and what
# a client sends behind it without waiting.
LOGIN_BYTES = 16 << 10
# What a TLS handshake may take beside that: a client's chain of certificates.
HANDSHAKE_BYTES = cython.declare(cython.Py_ssize_t, 48 << 10)
# Bytes of one read that goes through a filter: its copies fit the processor's cache.
READ_FILTERED = cython.declare(cython.Py_ssize_t, 256 << 10)
HANDSHAKE_FAILURE = "TLS Handshake Failure"
# Ends after which there is nobody to say anything to.
LAST_UNSAID = ("Client Closed", "Read Error", "Write Error")

log = logging.getLogger("headwater.broker")
protocol = logging.getLogger("headwater.protocol")


@cython.cclass
class Conn(Output):
    """One peer. `attach` starts it, `close` ends it; `on_closed(conn, reason)` is called once."""

    def __cinit__(self, *args, **kwargs):
        self.buffered = cython.NULL

    def __init__(self, kernel: Kernel, cid: int, max_pending: int):
        Output.__init__(self, kernel, max_pending)
        self.cid = cid
        self.reason = ""
        self.allowance = -1
        self.received_ns = self.progress_ns

    def __dealloc__(self):
        free(self.buffered)

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

        A filter that has `finish(reason)` is told before the last bytes are sent. One that has
        `receive_onto` and `send_onto` copies bytes that it does not change once only. What came in
        one read with the line that asked for it goes through it, too: nobody slips plain text past
        a handshake. A filter around another one has `receive_inner(data)` for that.
        """
        self.refitted = filter is not None
        self.filter = filter
        self.direct = False
        self.wire = bytearray() if filter is not None else None
        if filter is not None and self.allowance >= 0:
            self.allowance += HANDSHAKE_BYTES

    def wrap_filter(self, filter: object) -> None:
        """Put a filter between the one that is there and the protocol."""
        self.refitted = True
        self.filter = filter
        self.direct = False

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
        plain: cython.bint = self.filter is None or self.direct
        limit: cython.Py_ssize_t = kernel.read_capacity if plain else READ_FILTERED
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
        kernel.turn_of_read(self, n, self.received_ns)

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
            elif self.tracer is None and hasattr(self.filter, "receive_onto"):
                self.feed_direct(n)
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

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def feed_direct(self, n: cython.Py_ssize_t) -> cython.int:
        """Take `n` bytes from the kernel's buffer through a filter that puts content behind the
        unfinished frame, without copies in between. What it leaves goes the usual way."""
        room: cython.Py_ssize_t = self.filter.room_for(n, self.kernel.read_buffer[0])
        self.direct = room > 0
        if room == 0:
            self.feed(
                PyBytes_FromStringAndSize(cython.cast(cython.p_char, self.kernel.read_buffer), n)
            )
            return 0
        self.reserve_buffered(room)
        to: object = PyMemoryView_FromMemory(
            cython.cast(cython.p_char, self.buffered + self.buffered_len), room, PyBUF_WRITE
        )
        data: object = PyMemoryView_FromMemory(
            cython.cast(cython.p_char, self.kernel.read_buffer), n, PyBUF_READ
        )
        try:
            size, used = self.filter.receive_onto(to, data)
            rest: bytes = bytes(data[used:])
        except ConnectionError as error:
            self.end_unread(error)
            return 0
        finally:
            to.release()
            data.release()
        self.buffered_len += size
        if rest:
            self.direct = False
            self.feed(rest, size > 0)
        else:
            self.kernel.queue_send(self)
            if size:
                self.parse_buffered()
        return 0

    def end_unread(self, error: ConnectionError) -> None:
        """The filter can make nothing of what came."""
        if not self.writing:
            self.send_filtered()
        if str(error) == HANDSHAKE_FAILURE:
            tell_handshake(self.peer, self.cid, error.__cause__)
        self.close(str(error))

    def feed(self, data: bytes, behind: bool = False) -> None:
        """Take bytes as they came from the wire, through the filter if there is one. `behind`
        says that content which came before them has not been parsed."""
        if self.filter is not None:
            try:
                data = self.filter.receive(data)
            except ConnectionError as error:
                self.end_unread(error)
                return
            self.kernel.queue_send(self)
        if data:
            self.parse_received(
                cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(data)), PyBytes_GET_SIZE(data)
            )
        elif behind:
            self.parse_buffered()
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
        self.reserve_buffered(n)
        memcpy(self.buffered + self.buffered_len, data, n)
        self.buffered_len += n
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def reserve_buffered(self, n: cython.Py_ssize_t) -> cython.int:
        """Make room for `n` bytes behind those of the unfinished frame."""
        capacity: cython.Py_ssize_t
        grown: cython.p_uchar
        if self.buffered_len + n > self.buffered_capacity:
            capacity = (self.buffered_len + n) * 2
            grown = cython.cast(cython.p_uchar, realloc(self.buffered, capacity))
            if grown == cython.NULL:
                raise MemoryError
            self.buffered = grown
            self.buffered_capacity = capacity
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def parse(self, data: cython.p_const_uchar, n: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Act on the complete frames in `data`; returns the bytes they took."""
        return n

    @property
    def midway(self) -> bool:
        """Whether a frame has come in part."""
        return self.buffered_len > 0

    @property
    def active_ns(self) -> int:
        """When bytes came in or went out last, ns since the epoch by the wall clock of now."""
        return self.kernel.wall_ns() - self.idle_ns

    @property
    def idle_ns(self) -> int:
        """How long ago bytes came in or went out last, in ns that have passed."""
        passed: int = self.kernel.monotonic_ns() - max(self.received_ns, self.progress_ns)
        return passed

    @cython.ccall
    def close(self, reason: str):
        """End the connection: what is queued is offered to the socket once more."""
        if self.closed:
            return
        full: cython.bint = self.writing and self.most == UNBOUNDED
        self.unbind()
        if self.last_words is not None:
            self.pending = 0
        elif not (full or self.severed or reason in LAST_UNSAID):
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

    def sever(self, reason: str) -> None:
        """End the connection by a reset: what the peer has not received never reaches it."""
        if self.closed:
            return
        self.severed = True
        self.out_start = self.out_end = 0
        if self.sock is not None:
            reset_at_close(self.sock)
        self.close(reason)

    def shed(self) -> None:
        """Give the buffers of a closed connection back; no parser is at work on them by now."""
        self.shed_output()
        free(self.buffered)
        self.buffered = cython.NULL
        self.buffered_len = self.buffered_capacity = 0
        self.filter = self.wire = self.tracer = None

    def ended(self) -> None:
        """Hook of the subclasses: forget subscriptions. Called once, before `on_closed`."""

    def linger(self, reason: str) -> None:
        """Shut down for writing and discard what comes, so that no reset eats the last line."""
        sock: object = self.sock
        if sock is None:
            return
        if self.severed or reason in LAST_UNSAID:
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
