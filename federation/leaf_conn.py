"""The leaf protocol on one link (NATS leaf node protocol; both ends).

`LeafConn.parse` walks a chunk: LMSG and HMSG are routed without making Python objects for the
payload, every other verb is a line for `verb`. The peer's interest stands in the account as remote
sinks of this connection; whatever they match goes out as one LMSG per message, with the names of
the queue groups that were chosen. Who may link, and what may pass, is decided by `session`.
"""

import cython
from cython.cimports.cpython.bytes import (
    PyBytes_AS_STRING,
    PyBytes_FromStringAndSize,
    PyBytes_GET_SIZE,
)
from cython.cimports.headwater.edge.broker.account import Account
from cython.cimports.headwater.edge.broker.conn import Conn
from cython.cimports.headwater.edge.broker.core import KIND_LEAF, Kernel, Msg, Sink
from cython.cimports.headwater.edge.subjects.tokens import is_valid
from cython.cimports.headwater.edge.subjects.trie import Match
from cython.cimports.headwater.edge.wire.numbers import put_number, take_size
from cython.cimports.headwater.federation.rules import Rules
from cython.cimports.libc.string import memchr, memcmp, memcpy, memmove

# NATS gives links sixteen times the control line of a client, and at least this.
CONTROL_LINE_MAX = 64 << 10
# Arguments of one LMSG line: a queue group each, beyond the subject and the sizes.
ARGS_MAX = cython.declare(cython.int, 512)
FRAME_OVERHEAD = cython.declare(cython.Py_ssize_t, 80)
NEED_MORE = cython.declare(cython.Py_ssize_t, -1)
# A `$JS.ACK` reply has at least nine tokens; the delivery subject may follow only after them.
ACK_DOTS = cython.declare(cython.int, 8)
ACK_PREFIX = cython.declare(cython.p_const_char, b"$JS.ACK.")
MSG_TAIL = cython.declare(cython.p_const_char, b"MSG ")

LOOP_PREFIX = b"$LDS."

# The link whose message is being routed, and that message: it must not reach another member of
# the peer's cluster.
routing_link = cython.declare(object, None)
routing_message = cython.declare(cython.pointer(Msg), cython.NULL)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def shown_at(reply: cython.p_const_uchar, n: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Where the `@` of a delivery subject stands in a reply; -1 without."""
    dots: cython.int = 0
    i: cython.Py_ssize_t
    if n < 10 or memcmp(reply, ACK_PREFIX, 8) != 0:
        return -1
    for i in range(n):
        if reply[i] == 46:
            dots += 1
        elif reply[i] == 64 and dots >= ACK_DOTS:
            return i
    return -1


@cython.cfunc
def text_of(text: cython.p_const_uchar, n: cython.Py_ssize_t) -> bytes:
    return PyBytes_FromStringAndSize(cython.cast(cython.p_char, text), n)


@cython.cclass
class LeafSub(Sink):
    """The peer's interest in one subject, for one queue group or for nobody in particular."""

    def __init__(self, owner: object, subject: bytes, queue: bytes | None, weight: int):
        Sink.__init__(self, subject, queue)
        self.owner = owner
        self.remote = True
        self.weight = weight


@cython.cclass
class LeafConn(Conn):
    """One leaf link, on either end."""

    def __init__(self, session: object, kernel: Kernel, cid: int, max_pending: int):
        Conn.__init__(self, kernel, cid, max_pending)
        self.kind = KIND_LEAF
        self.session = session
        self.subs = {}
        self.queues = []
        self.cluster = b""
        self.headers = True
        self.may_send = self.may_receive = Rules()
        self.max_control_line = CONTROL_LINE_MAX
        self.max_payload = 1 << 20

    # --- in ----------------------------------------------------

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def parse(self, data: cython.p_const_uchar, n: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Act on every complete frame; returns the bytes used."""
        pos: cython.Py_ssize_t = 0
        line: cython.Py_ssize_t
        used: cython.Py_ssize_t
        at: cython.p_const_uchar
        while pos < n and not self.closed:
            at = cython.cast(cython.p_const_uchar, memchr(data + pos, 10, n - pos))
            line = n - pos if at == cython.NULL else at - (data + pos)
            if line > self.max_control_line:
                self.fail("maximum control line exceeded", "Maximum Control Line Exceeded")
                break
            if at == cython.NULL:
                break
            if line > 5 and self.ready and memcmp(data + pos + 1, MSG_TAIL, 4) == 0 and (
                data[pos] == 76 or data[pos] == 72
            ):
                used = self.message(
                    data + pos, line, at + 1, n - pos - line - 1, data[pos] == 72
                )
            else:
                if line > 0 and data[pos + line - 1] == 13:
                    line -= 1
                used = 0
                self.verb(PyBytes_FromStringAndSize(cython.cast(cython.p_char, data + pos), line))
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
        with_headers: cython.bint,
    ) -> cython.Py_ssize_t:
        """Route one LMSG or HMSG; returns the body's bytes used, or -1 when it is not complete."""
        starts: cython.Py_ssize_t[512]
        ends: cython.Py_ssize_t[512]
        count: cython.int = 0
        numbers: cython.int = 2 if with_headers else 1
        i: cython.Py_ssize_t = 5
        k: cython.Py_ssize_t
        m: Msg
        only: tuple
        if line[n - 1] == 13:
            n -= 1
        while i < n and count < ARGS_MAX:
            while i < n and (line[i] == 32 or line[i] == 9):
                i += 1
            if i == n:
                break
            starts[count] = i
            while i < n and line[i] != 32 and line[i] != 9:
                i += 1
            ends[count] = i
            count += 1
        if i < n or count < 1 + numbers:
            return self.broken("Parse Error")
        m.size = take_size(line + starts[count - 1], ends[count - 1] - starts[count - 1])
        m.header_len = 0
        if with_headers:
            m.header_len = take_size(line + starts[count - 2], ends[count - 2] - starts[count - 2])
        if m.size < 0 or m.header_len < 0 or m.header_len > m.size:
            return self.broken("Parse Error")
        if m.size > self.max_payload:
            self.fail("Maximum Payload Violation", "Maximum Message Payload Exceeded")
            return NEED_MORE
        if room < m.size + 2:
            return NEED_MORE
        if body[m.size] != 13 or body[m.size + 1] != 10:
            return self.broken("Parse Error")
        if with_headers and m.header_len < 12:
            return self.broken("Message Header Violation")
        m.subject = m.reply = m.shown = line + starts[0]
        m.subject_len = ends[0] - starts[0]
        m.reply_len = m.shown_len = 0
        m.body = body
        count -= numbers
        only = ()
        if count == 2:
            m.reply = line + starts[1]
            m.reply_len = ends[1] - starts[1]
        elif count > 2:
            i = 2
            if ends[1] - starts[1] != 1 or (line[starts[1]] != 43 and line[starts[1]] != 124):
                return self.broken("Parse Error")
            if line[starts[1]] == 43:
                m.reply = line + starts[2]
                m.reply_len = ends[2] - starts[2]
                i = 3
            if i == count:
                return self.broken("Parse Error")
            only = tuple([text_of(line + starts[k], ends[k] - starts[k]) for k in range(i, count)])
        self.inbound(cython.address(m), only)
        return m.size + 2

    def broken(self, reason: str) -> int:
        """End a link whose peer does not speak the protocol."""
        self.fail("Unknown Protocol Operation", reason)
        return -1

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def inbound(self, m: cython.pointer(Msg), only: tuple) -> cython.int:
        """Route a message of the peer to everybody who wants it here and beyond."""
        global routing_link, routing_message
        kernel: Kernel = self.kernel
        at: cython.Py_ssize_t
        subject: bytes
        self.in_msgs += 1
        self.in_bytes += m.size
        kernel.in_msgs += 1
        kernel.in_bytes += m.size
        if not self.may_receive.permits(m.subject, m.subject_len):
            self.session.message_denied(self, text_of(m.subject, m.subject_len))
            return 0
        at = shown_at(m.reply, m.reply_len)
        if at > 0:
            m.shown = m.reply + at + 1
            m.shown_len = m.reply_len - at - 1
            m.reply_len = at
        if self.account.mappings is not None:
            subject = text_of(m.subject, m.subject_len)
            mapped: bytes = self.account.mappings.apply(subject)
            if mapped != subject:
                # The sender could not know the queue groups behind the mapping.
                only = only or None
                subject = mapped
                m.subject = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(subject))
                m.subject_len = PyBytes_GET_SIZE(subject)
        kernel.congested = None
        routing_link = self
        routing_message = m
        try:
            self.account.route(m, self, self.match_for(m.subject, m.subject_len), only)
        finally:
            routing_link = None
            routing_message = cython.NULL
        if kernel.congested is not None:
            self.pause()
        return 0

    @cython.cfunc
    def match_for(self, subject: cython.p_const_uchar, n: cython.Py_ssize_t) -> Match:
        """The match of a subject; that of the previous message when it is the same subject."""
        if (
            self.last_subject is not None
            and self.last_generation == self.account.generation
            and PyBytes_GET_SIZE(self.last_subject) == n
            and memcmp(PyBytes_AS_STRING(self.last_subject), subject, n) == 0
        ):
            return self.last_match
        self.last_match = self.account.match(subject, n)
        self.last_subject = PyBytes_FromStringAndSize(cython.cast(cython.p_char, subject), n)
        self.last_generation = self.account.generation
        return self.last_match

    # --- out ----------------------------------------------------

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def collect(self, sink: Sink) -> cython.int:
        """Note that the message being routed goes to the peer."""
        if sink.queue is not None:
            self.queues.append(sink.queue)
        if self.collected:
            return 0
        self.collected = True
        return 1

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def emit(self, m: cython.pointer(Msg)) -> cython.int:
        """Queue one LMSG or HMSG for all that was collected; 0 when it may not leave."""
        self.collected = False
        try:
            if self.closed or not self.may_send.permits(m.subject, m.subject_len):
                return 0
            if (
                routing_message == m
                and self.cluster
                and routing_link is not None
                and cython.cast(LeafConn, routing_link).cluster == self.cluster
            ):
                return 0
            return self.write(m)
        finally:
            if self.queues:
                self.queues = []

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def write(self, m: cython.pointer(Msg)) -> cython.int:
        """Append the frame of a message to the output."""
        o: cython.p_uchar
        begin: cython.p_uchar
        body: cython.p_const_uchar = m.body
        size: cython.Py_ssize_t = m.size
        header_len: cython.Py_ssize_t = m.header_len
        groups: bytes = b""
        if header_len and not self.headers:
            body += header_len
            size -= header_len
            header_len = 0
        if self.queues:
            groups = b" ".join(self.queues) + b" "
        self.room(
            FRAME_OVERHEAD
            + m.subject_len
            + m.reply_len
            + m.shown_len
            + PyBytes_GET_SIZE(groups)
            + size
        )
        begin = o = self.out + self.out_end
        o[0] = 72 if header_len else 76
        memcpy(o + 1, MSG_TAIL, 4)
        o += 5
        memcpy(o, m.subject, m.subject_len)
        o += m.subject_len
        o[0] = 32
        o += 1
        if self.queues:
            o[0] = 43 if m.reply_len else 124
            o[1] = 32
            o += 2
        if m.reply_len:
            memcpy(o, m.reply, m.reply_len)
            o += m.reply_len
            if (
                m.shown_len
                and m.reply_len > 8
                and memcmp(m.reply, ACK_PREFIX, 8) == 0
            ):
                o[0] = 64
                memcpy(o + 1, m.shown, m.shown_len)
                o += 1 + m.shown_len
            o[0] = 32
            o += 1
        if groups:
            memcpy(o, PyBytes_AS_STRING(groups), PyBytes_GET_SIZE(groups))
            o += PyBytes_GET_SIZE(groups)
        if header_len:
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
        self.commit(o - begin)
        self.out_msgs += 1
        self.out_bytes += size
        self.kernel.out_msgs += 1
        self.kernel.out_bytes += size
        return 1

    # --- control frames go ahead of bulk data ----------------------------------------------------

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
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def settle(self) -> cython.int:
        """As of Conn; an empty buffer begins anew."""
        Conn.settle(self)
        if self.out_start == self.out_end:
            self.boundary = 0
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
                self.boundary += take_size(frame + i, line - 1 - i) + 2

    def urge(self, data: bytes) -> None:
        """Queue a control line ahead of the messages that wait; bytes already sent stay whole."""
        n: cython.Py_ssize_t = PyBytes_GET_SIZE(data)
        if self.closed:
            return
        if self.filter is not None or self.out_start == self.out_end:
            self.queue(data)
            return
        self.find_boundary()
        self.room(n)
        memmove(
            self.out + self.boundary + n, self.out + self.boundary, self.out_end - self.boundary
        )
        memcpy(self.out + self.boundary, PyBytes_AS_STRING(data), n)
        self.commit(n)
        if not self.kernel.turning:
            self.kernel.kick()

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
            if self.pinged_ns:
                self.rtt_ns = self.kernel.clock() - self.pinged_ns
                self.pinged_ns = 0
        elif head.startswith(b"INFO "):
            self.session.got_info(self, line[5:])
        elif head == b"CONNECT ":
            self.session.got_connect(self, line[8:])
        elif head.startswith(b"-ERR"):
            self.session.got_error(self, line[4:].strip().strip(b"'"))
        elif head.startswith(b"LS+ ") and self.admitted():
            self.interest_added(line[4:].split())
        elif head.startswith(b"LS- ") and self.admitted():
            self.interest_removed(line[4:].split())
        elif line and head != b"+OK" and not self.closed:
            self.broken("Parse Error")
        return 0

    def admitted(self) -> bool:
        """Whether the peer may speak of interest; ends the link when it may not yet."""
        if not self.ready and not self.closed:
            self.fail("Authorization Violation", "Protocol Violation")
        return self.ready

    def interest_added(self, args: list) -> None:
        """LS+ <subject> [<queue> <weight>]."""
        queue = args[1] if len(args) == 3 else None
        weight: int = 1
        sub: LeafSub
        if len(args) not in (1, 3) or not is_valid(args[0], len(args[0])):
            self.broken("Parse Error")
            return
        if queue is not None:
            if not args[2].isdigit() or len(args[2]) > 9:
                self.broken("Parse Error")
                return
            weight = max(1, int(args[2]))
        if not self.session.may_add_interest(self, args[0]):
            return
        sub = self.subs.get((args[0], queue))
        if sub is None:
            sub = LeafSub(self, args[0], queue, weight)
            self.subs[(args[0], queue)] = sub
            self.account.insert(sub)
        elif sub.weight != weight:
            self.account.remove(sub)
            sub = LeafSub(self, args[0], queue, weight)
            self.subs[(args[0], queue)] = sub
            self.account.insert(sub)

    def interest_removed(self, args: list) -> None:
        """LS- <subject> [<queue>]."""
        if not 1 <= len(args) <= 2:
            self.broken("Parse Error")
            return
        sub = self.subs.pop((args[0], args[1] if len(args) == 2 else None), None)
        if sub is not None:
            self.account.remove(sub)

    @cython.ccall
    def fail(self, error: str, reason: str):
        """Tell the peer what is wrong, and end the link."""
        self.queue(b"-ERR '" + error.encode("utf-8", "replace") + b"'\r\n")
        self.close(reason)

    def ping(self) -> None:
        """Ask the peer for a sign of life."""
        self.pings_out += 1
        self.pinged_ns = self.kernel.clock()
        self.urge(b"PING\r\n")

    def admit(self, account: Account, may_send: Rules, may_receive: Rules) -> None:
        """Let interest and messages of the link into `account`."""
        self.account = account
        self.may_send = may_send
        self.may_receive = may_receive
        self.ready = True

    def ended(self) -> None:
        """Forget the peer's interest."""
        self.ready = False
        for sub in list(self.subs.values()):
            self.account.remove(sub)
        self.subs.clear()
