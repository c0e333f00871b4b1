"""A link to another server: what the leaf and the route protocol of NATS have in common.

`Link.parse` walks a chunk: messages (`LMSG` or `RMSG`, and `HMSG`) are routed without making Python
objects for the payload, every other verb is a line for `verb`. What the peer wants stands in
accounts as remote sinks of this connection; whatever they match goes out as one frame per message,
with the names of the queue groups that were chosen.

A kind of link says what becomes of a message (`inbound`), which ones may leave (`may_leave`), and
what the peer wants (`interest_added`, `interest_removed`).
"""

import cython
from cython.cimports.cpython.bytes import (
    PyBytes_AS_STRING,
    PyBytes_FromStringAndSize,
    PyBytes_GET_SIZE,
)
from cython.cimports.headwater.edge.broker.account import Account
from cython.cimports.headwater.edge.broker.authorize import RECEIVE, Peer, authorize
from cython.cimports.headwater.edge.broker.conn import Conn
from cython.cimports.headwater.edge.broker.halts import Gate, Halts
from cython.cimports.headwater.edge.broker.lanes import LanedConn
from cython.cimports.headwater.edge.broker.msg_trace import Trace, asks_for_trace, begin
from cython.cimports.headwater.edge.broker.senders import AHEAD_MAX
from cython.cimports.headwater.edge.kernel.kernel import (
    FROM_PEER,
    KIND_INTERNAL,
    Endpoint,
    Kernel,
    Msg,
    Sink,
)
from cython.cimports.headwater.edge.subjects.tokens import is_valid
from cython.cimports.headwater.edge.subjects.trie import Match
from cython.cimports.headwater.edge.wire.arguments import arguments
from cython.cimports.headwater.edge.wire.numbers import parse_size, put_number
from cython.cimports.headwater.edge.wire.pieces import Pieces, pieces_spare, put_pieces
from cython.cimports.libc.string import memchr, memcmp, memcpy

from headwater.edge.broker.msg_trace import written
from headwater.edge.subjects.tokens import clean_word

# NATS gives links sixteen times the control line of a client, and at least this.
CONTROL_LINE_MAX = 64 << 10
FRAME_OVERHEAD = cython.declare(cython.Py_ssize_t, 80)
NEED_MORE = cython.declare(cython.Py_ssize_t, -1)
# Control lines of one peer that are acted on before others have their turn: a few milliseconds.
LINES_AT_ONCE = cython.declare(cython.int, 512)
# A `$JS.ACK` reply has at least nine tokens; the delivery subject may follow only after them.
ACK_DOTS = cython.declare(cython.int, 8)
ACK_PREFIX = cython.declare(cython.p_const_char, b"$JS.ACK.")
STATUS = cython.declare(cython.p_const_char, b"NATS/1.0 ")
MSG_TAIL = cython.declare(cython.p_const_char, b"MSG ")
# Bytes that may still come by a link whose peer was asked to hold them back: what waits in its
# output and in the sockets.
ON_THE_WAY = 16 << 20
# How a peer is asked for all of the account, where a link has only one.
ONE_ACCOUNT = cython.declare(bytes, b"*")


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def shown_at(reply: cython.p_const_uchar, n: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Where the `@` of a delivery subject stands in a reply; -1 without."""
    dots: cython.int = 0
    i: cython.Py_ssize_t = 0
    at: cython.p_const_uchar
    if n < 10 or memcmp(reply, ACK_PREFIX, 8) != 0:
        return -1
    while True:
        at = cython.cast(cython.p_const_uchar, memchr(reply + i, 64, n - i))
        if at == cython.NULL:
            return -1
        while i < at - reply:
            dots += reply[i] == 46
            i += 1
        if dots >= ACK_DOTS:
            return i
        i += 1


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def is_bulk(m: cython.pointer(Msg)) -> cython.bint:
    """Whether a message is a consumer's delivery, or one of its statuses, which must stay behind
    the deliveries before it. Everything else may go ahead of them, and so do all deliveries and
    statuses of a consumer that is urgent (`Kernel.urgent`)."""
    if m.reply_len > 8 and memcmp(m.reply, ACK_PREFIX, 8) == 0:
        return True
    return (
        m.header_len == m.size
        and m.size >= 14
        and memcmp(m.body, STATUS, 9) == 0
        and (m.body[9] == 49 or m.body[9] == 52)
    )


@cython.cfunc
@cython.exceptval(check=False)
def count_in(link: Link, m: cython.pointer(Msg)) -> cython.void:
    """Count a message, and find the subject that its receivers are to see."""
    at: cython.Py_ssize_t = shown_at(m.reply, m.reply_len)
    if at > 0:
        m.shown = m.reply + at + 1
        m.shown_len = m.reply_len - at - 1
        m.reply_len = at
    link.in_msgs += 1
    link.in_bytes += m.size
    link.kernel.in_msgs += 1
    link.kernel.in_bytes += m.size


@cython.cfunc
@cython.exceptval(check=False)
def put_receivers(o: cython.p_uchar, m: cython.pointer(Msg), groups: bytes) -> cython.p_uchar:
    """Write the reply, and the queue groups that alone are meant; returns where they end."""
    if groups:
        o[0] = 43 if m.reply_len else 124
        o[1] = 32
        o += 2
    if m.reply_len:
        memcpy(o, m.reply, m.reply_len)
        o += m.reply_len
        if m.shown_len and m.reply_len > 8 and memcmp(m.reply, ACK_PREFIX, 8) == 0:
            o[0] = 64
            memcpy(o + 1, m.shown, m.shown_len)
            o += 1 + m.shown_len
        o[0] = 32
        o += 1
    if groups:
        memcpy(o, PyBytes_AS_STRING(groups), PyBytes_GET_SIZE(groups))
        o += PyBytes_GET_SIZE(groups)
    return o


@cython.cfunc
@cython.exceptval(-1, check=False)
def has_little_room(receiver: Endpoint) -> cython.bint:
    """Whether a connection that makes progress will be cut if much more comes for it. One that has
    stalled has room for less and less time in any case."""
    if not isinstance(receiver, Conn):
        return False
    conn: Conn = cython.cast(Conn, receiver)
    if conn.high_water > conn.max_pending >> 1:
        return False
    return conn.pending > conn.max_pending - (conn.max_pending >> 2)


@cython.cfunc
def pattern_of(receiver: Endpoint, m: cython.pointer(Msg), match: Match) -> bytes:
    """What a receiver without room gets, by the shortest of its subscriptions that have matched a
    message; the message's subject where that is not known."""
    found: bytes = None
    sink: Sink
    group: tuple
    if isinstance(receiver, Gate) and cython.cast(Gate, receiver).pattern is not None:
        return cython.cast(Gate, receiver).pattern
    for group in (match.plain, *match.queues) if match.queues else (match.plain,):
        for item in group:
            sink = cython.cast(Sink, item)
            if sink.owner is receiver and (found is None or len(sink.subject) < len(found)):
                found = sink.subject
    return text_of(m.subject, m.subject_len) if found is None else found


@cython.cfunc
def text_of(text: cython.p_const_uchar, n: cython.Py_ssize_t) -> bytes:
    return PyBytes_FromStringAndSize(cython.cast(cython.p_char, text), n)


@cython.cfunc
@cython.exceptval(check=False)
def put_word(o: cython.p_uchar, word: bytes) -> cython.p_uchar:
    """Append a word and a space; returns the end."""
    n: cython.Py_ssize_t = PyBytes_GET_SIZE(word)
    memcpy(o, PyBytes_AS_STRING(word), n)
    o[n] = 32
    return o + n + 1


@cython.cclass
class RemoteSub(Sink):
    """The peer's interest in one subject, for one queue group or for nobody in particular."""

    def __init__(
        self,
        owner: object,
        subject: bytes,
        queue: bytes | None,
        weight: int,
        account: bytes | None = None,
        origin: bytes | None = None,
    ):
        Sink.__init__(self, subject, queue)
        self.owner = owner
        self.remote = True
        self.weight = weight
        self.account = account
        self.origin = origin


@cython.cclass
class Link(LanedConn):
    """One link, on either end. `letter` begins its verbs, `named` says that accounts are named."""

    def __init__(
        self,
        session: object,
        kernel: Kernel,
        cid: int,
        max_pending: int,
        letter: bytes,
        named: bool,
    ):
        LanedConn.__init__(self, kernel, cid, max_pending)
        self.session = session
        self.letter = letter[0]
        self.named = named
        self.subs = {}
        self.queues = []
        self.headers = True
        self.describe_node = written
        self.principal = Peer()
        self.max_control_line = CONTROL_LINE_MAX
        self.holds_back = False
        self.in_pieces = False
        self.pieces = Pieces()
        self.halts = Halts(kernel, ON_THE_WAY)

    def know_pieces(self, known: bool) -> None:
        """Whether the peer knows frames in pieces. Such a peer also says at once what has come."""
        self.in_pieces = known
        if known:
            self.bound_line()

    # --- in ----------------------------------------------------

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def parse(self, data: cython.p_const_uchar, n: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Act on every complete frame, but on so many control lines alone; returns the bytes
        used."""
        pos: cython.Py_ssize_t = 0
        lines: cython.int = 0
        line: cython.Py_ssize_t
        used: cython.Py_ssize_t
        at: cython.p_const_uchar
        while pos < n and not self.closed and not self.paused and not self.refitted:
            at = cython.cast(cython.p_const_uchar, memchr(data + pos, 10, n - pos))
            line = n - pos if at == cython.NULL else at - (data + pos)
            if line > self.max_control_line:
                self.fail("maximum control line exceeded", "Maximum Control Line Exceeded")
                break
            if at == cython.NULL:
                break
            if (
                line > 5
                and self.ready
                and memcmp(data + pos + 1, MSG_TAIL, 4) == 0
                and self.begins_message(data[pos])
            ):
                used = self.message(data + pos, line, at + 1, n - pos - line - 1)
            elif (
                line > 5
                and data[pos] == 80
                and self.in_pieces
                and self.ready
                and memcmp(data + pos + 1, MSG_TAIL, 4) == 0
            ):
                used = self.piece_of_frame(data + pos, line, at + 1, n - pos - line - 1)
            else:
                if self.deciding:
                    break
                if line > 0 and data[pos + line - 1] == 13:
                    line -= 1
                used = 0
                self.message_end = cython.NULL
                self.verb(text_of(data + pos, line))
                lines += 1
                if lines == LINES_AT_ONCE:
                    self.rest()
            if used == NEED_MORE:
                break
            pos = at + 1 - data + used
        return pos

    @cython.cfunc
    @cython.exceptval(-2, check=True)
    def message(
        self,
        line: cython.p_const_uchar,
        n: cython.Py_ssize_t,
        body: cython.p_const_uchar,
        room: cython.Py_ssize_t,
    ) -> cython.Py_ssize_t:
        """Take one message in; returns the body's bytes used, or -1 when it is not complete."""
        starts: cython.Py_ssize_t[512]
        ends: cython.Py_ssize_t[512]
        count: cython.int
        # LMSG <cluster> [<account>] <subject> ... <header size> <size>, on links that tell origins.
        with_origin: cython.bint = self.tells_origin and line[0] == 76
        with_headers: cython.bint = with_origin or line[0] == 72
        numbers: cython.int = 2 if with_headers else 1
        lead: cython.int = 1 if with_origin else 0
        first: cython.int = lead + (1 if self.named else 0)
        m: Msg
        only: tuple
        if line[n - 1] == 13:
            n -= 1
        count = arguments(line, n, cython.address(starts[0]), cython.address(ends[0]))
        if count < first + 1 + numbers:
            return self.broken("Parse Error")
        m.size = parse_size(line + starts[count - 1], ends[count - 1] - starts[count - 1])
        m.header_len = 0
        if with_headers:
            m.header_len = parse_size(line + starts[count - 2], ends[count - 2] - starts[count - 2])
        if m.size < 0 or m.header_len < 0 or m.header_len > m.size:
            return self.broken("Parse Error")
        if m.size > self.max_payload:
            self.fail("Maximum Payload Violation", "Maximum Message Payload Exceeded")
            return NEED_MORE
        if room < m.size + 2:
            return NEED_MORE
        if body[m.size] != 13 or body[m.size + 1] != 10:
            return self.broken("Parse Error")
        m.subject = m.reply = m.shown = line + starts[first]
        m.subject_len = ends[first] - starts[first]
        m.reply_len = m.shown_len = 0
        m.body = body
        m.via = FROM_PEER
        count -= numbers
        only = self.receivers(line, starts, ends, first + 1, count, cython.address(m))
        if only is None:
            return self.broken("Parse Error")
        count_in(self, cython.address(m))
        self.message_end = body + m.size + 2
        self.arrive(
            line + starts[lead],
            ends[lead] - starts[lead],
            cython.address(m),
            only,
            text_of(line + starts[0], ends[0] - starts[0]) if with_origin else b"",
        )
        return m.size + 2

    @cython.cfunc
    @cython.exceptval(-2, check=True)
    def piece_of_frame(
        self,
        line: cython.p_const_uchar,
        n: cython.Py_ssize_t,
        body: cython.p_const_uchar,
        room: cython.Py_ssize_t,
    ) -> cython.Py_ssize_t:
        """Take one piece of a message in, and the message with the last one; returns as
        `message`."""
        starts: cython.Py_ssize_t[512]
        ends: cython.Py_ssize_t[512]
        size: cython.Py_ssize_t = -1
        left: cython.Py_ssize_t = -1
        if line[n - 1] == 13:
            n -= 1
        if arguments(line, n, cython.address(starts[0]), cython.address(ends[0])) == 2:
            left = parse_size(line + starts[0], ends[0] - starts[0])
            size = parse_size(line + starts[1], ends[1] - starts[1])
        if left < 0 or size < 0:
            return self.broken("Parse Error")
        if size + left > self.max_payload + self.max_control_line:
            self.fail("Maximum Payload Violation", "Maximum Message Payload Exceeded")
            return NEED_MORE
        if room < size + 2:
            return NEED_MORE
        if body[size] != 13 or body[size + 1] != 10 or not self.pieces.add(body, size, left):
            return self.broken("Parse Error")
        if left == 0:
            try:
                self.frame_from_pieces(self.pieces.whole())
            finally:
                self.message_end = body + size + 2
        return size + 2

    @cython.cfunc
    @cython.exceptval(-2, check=True)
    def frame_from_pieces(self, frame: bytes) -> cython.Py_ssize_t:
        """Take a message in that came in pieces; it is one frame and nothing else."""
        data: cython.p_const_uchar = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(frame))
        n: cython.Py_ssize_t = PyBytes_GET_SIZE(frame)
        at: cython.p_const_uchar = cython.cast(cython.p_const_uchar, memchr(data, 10, n))
        line: cython.Py_ssize_t = 0 if at == cython.NULL else at - data
        used: cython.Py_ssize_t
        if (
            line <= 5
            or line > self.max_control_line
            or memcmp(data + 1, MSG_TAIL, 4) != 0
            or not self.begins_message(data[0])
        ):
            return self.broken("Parse Error")
        used = self.message(data, line, at + 1, n - line - 1)
        if used != n - line - 1 and not self.closed:
            return self.broken("Parse Error")
        return used

    @cython.cfunc
    @cython.exceptval(check=False)
    def begins_message(self, letter: cython.uchar) -> cython.bint:
        """Whether `MSG` behind a letter is a message."""
        return letter == self.letter or letter == 72 or (letter == 76 and self.tells_origin)

    @property
    def midway(self) -> bool:
        """As of Conn, or a message's pieces have."""
        return self.buffered_len > 0 or self.pieces.left > 0

    @cython.cfunc
    def receivers(
        self,
        line: cython.p_const_uchar,
        starts: cython.pointer(cython.Py_ssize_t),
        ends: cython.pointer(cython.Py_ssize_t),
        k: cython.Py_ssize_t,
        count: cython.Py_ssize_t,
        m: cython.pointer(Msg),
    ) -> tuple:
        """What follows the subject, from word `k` up to `count`: nothing, a reply, or `+ reply` or
        `|` and queue groups. Sets the reply; the groups, or None for what is nothing of these."""
        if count == k + 1:
            m.reply = line + starts[k]
            m.reply_len = ends[k] - starts[k]
        if count <= k + 1:
            return ()
        if ends[k] - starts[k] != 1 or (line[starts[k]] != 43 and line[starts[k]] != 124):
            return None
        i: cython.Py_ssize_t = k + 1
        if line[starts[k]] == 43:
            m.reply = line + starts[i]
            m.reply_len = ends[i] - starts[i]
            i += 1
        if i == count:
            return None
        return tuple([text_of(line + starts[k], ends[k] - starts[k]) for k in range(i, count)])

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def arrive(
        self,
        name: cython.p_const_uchar,
        n: cython.Py_ssize_t,
        m: cython.pointer(Msg),
        only: tuple,
        origin: bytes,
    ) -> cython.int:
        """Let everybody know whence a message came while it is routed: it must not go back to a
        cluster, nor by two ways to one."""
        kernel: Kernel = self.kernel
        outer: cython.pointer(Msg) = kernel.arrived
        outer_link: Endpoint = kernel.arrived_by
        outer_origin: bytes = kernel.arrived_from
        kernel.arrived = m
        kernel.arrived_by = self
        kernel.arrived_from = origin
        try:
            self.inbound(name, n, m, only)
        finally:
            kernel.arrived = outer
            kernel.arrived_by = outer_link
            kernel.arrived_from = outer_origin
        return 0

    def broken(self, reason: str) -> int:
        """End a link whose peer does not speak the protocol."""
        self.fail("Unknown Protocol Operation", reason)
        return -1

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def inbound(
        self,
        name: cython.p_const_uchar,
        n: cython.Py_ssize_t,
        m: cython.pointer(Msg),
        only: tuple,
    ) -> cython.int:
        """Route a message of the peer; the kind of link says where. `name` is the account's."""
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def route(
        self, account: Account, m: cython.pointer(Msg), match: Match, only: tuple
    ) -> cython.int:
        """Route a message, and read no more for now when it met a slow receiver."""
        self.kernel.congested = None
        if m.header_len and asks_for_trace(m):
            self.route_traced(account, m, match, only)
        else:
            account.route(m, self, match, only)
        if self.kernel.congested is not None:
            self.wait_for_room(account, m, match)
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def wait_for_room(
        self, account: Account, m: cython.pointer(Msg), match: Match
    ) -> cython.int:
        """A message of the peer met a receiver that has no room for more of them. A peer that
        holds back is asked to, and the link is read on, since others use it as well. It rests
        when more has come than was on the way, and for a peer that cannot be asked."""
        receiver: Endpoint = self.kernel.congested
        if not self.holds_back:
            return self.rest_for(receiver)
        if receiver.closed:
            self.kernel.congested = None
            return 0
        pattern: bytes = self.asked_subject
        if pattern is None:
            pattern = pattern_of(receiver, m, match)
        self.stalls += 1
        account_key: bytes = self.asked_for(account)
        honest: cython.bint = self.halts.ask(self, account_key, pattern, receiver, m.size)
        if not honest or has_little_room(receiver):
            return self.pause()
        self.kernel.congested = None
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def rest_for(self, receiver: Endpoint) -> cython.int:
        """Read no more for a receiver without room, of a peer that cannot hold anything back."""
        return self.pause()

    @cython.cfunc
    def asked_for(self, account: Account) -> bytes:
        """How the peer is asked for messages of an account."""
        return ONE_ACCOUNT

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def route_traced(
        self, account: Account, m: cython.pointer(Msg), match: Match, only: tuple
    ) -> cython.int:
        """Route a message whose sender wants to know what becomes of it."""
        trace: Trace = begin(account, self, m, None)
        if trace is None or not (trace.valid() and self.principal.may_publish(trace.dest)):
            if trace is None or not trace.only:
                account.route(m, self, match, only)
            return 0
        trace.route(m, match, only)
        trace.send(self.describe_node)
        return 0

    # --- out ----------------------------------------------------

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def collect(self, sink: Sink) -> cython.int:
        """Remember that the message being routed goes to the peer, unless the sink has ended."""
        if sink.closed:
            return 0
        if sink.queue is not None:
            self.queues.append(sink.queue)
        if self.collected:
            return 0
        self.collected = True
        if self.named:
            self.name = cython.cast(RemoteSub, sink).account
        return 1

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def may_leave(self, m: cython.pointer(Msg)) -> cython.bint:
        """Whether a message may go to the peer."""
        return authorize(self.principal, RECEIVE, m.subject, m.subject_len, m.via, None)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def emit(self, m: cython.pointer(Msg), sender: Endpoint) -> cython.int:
        """Queue one frame for all that was collected; 0 when it may not leave."""
        self.collected = False
        try:
            if self.closed or not self.may_leave(m):
                return 0
            self.write(m, sender)
            if self.halts.count:
                self.hold_producer(m)
            return 1
        finally:
            if self.queues:
                self.queues = []

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def may_reach(self, m: cython.pointer(Msg)) -> cython.bint:
        """Whether the peer may be the one of a queue group that gets a message."""
        return self.may_leave(m)

    @cython.cfunc
    def origin_of(self, m: cython.pointer(Msg)) -> bytes:
        """The cluster that the peer has to know a message is from; None for none."""
        return None

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def published_in_bulk(self, m: cython.pointer(Msg), sender: Endpoint) -> cython.bint:
        """Whether a message goes behind requests and answers since its sender has much waiting.
        What the node itself says never does."""
        bulk: cython.Py_ssize_t = self.bulk_waiting()
        ahead: cython.Py_ssize_t = self.unsent() - bulk
        if self.senders is None or sender is None or sender.kind == KIND_INTERNAL:
            return False
        if bulk == 0 and ahead + m.size <= AHEAD_MAX:
            return False
        return self.senders.in_bulk(sender.cid, m.size, ahead, self.bulk_in, self.bulk_in - bulk)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def write(self, m: cython.pointer(Msg), sender: Endpoint) -> cython.int:
        """Append the frame of a message to the output."""
        o: cython.p_uchar
        begin: cython.p_uchar
        body: cython.p_const_uchar = m.body
        size: cython.Py_ssize_t = m.size
        header_len: cython.Py_ssize_t = m.header_len
        groups: bytes = b" ".join(self.queues) + b" " if self.queues else b""
        origin: bytes = self.origin_of(m) if self.tells_origin else None
        delivery: cython.bint = not self.kernel.urgent and is_bulk(m)
        in_bulk: cython.bint = delivery or self.published_in_bulk(m, sender)
        if header_len and not self.headers:
            body += header_len
            size -= header_len
            header_len = 0
        need: cython.Py_ssize_t = (
            FRAME_OVERHEAD
            + (PyBytes_GET_SIZE(self.name) if self.named else 0)
            + (0 if origin is None else PyBytes_GET_SIZE(origin) + 1)
            + m.subject_len
            + m.reply_len
            + m.shown_len
            + PyBytes_GET_SIZE(groups)
            + size
        )
        cut: cython.Py_ssize_t = self.cut_at(need) if in_bulk and self.in_pieces else 0
        begin = o = self.reserve(need + pieces_spare(need, cut) if cut else need, in_bulk)
        o[0] = 72 if header_len else self.letter
        memcpy(o + 1, MSG_TAIL, 4)
        o += 5
        if origin is not None:
            begin[0] = 76
            o = put_word(o, origin)
        if self.named:
            o = put_word(o, self.name)
        memcpy(o, m.subject, m.subject_len)
        o += m.subject_len
        o[0] = 32
        o += 1
        o = put_receivers(o, m, groups)
        if header_len or origin is not None:
            o += put_number(o, header_len)
            o[0] = 32
            o += 1
        o += put_number(o, size)
        o[0] = 13
        o[1] = 10
        memcpy(o + 2, body, size)
        o += 2 + size
        o[0] = 13
        o[1] = 10
        o += 2
        queued: cython.Py_ssize_t = put_pieces(begin, o - begin, cut) if cut else o - begin
        self.keep(queued, in_bulk)
        if delivery:
            self.hold_deliveries(queued, sender)
        self.out_msgs += 1
        self.out_bytes += size
        self.kernel.out_msgs += 1
        self.kernel.out_bytes += size
        return 1

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def hold_producer(self, m: cython.pointer(Msg)) -> cython.int:
        """Have the producer of a message wait if the peer asked to hold back what follows it."""
        gate: Gate = self.halts.gate_for(self.written_for(), m.subject, m.subject_len, m.size)
        if gate is not None:
            self.kernel.congested = gate
        return 0

    @cython.cfunc
    def written_for(self) -> bytes:
        """How the peer asks for the account of the message being written."""
        return ONE_ACCOUNT

    # --- verbs ----------------------------------------------------

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def verb(self, line: bytes) -> cython.int:
        """Act on one control line that is not a message."""
        head: bytes = line[:8].upper()
        if head == b"PING":
            self.urge(b"PONG\r\n")
        elif head == b"PONG":
            self.pings_out = 0
            if self.is_own_pong():
                return 0
            if self.pinged_ns:
                self.rtt_ns = self.kernel.monotonic_ns() - self.pinged_ns
                self.pinged_ns = 0
            self.session.got_pong(self)
        elif head.startswith(b"INFO "):
            self.session.got_info(self, line[5:])
        elif head == b"CONNECT ":
            self.session.got_connect(self, line[8:])
        elif head.startswith(b"-ERR"):
            self.session.got_error(self, line[4:].strip().strip(b"'"))
        elif head[:1] == bytes((self.letter,)) and head[1:4] == b"S+ " and self.admitted():
            self.interest_added(line[4:].split())
        elif head[:1] == bytes((self.letter,)) and head[1:4] == b"S- " and self.admitted():
            self.interest_removed(line[4:].split())
        elif line and head != b"+OK" and not self.closed:
            self.broken("Parse Error")
        return 0

    def admitted(self) -> bool:
        """Whether the peer may speak of interest; ends the link when it may not yet."""
        if not self.ready and not self.closed:
            self.fail("Authorization Violation", "Protocol Violation")
        return self.ready

    def wanted(self, args: list) -> tuple | None:
        """`<subject> [<queue> <weight>]` as (subject, queue, weight).

        None, and the end of the link, when it is nothing of the kind.
        """
        if (
            len(args) not in (1, 3)
            or not is_valid(args[0], len(args[0]))
            or not all(map(clean_word, args))
        ):
            self.broken("Parse Error")
            return None
        if len(args) == 1:
            return args[0], None, 1
        if not args[2].isdigit() or len(args[2]) > 9:
            self.broken("Parse Error")
            return None
        return args[0], args[1], max(1, int(args[2]))

    def keep_interest(self, key: tuple, account: Account, sub: RemoteSub) -> None:
        """Put what the peer wants into an account, in the place of what it wanted by that key."""
        old: RemoteSub = self.subs.get(key)
        if old is not None:
            if old.weight == sub.weight:
                return
            account.remove(old)
        self.subs[key] = sub
        account.insert(sub)
        if account.tires():
            self.rest()

    @cython.ccall
    def fail(self, error: str, reason: str):
        """Tell the peer what is wrong, and end the link."""
        self.queue(b"-ERR '" + error.encode("utf-8", "replace") + b"'\r\n")
        self.close(reason)

    def ping(self, behind: bool = False) -> None:
        """Ask the peer for a sign of life, ahead of what waits, or `behind` what it must know
        before."""
        self.pings_out += 1
        if self.line is not None:
            self.line.other_ping()
        self.pinged_ns = self.kernel.monotonic_ns()
        if behind:
            self.queue(b"PING\r\n")
        else:
            self.urge(b"PING\r\n")
