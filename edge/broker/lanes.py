"""A connection whose urgent frames go ahead of its bulk, however much of that waits.

While nothing urgent finds bulk before it, all frames are queued in `out`, in their order. The first
urgent frame that does makes a lane: `out` then holds the rest of the frame that is on its way and
what is urgent, and the bulk stands apart until all of that has been sent. Each frame is copied once
at most, so what waits may be large.
"""

import cython
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_GET_SIZE
from cython.cimports.headwater.edge.broker.conn import Conn
from cython.cimports.headwater.edge.broker.output import UNBOUNDED
from cython.cimports.headwater.edge.broker.senders import Senders
from cython.cimports.headwater.edge.broker.socket_share import LineWindow, SocketShare
from cython.cimports.headwater.edge.kernel.kernel import Endpoint
from cython.cimports.headwater.edge.wire.numbers import parse_size
from cython.cimports.libc.stdlib import free, malloc
from cython.cimports.libc.string import memchr, memcmp, memcpy, memmove

MSG_TAIL = cython.declare(cython.p_const_char, b"MSG ")
LANE_SPARE = cython.declare(cython.Py_ssize_t, 4 << 10)
# Pieces of a large frame: at least so many bytes, or a sixteenth of a second's.
PIECE_MIN = cython.declare(cython.Py_ssize_t, 4 << 10)
PIECES = cython.declare(cython.Py_ssize_t, 4)
# Where so many bytes may be on their way, no frame is cut.
UNCUT = cython.declare(cython.longlong, 128 << 10)
# A line goes ahead of so many urgent bytes at most: a peer may ask for such lines without end.
URGED_MAX = cython.declare(cython.Py_ssize_t, 1 << 20)


@cython.cclass
class LanedConn(Conn):
    """A connection whose urgent frames go ahead of its bulk. Frames are lines, and `?MSG` lines
    with the size of a body as their last word."""

    def __dealloc__(self):
        free(self.bulk)

    def share_line(self, sock: object, rate: cython.longlong) -> None:
        """Have the system hold little of what goes to `sock`, and let who sends little go ahead of
        who sends much. `rate` is what the socket is kept to, in bytes a second; 0: to none."""
        self.gate = Endpoint()
        self.senders = Senders()
        self.share = SocketShare()
        self.share.begin(rate, sock)
        self.most = self.share.most

    def bound_line(self) -> None:
        """Bound the bulk that is on its way along the line: the peer answers a PING ahead of all
        else."""
        if self.share is not None and self.line is None:
            self.line = LineWindow()

    def unbind(self) -> None:
        """As of Output."""
        Conn.unbind(self)
        self.line = None
        self.held = False
        if self.share is not None:
            self.share.release(self.sock)
            self.share = None
            self.gate.closed = True
            self.kernel.resume_producers(self.gate)

    # --- frames in ---------------------------------------------

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def change_lanes(self) -> cython.int:
        """Let `out` and the bulk that stands apart take each other's place."""
        self.out, self.bulk = self.bulk, self.out
        self.out_start, self.bulk_start = self.bulk_start, self.out_start
        self.out_end, self.bulk_end = self.bulk_end, self.out_end
        self.out_capacity, self.bulk_capacity = self.bulk_capacity, self.out_capacity
        return 0

    @cython.cfunc
    @cython.exceptval(check=True)
    def reserve(self, need: cython.Py_ssize_t, in_bulk: cython.bint) -> cython.p_uchar:
        """Room for a frame of at most `need` bytes; `keep` follows, with the same `in_bulk`."""
        if not in_bulk or self.bulk_start == self.bulk_end:
            self.room(need)
            return self.out + self.out_end
        self.change_lanes()
        try:
            Conn.room(self, need)
        finally:
            self.change_lanes()
        return self.bulk + self.bulk_end

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def keep(self, n: cython.Py_ssize_t, in_bulk: cython.bint) -> cython.int:
        """Queue the frame of `n` bytes that has been written where `reserve` said."""
        if in_bulk:
            self.bulk_in += n
        if in_bulk and self.bulk_start < self.bulk_end:
            self.change_lanes()
            self.count_queued(n)
            self.change_lanes()
            return 0
        self.count_queued(n)
        if not in_bulk:
            self.advance(n)
        elif self.held:
            self.hold_bulk()
        return 0

    @cython.ccall
    def queue(self, data: bytes):
        """As of Conn, ahead of bulk."""
        if not self.closed:
            Conn.queue(self, data)
            if data:
                self.advance(PyBytes_GET_SIZE(data))

    def urge(self, data: bytes) -> None:
        """Queue a control line ahead of the messages that wait; bytes already sent stay whole."""
        n: cython.Py_ssize_t = PyBytes_GET_SIZE(data)
        if self.closed:
            return
        if self.out_start < self.out_end:
            self.find_boundary()
            if self.bulk_start == self.bulk_end:
                self.part(min(max(self.boundary, self.lane_end), self.out_end), self.out_end)
        if self.out_end - self.boundary > URGED_MAX:
            self.queue(data)
            return
        self.room(n)
        self.find_boundary()
        memmove(
            self.out + self.boundary + n, self.out + self.boundary, self.out_end - self.boundary
        )
        memcpy(self.out + self.boundary, PyBytes_AS_STRING(data), n)
        self.lane_end = max(self.lane_end, self.boundary) + n
        self.count_queued(n)
        if not self.kernel.turning:
            self.kernel.kick()

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def advance(self, n: cython.Py_ssize_t) -> cython.int:
        """Let the last `n` bytes of `out`, which are whole frames, go ahead of the bulk that waits,
        but behind everything that has gone ahead of it before."""
        at: cython.Py_ssize_t = self.lane_end
        last: cython.Py_ssize_t = self.out_end - n
        self.lane_end = self.out_end
        if self.bulk_start < self.bulk_end or at >= last or self.out_start == last:
            return 0
        self.find_boundary()
        at = max(at, self.boundary)
        if at < last:
            self.part(at, last)
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def part(self, at: cython.Py_ssize_t, last: cython.Py_ssize_t) -> cython.int:
        """Set apart the bulk in `out[at:last]`; the rest becomes the lane. `boundary` is found."""
        before: cython.Py_ssize_t = at - self.out_start
        behind: cython.Py_ssize_t = self.out_end - last
        capacity: cython.Py_ssize_t = before + behind + LANE_SPARE
        lane: cython.p_uchar
        if at == last:
            return 0
        lane = cython.cast(cython.p_uchar, malloc(capacity))
        if lane == cython.NULL:
            raise MemoryError
        memcpy(lane, self.out + self.out_start, before)
        memcpy(lane + before, self.out + last, behind)
        free(self.bulk)
        self.bulk = lane
        self.bulk_start = 0
        self.bulk_end = before + behind
        self.bulk_capacity = capacity
        self.boundary -= self.out_start
        self.change_lanes()
        self.bulk_start = at
        self.bulk_end = last
        self.lane_end = self.out_end
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def hold_deliveries(self, n: cython.Py_ssize_t, sender: Endpoint) -> cython.int:
        """A delivery of `n` bytes is queued, which is bulk. Consumers of this node, which have no
        sender, wait when what they sent keeps the line busy for a while. It may become slow
        meanwhile, and all other bulk has to wait for what was sent."""
        if self.share is None or sender is not None:
            return 0
        self.delivered += n
        if self.delivered > self.share.deliveries():
            self.delivered = 0
            self.held_until = self.bulk_in
        if self.kernel.congested is None and self.holds():
            self.kernel.congested = self.gate
        return 0

    @cython.cfunc
    @cython.exceptval(check=False)
    def holds(self) -> cython.bint:
        """Whether consumers of this node have to wait; a quarter of their bytes keeps the line
        busy meanwhile."""
        bulk: cython.Py_ssize_t = self.bulk_waiting()
        if bulk == 0:
            return False
        return self.held_until - self.share.deliveries() // 4 > self.bulk_in - bulk

    @cython.cfunc
    @cython.exceptval(check=False)
    def bulk_waiting(self) -> cython.Py_ssize_t:
        """Bytes of bulk that wait, without the frame of which some has gone."""
        if self.bulk_start < self.bulk_end:
            return self.bulk_end - self.bulk_start
        return max(0, self.out_end - max(self.out_start, self.lane_end))

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def fit_line(self) -> cython.int:
        """After sending, or an answer of the peer: mark what has gone, and hold bulk if as much is
        on its way as may be."""
        gone: cython.longlong = self.bulk_in - self.bulk_waiting()
        now: cython.longlong = self.kernel.monotonic_ns()
        left: cython.longlong
        self.line.aged(now)
        if self.line.wants_mark(gone):
            self.line.mark(gone, now)
            self.urge(b"PING\r\n")
        left = self.line.left(gone)
        self.held = left <= 0
        if self.held:
            self.hold_bulk()
        self.most = self.share.most if self.share.bounds() else UNBOUNDED
        if left < UNCUT:
            self.most = min(self.most, max(PIECE_MIN, left))
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def hold_bulk(self) -> cython.int:
        """Set bulk apart, but for the frame that has begun."""
        if self.bulk_start < self.bulk_end or self.out_start == self.out_end:
            return 0
        self.find_boundary()
        self.part(min(max(self.boundary, self.lane_end), self.out_end), self.out_end)
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def is_own_pong(self) -> cython.bint:
        """Whether a PONG answers a mark; bulk goes on if it may."""
        held: cython.bint = self.held
        mine: cython.bint
        if self.line is None:
            return False
        mine = self.line.answered(self.kernel.monotonic_ns())
        if mine:
            self.made_progress()
        self.fit_line()
        if held and not self.held:
            self.kernel.queue_send(self)
        return mine

    @cython.cfunc
    @cython.exceptval(check=False)
    def cut_at(self, n: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Bytes of the pieces of a frame of bulk, `n` bytes, which is not to hold up a slow line;
        0: it need not be cut. The frame follows: behind a pause, what is known of the line is old
        before that."""
        size: cython.Py_ssize_t
        most: cython.longlong
        if self.share is None:
            return 0
        resumes: cython.bint = self.line is not None and self.bulk_waiting() == 0
        if resumes and self.line.aged(self.kernel.monotonic_ns()):
            self.fit_line()
        most = self.share.most
        if self.line is not None:
            most = min(most, self.line.window)
        if most >= UNCUT:
            return 0
        size = max(PIECE_MIN, most // PIECES)
        return size if n > 2 * size else 0

    # --- frames out --------------------------------------------

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def next_lane(self) -> cython.bint:
        """The lane has been sent: go on with the bulk that stands apart, if any does."""
        if self.bulk_start == self.bulk_end or self.held:
            return False
        self.change_lanes()
        free(self.bulk)
        self.bulk = cython.NULL
        self.bulk_start = self.bulk_end = self.bulk_capacity = 0
        self.boundary = self.out_start
        self.lane_end = 0
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def unsent(self) -> cython.Py_ssize_t:
        """As of Conn."""
        return self.out_end - self.out_start + self.bulk_end - self.bulk_start

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def finish_send(self) -> cython.int:
        """As of Conn; an empty buffer begins anew."""
        if self.line is not None:
            self.fit_line()
        Conn.finish_send(self)
        if self.share is not None:
            if self.held:
                self.share.emptied()
            elif self.pending:
                self.share.left(self.passed, self.progress_ns, self.sock)
                if self.line is None:
                    self.most = self.share.most if self.share.bounds() else UNBOUNDED
            else:
                self.share.emptied()
                self.delivered = 0
            if self.gate.waiters and not self.holds():
                self.kernel.resume_producers(self.gate)
        if self.out_start == self.out_end:
            self.boundary = self.lane_end = 0
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def room(self, need: cython.Py_ssize_t) -> cython.int:
        """As of Conn; keeps `boundary` true when the buffer moves."""
        start: cython.Py_ssize_t = self.out_start
        if self.boundary < start and self.out_end + need > self.out_capacity:
            self.find_boundary()
        Conn.room(self, need)
        if self.out_start != start:
            self.boundary -= start
            self.lane_end = max(0, self.lane_end - start)
        return 0

    def find_boundary(self) -> None:
        """Advance `boundary` to the first frame of which nothing has been sent."""
        line: cython.Py_ssize_t
        i: cython.Py_ssize_t
        at: cython.p_const_uchar
        frame: cython.p_const_uchar
        while self.boundary < self.out_start:
            frame = self.out + self.boundary
            at = cython.cast(cython.p_const_uchar, memchr(frame, 10, self.out_end - self.boundary))
            if at == cython.NULL:
                self.boundary = self.out_end
                return
            line = at - frame
            self.boundary += line + 1
            if line > 5 and memcmp(frame + 1, MSG_TAIL, 4) == 0:
                i = line - 1
                while i > 5 and frame[i - 1] != 32:
                    i -= 1
                self.boundary += parse_size(frame + i, line - 1 - i) + 2

    @property
    def reserved(self) -> int:
        """As of Conn."""
        return self.out_capacity + self.bulk_capacity

    @property
    def share_bytes(self) -> int:
        """What the system may hold of it, in bytes; 0: what it likes."""
        return 0 if self.share is None else self.share.most

    def shed(self) -> None:
        """As of Conn."""
        Conn.shed(self)
        free(self.bulk)
        self.bulk = cython.NULL
        self.bulk_start = self.bulk_end = self.bulk_capacity = 0
