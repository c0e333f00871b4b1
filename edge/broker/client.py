"""The client protocol (NATS client protocol page; ADR-4 headers; ADR-47 no responders).

`ClientConn.parse` walks a chunk: PUB and HPUB are routed without making Python objects for the
payload; every other verb is a line for `verb`. Errors that NATS answers without closing are
queued as `-ERR`; the others close the connection with the reason that monitoring shows.
"""

import cython
from cython.cimports.cpython.bytes import (
    PyBytes_AS_STRING,
    PyBytes_FromStringAndSize,
    PyBytes_GET_SIZE,
)
from cython.cimports.headwater.edge.broker.account import Account
from cython.cimports.headwater.edge.broker.authorize import (
    RECEIVE,
    Login,
    authorize,
    may_ask,
    may_put,
)
from cython.cimports.headwater.edge.broker.conn import Conn
from cython.cimports.headwater.edge.broker.msg_trace import Trace, asks_for_trace, begin
from cython.cimports.headwater.edge.kernel.kernel import (
    FROM_PEER,
    KIND_CLIENT,
    MADE,
    Endpoint,
    Kernel,
    Msg,
    Sink,
)
from cython.cimports.headwater.edge.subjects.tokens import is_literal, is_valid
from cython.cimports.headwater.edge.subjects.word_scan import word_end
from cython.cimports.headwater.edge.wire.numbers import parse_size, put_number
from cython.cimports.libc.string import memchr, memcpy

from headwater.edge.subjects.tokens import clean_word
from headwater.edge.wire.json_objects import object_in

# A PUB line has at most 3 arguments, an HPUB line 4; one more shows that there are too many.
ARGS_MAX = cython.declare(cython.int, 5)
MSG_OVERHEAD = cython.declare(cython.Py_ssize_t, 64)
NEED_MORE = cython.declare(cython.Py_ssize_t, -1)


@cython.cclass
class ClientSub(Sink):
    """One subscription of a client connection."""

    def __init__(self, owner: ClientConn, subject: bytes, queue: bytes | None, sid: bytes):
        Sink.__init__(self, subject, queue)
        self.owner = owner
        self.sid = sid
        self.middle = b" " + sid + b" "

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def deliver(self, m: cython.pointer(Msg), sender: Endpoint) -> cython.int:
        """Queue a MSG or HMSG frame."""
        conn: ClientConn = cython.cast(ClientConn, self.owner)
        subject: cython.p_const_uchar = m.subject
        ns: cython.Py_ssize_t = m.subject_len
        nm: cython.Py_ssize_t = PyBytes_GET_SIZE(self.middle)
        body: cython.p_const_uchar = m.body
        size: cython.Py_ssize_t = m.size
        o: cython.p_uchar
        begin: cython.p_uchar
        if self.closed or conn.closed or (sender is conn and not conn.echo):
            return 0
        if m.shown_len:
            subject = m.shown
            ns = m.shown_len
        if self.checked and not self.allowed(m):
            return 0
        if m.header_len and not conn.headers:
            body += m.header_len
            size -= m.header_len
        conn.room(MSG_OVERHEAD + ns + nm + m.reply_len + size)
        begin = o = conn.out + conn.out_end
        if m.header_len and conn.headers:
            o[0] = 72
            o += 1
        o[0] = 77
        o[1] = 83
        o[2] = 71
        o[3] = 32
        o += 4
        memcpy(o, subject, ns)
        o += ns
        memcpy(o, PyBytes_AS_STRING(self.middle), nm)
        o += nm
        if m.reply_len:
            memcpy(o, m.reply, m.reply_len)
            o += m.reply_len
            o[0] = 32
            o += 1
        if m.header_len and conn.headers:
            o += put_number(o, m.header_len)
            o[0] = 32
            o += 1
        o += put_number(o, size)
        o[0] = 13
        o[1] = 10
        o += 2
        memcpy(o, body, size)
        o += size
        o[0] = 13
        o[1] = 10
        o += 2
        conn.count_queued(o - begin)
        self.count(conn, size, m)
        return 1

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1, check=False)
    def count(
        self, conn: ClientConn, size: cython.Py_ssize_t, m: cython.pointer(Msg)
    ) -> cython.int:
        """Count a delivery; end the subscription that has had all it asked for, and let the client
        answer where its rights say so."""
        conn.out_msgs += 1
        conn.out_bytes += size
        conn.kernel.out_msgs += 1
        conn.kernel.out_bytes += size
        self.delivered += 1
        if self.maximum and self.delivered >= self.maximum:
            conn.drop_sub(self)
        if conn.wants_responses and m.reply_len:
            conn.principal.answered(
                PyBytes_FromStringAndSize(cython.cast(cython.p_char, m.reply), m.reply_len)
            )
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def allowed(self, m: cython.pointer(Msg)) -> cython.int:
        """Whether the client may be given a message; asked where a deny overlaps a wildcard."""
        conn: ClientConn = cython.cast(ClientConn, self.owner)
        return authorize(conn.principal, RECEIVE, m.subject, m.subject_len, m.via, self.queue)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def split_words(
    line: cython.p_const_uchar,
    i: cython.Py_ssize_t,
    n: cython.Py_ssize_t,
    starts: cython.pointer(cython.Py_ssize_t),
    ends: cython.pointer(cython.Py_ssize_t),
) -> cython.int:
    """Where the words of `line` between `i` and `n` begin and end; how many there are, `ARGS_MAX`
    at most."""
    count: cython.int = 0
    while i < n:
        while i < n and (line[i] == 32 or line[i] == 9):
            i += 1
        if i == n or count == ARGS_MAX:
            break
        starts[count] = i
        # Any other control byte ends the word, and stands where the next one should begin.
        i = word_end(line, i, n)
        ends[count] = i
        count += 1
    return count


@cython.cclass
class ClientConn(Conn):
    """One client. `server`, the `Sessions` of `logins/sessions.py`, decides on logins, limits."""

    def __init__(self, server: object, kernel: Kernel, cid: int, max_pending: int):
        Conn.__init__(self, kernel, cid, max_pending)
        self.kind = KIND_CLIENT
        self.server = server
        self.subs = {}
        self.verbose = self.pedantic = self.echo = True
        self.options = {}
        self.max_control_line = 4096
        self.max_payload = 1 << 20
        self.max_subscriptions = -1
        self.principal = Login()

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def parse(self, data: cython.p_const_uchar, n: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Act on every complete frame; returns the bytes used."""
        pos: cython.Py_ssize_t = 0
        line: cython.Py_ssize_t
        used: cython.Py_ssize_t
        c: cython.uchar
        at: cython.p_const_uchar
        while pos < n and not self.closed and not self.paused:
            at = cython.cast(cython.p_const_uchar, memchr(data + pos, 10, n - pos))
            if at == cython.NULL:
                if n - pos > self.max_control_line:
                    self.fail("maximum control line exceeded", "Maximum Control Line Exceeded")
                break
            line = at - (data + pos)
            if line > self.max_control_line:
                self.fail("maximum control line exceeded", "Maximum Control Line Exceeded")
                break
            c = data[pos] | 32
            if not self.ready:
                if self.deciding:
                    break
                if c != 99 and line > 1:
                    self.server.first_verb(self)
                    continue
            if c == 112 and line > 4 and (data[pos + 1] | 32) == 117:
                used = self.message(data + pos, line, at + 1, n - pos - line - 1, False)
            elif c == 104 and line > 5 and (data[pos + 1] | 32) == 112:
                used = self.message(data + pos, line, at + 1, n - pos - line - 1, True)
            else:
                if line > 0 and data[pos + line - 1] == 13:
                    line -= 1
                used = 0
                self.message_end = cython.NULL
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
        """Route one PUB or HPUB; returns the body's bytes used, or -1 when it is not complete."""
        starts: cython.Py_ssize_t[5]
        ends: cython.Py_ssize_t[5]
        count: cython.int
        i: cython.Py_ssize_t = 5 if with_headers else 4
        numbers: cython.int = 2 if with_headers else 1
        m: Msg
        if line[n - 1] == 13:
            n -= 1
        if line[i - 1] != 32 and line[i - 1] != 9:
            self.fail("Unknown Protocol Operation", "Protocol Violation")
            return NEED_MORE
        count = split_words(line, i, n, starts, ends)
        if count < 1 + numbers or count > 2 + numbers or (with_headers and not self.headers):
            return self.broken()
        m.size = parse_size(line + starts[count - 1], ends[count - 1] - starts[count - 1])
        m.header_len = 0
        if with_headers:
            m.header_len = parse_size(line + starts[count - 2], ends[count - 2] - starts[count - 2])
        if m.size < 0 or m.header_len < 0 or m.header_len > m.size:
            return self.broken()
        if m.size > self.max_payload:
            self.fail("Maximum Payload Violation", "Maximum Message Payload Exceeded")
            return NEED_MORE
        if room < m.size + 2:
            return NEED_MORE
        if body[m.size] != 13 or body[m.size + 1] != 10:
            self.fail("Unknown Protocol Operation", "Protocol Violation")
            return NEED_MORE
        m.subject = line + starts[0]
        m.subject_len = ends[0] - starts[0]
        m.reply_len = 0
        m.reply = m.subject
        if count == 2 + numbers:
            m.reply = line + starts[1]
            m.reply_len = ends[1] - starts[1]
        m.shown_len = 0
        m.shown = m.subject
        m.body = body
        m.via = FROM_PEER
        self.message_end = body + m.size + 2
        self.publish(cython.address(m))
        return m.size + 2

    @cython.cfunc
    @cython.exceptval(-2, check=True)
    def broken(self) -> cython.Py_ssize_t:
        """End a client whose publish has arguments that make no sense; NATS sends no `-ERR`."""
        self.close("Protocol Violation")
        return NEED_MORE

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def publish(self, m: cython.pointer(Msg)) -> cython.int:
        """Check and route what this client published."""
        kernel: Kernel = self.kernel
        taken: cython.Py_ssize_t
        self.in_msgs += 1
        self.in_bytes += m.size
        kernel.in_msgs += 1
        kernel.in_bytes += m.size
        self.mapped_from = None
        if self.pedantic or self.account.remaps(m.subject, m.subject_len):
            self.prepare(m)
        if not may_put(self.principal, m):
            return self.publish_denied(m)
        if not may_ask(self.principal, m):
            return self.reply_denied(m)
        if self.verbose:
            self.queue(b"+OK\r\n")
        kernel.congested = None
        if m.header_len:
            taken = self.route_with_headers(m)
        else:
            taken = self.account.publish(m, self)
        if taken == 0 and m.reply_len and self.no_responders:
            self.answer_no_responders(m)
        if kernel.congested is not None:
            self.pause()
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def prepare(self, m: cython.pointer(Msg)) -> cython.int:
        """What pedantic clients are told of a subject, and the account's mappings of it."""
        if self.pedantic and not (
            is_valid(m.subject, m.subject_len) and is_literal(m.subject, m.subject_len)
        ):
            self.queue(b"-ERR 'Invalid Publish Subject'\r\n")
        if self.account.remaps(m.subject, m.subject_len):
            self.mapped_from = PyBytes_FromStringAndSize(
                cython.cast(cython.p_char, m.subject), m.subject_len
            )
            self.mapped_to = self.account.mapped(self.mapped_from)
            if self.mapped_to is self.mapped_from:
                self.mapped_from = None
            m.subject = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(self.mapped_to))
            m.subject_len = PyBytes_GET_SIZE(self.mapped_to)
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def publish_denied(self, m: cython.pointer(Msg)) -> cython.int:
        """Refuse a message on a subject that the login may not publish on."""
        subject: bytes = PyBytes_FromStringAndSize(
            cython.cast(cython.p_char, m.subject), m.subject_len
        )
        self.server.publish_denied(self, self.principal.named(subject))
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def route_with_headers(self, m: cython.pointer(Msg)) -> cython.Py_ssize_t:
        """Route a message with headers, which may ask for a trace; returns how many took it."""
        if self.trace_dest is not None or asks_for_trace(m):
            return self.publish_traced(m)
        return self.account.publish(m, self)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def publish_traced(self, m: cython.pointer(Msg)) -> cython.Py_ssize_t:
        """Route a message that may have to be traced."""
        trace: Trace
        trace = begin(self.account, self, m, self.trace_dest)
        if trace is None:
            return self.account.publish(m, self)
        if self.mapped_from is not None:
            trace.mapped(self.mapped_from, m)
        if not trace.valid():
            return 1 if trace.only else self.account.publish(m, self)
        if not self.principal.may_publish(trace.dest):
            self.server.publish_denied(self, trace.dest)
            return 1
        count: cython.Py_ssize_t = trace.route(
            m, self.account.match(m.subject, m.subject_len), None
        )
        trace.send(self.server.describe_node())
        return count

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def reply_denied(self, m: cython.pointer(Msg)) -> cython.int:
        """Refuse a message whose reply only the node may give meaning to."""
        self.server.reply_denied(
            self, PyBytes_FromStringAndSize(cython.cast(cython.p_char, m.reply), m.reply_len)
        )
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def answer_no_responders(self, m: cython.pointer(Msg)) -> cython.int:
        """Tell the requester, and nobody else, that no one listens (status 503)."""
        answer: Msg
        sink: Sink
        subject: bytes = PyBytes_FromStringAndSize(
            cython.cast(cython.p_char, m.subject), m.subject_len
        )
        block: bytes = b"NATS/1.0 503\r\nNats-Subject: " + subject + b"\r\n\r\n"
        answer.subject = m.reply
        answer.subject_len = m.reply_len
        answer.reply = m.reply
        answer.reply_len = 0
        answer.shown = m.reply
        answer.shown_len = 0
        answer.body = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(block))
        answer.header_len = answer.size = PyBytes_GET_SIZE(block)
        answer.via = MADE
        for item in self.account.match(m.reply, m.reply_len).plain:
            sink = item
            if sink.owner is self:
                sink.deliver(cython.address(answer), None)
                break
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def fail(self, error: str, reason: str) -> cython.int:
        """Answer `-ERR` and close."""
        self.queue(b"-ERR '" + error.encode() + b"'\r\n")
        self.close(reason)
        return 0

    def refuse(self, error: str, reason: str) -> None:
        """`fail` for interpreted callers."""
        self.fail(error, reason)

    def warn(self, error: str) -> None:
        """Answer `-ERR` and go on."""
        self.queue(b"-ERR '" + error.encode("utf-8", "replace") + b"'\r\n")

    def welcome(self) -> None:
        """Answer CONNECT: the login has succeeded."""
        self.acknowledge()

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def acknowledge(self) -> cython.int:
        if self.verbose:
            self.queue(b"+OK\r\n")
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def verb(self, line: bytes) -> cython.int:
        """Act on one control line that is not a publication."""
        head: bytes = line[:8].upper()
        if head.startswith(b"PING"):
            self.queue(b"PONG\r\n")
            if self.ready and not self.first_ping_seen:
                self.first_ping_seen = True
                if self.protocol >= 1:
                    self.server.after_first_ping(self)
        elif head.startswith(b"PONG"):
            self.pings_out = 0
            self.server.pong(self)
        elif head.startswith(b"CONNECT"):
            self.connect(line[7:].strip())
        elif head.startswith((b"SUB ", b"SUB\t")):
            self.subscribe(line[4:].split())
        elif head.startswith((b"UNSUB ", b"UNSUB\t")):
            self.unsubscribe(line[6:].split())
        elif head.startswith((b"+OK", b"INFO ", b"-ERR")) or not line:
            return 0
        else:
            self.fail("Unknown Protocol Operation", "Protocol Violation")
        return 0

    def connect(self, payload: bytes) -> None:
        """CONNECT: take the client's options and log it in."""
        fields = object_in(payload)
        if fields is None:
            self.fail("Unknown Protocol Operation", "Protocol Violation")
            return
        self.options = fields
        self.verbose = bool(fields.get("verbose", True))
        self.pedantic = bool(fields.get("pedantic", True))
        self.echo = bool(fields.get("echo", True))
        self.headers = bool(fields.get("headers", False)) and self.server.headers_supported
        self.no_responders = bool(fields.get("no_responders", False))
        protocol = fields.get("protocol", 0)
        if not isinstance(protocol, int) or not 0 <= protocol <= 1:
            self.fail("invalid client protocol", "Bad Client Protocol Version")
            return
        self.protocol = protocol
        if self.no_responders and not self.headers:
            self.fail("no responders requires headers support", "No Responders Requires Headers")
            return
        self.server.login(self, fields)

    def subscribe(self, args: list) -> None:
        """SUB <subject> [queue] <sid>."""
        if not 2 <= len(args) <= 3:
            self.fail("Unknown Protocol Operation", "Protocol Violation")
            return
        subject: bytes = args[0]
        queue = args[1] if len(args) == 3 else None
        sid: bytes = args[len(args) - 1]
        if not is_valid(subject, len(subject)) or not all(map(clean_word, args)):
            self.warn("Invalid Subject")
            return
        if sid in self.subs:
            self.acknowledge()
            return
        if 0 <= self.max_subscriptions <= len(self.subs) or self.account.is_full:
            self.warn("maximum subscriptions exceeded")
            return
        if not self.server.may_subscribe(self, subject, queue):
            return
        sub = ClientSub(self, subject, queue, sid)
        sub.checked = self.principal.filters(subject, queue)
        self.subs[sid] = sub
        self.account.insert(sub)
        self.acknowledge()
        if self.account.tires():
            self.rest()

    def unsubscribe(self, args: list) -> None:
        """UNSUB <sid> [max]."""
        if not 1 <= len(args) <= 2:
            self.fail("Unknown Protocol Operation", "Protocol Violation")
            return
        sub: ClientSub = self.subs.get(args[0])
        if sub is not None:
            sub.maximum = 0
            if len(args) == 2 and args[1].isdigit():
                sub.maximum = min(int(args[1]), 1 << 62)
            if sub.maximum == 0 or sub.delivered >= sub.maximum:
                self.drop_sub(sub)
        self.acknowledge()

    def drop_sub(self, sub: ClientSub) -> None:
        """End one subscription."""
        if self.tracer is not None:
            self.tracer.unsubscribed(sub.sid)
        self.subs.pop(sub.sid, None)
        self.account.remove(sub)

    def ended(self) -> None:
        """Forget all subscriptions: they hear no more."""
        subs: list = list(self.subs.values())
        sub: ClientSub
        self.subs.clear()
        for sub in subs:
            if self.tracer is not None:
                self.tracer.unsubscribed(sub.sid)
            sub.closed = True
        if subs:
            self.remove_all(self.account, subs)

    def remove_all(self, account: Account, subs: list) -> None:
        """Take interest out of an account; others have their turn where that is long work."""
        while subs:
            account.remove(subs.pop())
            if account.tires():
                self.loop.call_soon(self.remove_all, account, subs)
                return

    def restrict(self, rights: object) -> None:
        """Apply permissions (`rights/grants.py`: `Rights`); None lifts them."""
        self.principal = Login(self.account, rights)
        self.wants_responses = rights is not None and rights.responses is not None

    def move_to(self, account: Account) -> None:
        """Bind to an account; subscriptions of another one are dropped."""
        if self.account is not account:
            if self.account is not None:
                self.ended()
            self.account = account
