"""The sending half of a connection: what waits to be sent, in order, and the peer's back-pressure.

Bytes wait in one buffer until the turn ends. What the socket does not take waits for it; producers
wait for a receiver of which more than `high_water` waits, and beyond `max_pending` the peer is cut.
"""

import cython
from cython.cimports.cpython.buffer import PyBUF_READ
from cython.cimports.cpython.bytearray import PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from cython.cimports.cpython.bytes import (
    PyBytes_AS_STRING,
    PyBytes_FromStringAndSize,
    PyBytes_GET_SIZE,
)
from cython.cimports.cpython.memoryview import PyMemoryView_FromMemory
from cython.cimports.headwater.edge.kernel.kernel import Endpoint, Kernel
from cython.cimports.headwater.edge.kernel.send_crew import Piece
from cython.cimports.headwater.edge.kernel.sockets import MSG_DONTWAIT, MSG_NOSIGNAL, send
from cython.cimports.libc.errno import EAGAIN, EINTR, errno
from cython.cimports.libc.stdlib import free, realloc
from cython.cimports.libc.string import memcpy, memmove

from headwater.edge.broker.lingering import SHUT_WRITE

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
# Bytes that go through a filter at a time. To a socket that fills up, one TLS record, or what it
# takes in `PIECE_NS`: what has passed the filter cannot be overtaken.
PIECE_FAST = cython.declare(cython.Py_ssize_t, 256 << 10)
PIECE_SLOW = cython.declare(cython.Py_ssize_t, 16 << 10)
PIECE_NS = cython.declare(cython.longlong, 10_000_000)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def usual_high_water(max_pending: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Queued bytes above which producers wait for a receiver that makes progress."""
    return min(HIGH_WATER, max_pending >> 1)


@cython.cclass
class Output(Endpoint):
    """What one peer is sent. `Conn` gives it a socket and ends it."""

    def __cinit__(self, *args, **kwargs):
        self.fd = -1
        self.out = cython.NULL

    def __init__(self, kernel: Kernel, max_pending: int):
        self.kernel = kernel
        self.loop = kernel.loop
        self.bound(max_pending)
        self.kept = OUT_KEPT
        self.most = UNBOUNDED
        self.progress_ns = kernel.monotonic_ns()

    def __dealloc__(self):
        free(self.out)

    def bound(self, max_pending: int) -> None:
        """Let at most `max_pending` bytes wait to be sent before the peer is cut."""
        self.max_pending = max_pending
        self.high_water = usual_high_water(max_pending)
        self.piece = PIECE_SLOW

    def pass_queued(self) -> None:
        """Pass what is queued through the filter that is there, before another takes its place."""
        while self.out_start < self.out_end or self.next_lane():
            self.filter_piece()

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
                min(self.out_end - self.out_start, self.most),
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
            if self.most != UNBOUNDED:
                break
        return self.finish_send()

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def count_sent(self, n: cython.Py_ssize_t) -> cython.int:
        """The socket has taken so many bytes as they are."""
        self.out_start += n
        self.passed += n
        self.pending -= n
        if not self.held:
            self.made_progress()
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def made_progress(self) -> cython.int:
        """The peer takes what is sent, as far as is known: the socket took bytes, or where bulk is
        held until it answers, it answered."""
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
        piece.size = min(self.out_end - self.out_start, self.most)
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
                taken = self.send_wire()
                total += taken
                self.passed += taken
                if not self.held:
                    self.made_progress()
                if total >= self.most:
                    self.measure_piece(total)
                    break
        except BlockingIOError:
            self.measure_piece(total)
        except OSError:
            self.close("Write Error")
            return 0
        self.pending = len(self.wire) + self.unsent()
        return self.finish_send()

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def send_wire(self) -> cython.Py_ssize_t:
        """Send filtered bytes, `most` at a time: how many the socket has taken."""
        taken: cython.Py_ssize_t
        view: object
        if PyByteArray_GET_SIZE(self.wire) <= self.most:
            taken = self.sock.send(self.wire)
        else:
            view = PyMemoryView_FromMemory(PyByteArray_AS_STRING(self.wire), self.most, PyBUF_READ)
            taken = self.sock.send(view)
        del self.wire[:taken]
        return taken

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
        """Pass the next bytes through the filter: few to a socket that was full and is slow, and
        no more than may go at a time."""
        n: cython.Py_ssize_t = min(
            self.out_end - self.out_start,
            self.piece if self.writing or self.most != UNBOUNDED else PIECE_FAST,
            self.most,
        )
        begin: cython.p_char = cython.cast(cython.p_char, self.out + self.out_start)
        if self.tracer is None and hasattr(self.filter, "send_onto"):
            self.filter.send_onto(self.wire, PyMemoryView_FromMemory(begin, n, PyBUF_READ))
        else:
            piece: bytes = PyBytes_FromStringAndSize(begin, n)
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
        more: cython.bint = self.pending > 0
        if self.held and self.out_start == self.out_end and not self.wire:
            more = False
        if more and not self.writing:
            self.writing = True
            self.loop.add_writer(self.fd, self.on_writable)
        elif not more and self.writing:
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
        if self.closed or self.sock is None or self.filter is not None:
            return False
        if self.writing and self.most == UNBOUNDED:
            return False
        self.unbind()
        self.send_plain()
        if self.closed or self.pending:
            return False
        self.last_words = reason
        try:
            self.sock.shutdown(SHUT_WRITE)
        except OSError:
            return False
        return True

    def unbind(self) -> None:
        """Let the socket have all that it takes: little or nothing follows."""
        self.most = UNBOUNDED

    def shed_output(self) -> None:
        """Give the output buffer of a closed connection back."""
        free(self.out)
        self.out = cython.NULL
        self.out_start = self.out_end = self.out_capacity = 0

    @cython.ccall
    def close(self, reason: str):
        """Hook of the subclasses: end the connection, for `reason`."""
