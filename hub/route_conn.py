"""The route protocol on one connection between nodes of a cluster (NATS route protocol).

`RouteConn.parse` walks a chunk: RMSG and HMSG are routed without making Python objects for the
payload, every other verb is a line for `verb`. The peer's interest stands in the accounts as remote
sinks of this connection. A message goes over one route at most: what came by a route never leaves
by another one, since every node of a cluster has a route to every other.
"""

import cython
from cython.cimports.cpython.bytes import (
    PyBytes_AS_STRING,
    PyBytes_FromStringAndSize,
    PyBytes_GET_SIZE,
)
from cython.cimports.headwater.edge.broker.account import Account
from cython.cimports.headwater.edge.broker.conn import Conn
from cython.cimports.headwater.edge.broker.core import Kernel, Msg, Sink
from cython.cimports.headwater.edge.subjects.tokens import is_valid
from cython.cimports.headwater.edge.wire.numbers import put_number, take_size
from cython.cimports.libc.string import memchr, memcmp, memcpy

# Beside the kinds of the broker: connections to other nodes of the cluster.
KIND_ROUTE = 3

CONTROL_LINE_MAX = cython.declare(cython.Py_ssize_t, 64 << 10)
# The sender has checked its own limit; this bounds what a broken peer can make a node keep.
PAYLOAD_MAX = cython.declare(cython.Py_ssize_t, 64 << 20)
# Arguments of one RMSG line: a queue group each, beyond account, subject and sizes.
ARGS_MAX = cython.declare(cython.int, 512)
FRAME_OVERHEAD = cython.declare(cython.Py_ssize_t, 80)
NEED_MORE = cython.declare(cython.Py_ssize_t, -1)
# The delivery subject of JetStream travels behind an ack subject, which has this many dots.
ACK_DOTS = cython.declare(cython.int, 8)
ACK_PREFIX = cython.declare(cython.p_const_char, b"$JS.ACK.")
MSG_TAIL = cython.declare(cython.p_const_char, b"MSG ")

# The message of a peer that is being routed: it must not leave by another route.
routed_message = cython.declare(cython.pointer(Msg), cython.NULL)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def delivery_at(reply: cython.p_const_uchar, n: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Where the `@` of a delivery subject stands in a reply; -1 without."""
    dots: cython.int = 0
    i: cython.Py_ssize_t
    if n <= 8 or memcmp(reply, ACK_PREFIX, 8) != 0:
        return -1
    for i in range(n):
        if reply[i] == 46:
            dots += 1
        elif reply[i] == 64 and dots >= ACK_DOTS:
            return i
    return -1


@cython.cclass
class RouteSub(Sink):
    """The peer's interest in one subject of one account, for one queue group or for nobody."""

    def __init__(
        self, owner: object, account: bytes, subject: bytes, queue: bytes | None, weight: int
    ):
        Sink.__init__(self, subject, queue)
        self.owner = owner
        self.account = account
        self.remote = True
        self.weight = weight


@cython.cclass
class RouteConn(Conn):
    """One route, on either end."""

    def __init__(
        self, session: object, kernel: Kernel, cid: int, max_pending: int, accounts: object
    ):
        Conn.__init__(self, kernel, cid, max_pending)
        self.kind = KIND_ROUTE
        self.session = session
        self.accounts = accounts
        self.subs = {}
        self.queues = []
        self.headers = True
        self.ignored = frozenset()

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
            if line > CONTROL_LINE_MAX:
                self.fail("maximum control line exceeded", "Maximum Control Line Exceeded")
                break
            if at == cython.NULL:
                break
            if (
                line > 5
                and self.ready
                and memcmp(data + pos + 1, MSG_TAIL, 4) == 0
                and (data[pos] == 82 or data[pos] == 72)
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
        """Route one RMSG or HMSG; returns the body's bytes used, or -1 when it is not complete."""
        starts: cython.Py_ssize_t[512]
        ends: cython.Py_ssize_t[512]
        count: cython.int = 0
        numbers: cython.int = 2 if with_headers else 1
        i: cython.Py_ssize_t = 5
        m: Msg
        only: tuple = ()
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
        if i < n or count < 2 + numbers:
            return self.broken("Parse Error")
        m.size = take_size(line + starts[count - 1], ends[count - 1] - starts[count - 1])
        m.header_len = 0
        if with_headers:
            m.header_len = take_size(line + starts[count - 2], ends[count - 2] - starts[count - 2])
        if m.size < 0 or m.size > PAYLOAD_MAX or m.header_len < 0 or m.header_len > m.size:
            return self.broken("Parse Error")
        if room < m.size + 2:
            return NEED_MORE
        if body[m.size] != 13 or body[m.size + 1] != 10:
            return self.broken("Parse Error")
        m.subject = m.reply = m.shown = line + starts[1]
        m.subject_len = ends[1] - starts[1]
        m.reply_len = m.shown_len = 0
        m.body = body
        count -= numbers
        if count == 3:
            m.reply = line + starts[2]
            m.reply_len = ends[2] - starts[2]
        elif count > 3:
            if ends[2] - starts[2] != 1 or (line[starts[2]] != 43 and line[starts[2]] != 124):
                return self.broken("Parse Error")
            i = 3
            if line[starts[2]] == 43:
                m.reply = line + starts[3]
                m.reply_len = ends[3] - starts[3]
                i = 4
            names: list = []
            while i < count:
                names.append(
                    PyBytes_FromStringAndSize(
                        cython.cast(cython.p_char, line + starts[i]), ends[i] - starts[i]
                    )
                )
                i += 1
            only = tuple(names)
        self.inbound(
            self.account_for(line + starts[0], ends[0] - starts[0]), cython.address(m), only
        )
        return m.size + 2

    @cython.cfunc
    def account_for(self, name: cython.p_const_uchar, n: cython.Py_ssize_t) -> Account:
        """The account of that name; that of the previous message when it is the same one."""
        if (
            self.last_name is None
            or PyBytes_GET_SIZE(self.last_name) != n
            or memcmp(PyBytes_AS_STRING(self.last_name), name, n) != 0
        ):
            self.last_name = PyBytes_FromStringAndSize(cython.cast(cython.p_char, name), n)
            self.last_account = self.accounts(self.last_name.decode("utf-8", "replace"))
        return self.last_account

    def broken(self, reason: str) -> int:
        """End a route whose peer does not speak the protocol."""
        self.fail("Unknown Protocol Operation", reason)
        return -1

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def inbound(self, account: Account, m: cython.pointer(Msg), only: tuple) -> cython.int:
        """Route a message of the peer to everybody on this node who wants it."""
        global routed_message
        kernel: Kernel = self.kernel
        outer: cython.pointer(Msg) = routed_message
        at: cython.Py_ssize_t
        self.in_msgs += 1
        self.in_bytes += m.size
        kernel.in_msgs += 1
        kernel.in_bytes += m.size
        at = delivery_at(m.reply, m.reply_len)
        if at > 0:
            m.shown = m.reply + at + 1
            m.shown_len = m.reply_len - at - 1
            m.reply_len = at
        kernel.congested = None
        routed_message = m
        try:
            account.route(m, self, account.match(m.subject, m.subject_len), only)
        finally:
            routed_message = outer
        if kernel.congested is not None:
            self.pause()
        return 0

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
        self.collected_account = cython.cast(RouteSub, sink).account
        return 1

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def emit(self, m: cython.pointer(Msg)) -> cython.int:
        """Queue one RMSG or HMSG for all that was collected; 0 when it came by a route."""
        self.collected = False
        try:
            if self.closed or routed_message == m:
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
        name: bytes = self.collected_account
        names: cython.Py_ssize_t = PyBytes_GET_SIZE(name)
        groups: bytes = b" ".join(self.queues) + b" " if self.queues else b""
        if header_len and not self.headers:
            body += header_len
            size -= header_len
            header_len = 0
        self.room(
            FRAME_OVERHEAD
            + names
            + m.subject_len
            + m.reply_len
            + m.shown_len
            + PyBytes_GET_SIZE(groups)
            + size
        )
        begin = o = self.out + self.out_end
        o[0] = 72 if header_len else 82
        memcpy(o + 1, MSG_TAIL, 4)
        o += 5
        memcpy(o, PyBytes_AS_STRING(name), names)
        o += names
        o[0] = 32
        o += 1
        memcpy(o, m.subject, m.subject_len)
        o += m.subject_len
        o[0] = 32
        o += 1
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

    # --- verbs ----------------------------------------------------

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def verb(self, line: bytes) -> cython.int:
        """Act on one control line that is not a message."""
        head: bytes = line[:8].upper()
        if head == b"PING":
            self.queue(b"PONG\r\n")
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
        elif head.startswith(b"RS+ ") and self.admitted():
            self.interest_added(line[4:].split())
        elif head.startswith(b"RS- ") and self.admitted():
            self.interest_removed(line[4:].split())
        elif line and head != b"+OK" and not self.closed:
            self.broken("Parse Error")
        return 0

    def admitted(self) -> bool:
        """Whether the peer may speak of interest; ends the route when it may not yet."""
        if not self.ready and not self.closed:
            self.fail("Authorization Violation", "Protocol Violation")
        return self.ready

    def interest_added(self, args: list) -> None:
        """RS+ <account> <subject> [<queue> <weight>]."""
        weight: int = 1
        queue = args[2] if len(args) == 4 else None
        sub: RouteSub
        if len(args) not in (2, 4) or not is_valid(args[1], len(args[1])):
            self.broken("Parse Error")
            return
        if queue is not None:
            if not args[3].isdigit() or len(args[3]) > 9:
                self.broken("Parse Error")
                return
            weight = max(1, int(args[3]))
        if args[1] in self.ignored:
            return
        key = (args[0], args[1], queue)
        account: Account = self.accounts(args[0].decode("utf-8", "replace"))
        sub = self.subs.get(key)
        if sub is not None:
            if sub.weight == weight:
                return
            account.remove(sub)
        sub = RouteSub(self, args[0], args[1], queue, weight)
        self.subs[key] = sub
        account.insert(sub)

    def interest_removed(self, args: list) -> None:
        """RS- <account> <subject> [<queue>]."""
        if not 2 <= len(args) <= 3:
            self.broken("Parse Error")
            return
        key = (args[0], args[1], args[2] if len(args) == 3 else None)
        self.forget(self.subs.pop(key, None))

    def forget(self, sub: RouteSub) -> None:
        """Take one subscription of the peer out of its account."""
        if sub is not None:
            self.accounts(sub.account.decode("utf-8", "replace")).remove(sub)

    @cython.ccall
    def fail(self, error: str, reason: str):
        """Tell the peer what is wrong, and end the route."""
        self.queue(b"-ERR '" + error.encode("utf-8", "replace") + b"'\r\n")
        self.close(reason)

    def ping(self) -> None:
        """Ask the peer for a sign of life."""
        self.pings_out += 1
        self.pinged_ns = self.kernel.clock()
        self.queue(b"PING\r\n")

    def ended(self) -> None:
        """Forget the peer's interest."""
        self.ready = False
        for sub in list(self.subs.values()):
            self.forget(cython.cast(RouteSub, sub))
        self.subs.clear()
