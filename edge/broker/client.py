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
from cython.cimports.headwater.edge.subjects.word_scan import is_clean, word_end
from cython.cimports.headwater.edge.wire.numbers import parse_size, put_number
from cython.cimports.libc.string import memchr, memcpy, strlen

from headwater.edge.broker.client_lines import tell_error, tell_payload
from headwater.edge.subjects.visit_order import place
from headwater.edge.wire.connect_fields import connect_fields
from headwater.edge.wire.json_objects import object_in

# A PUB line has at most 3 arguments, an HPUB line 4; one more shows that there are too many.
ARGS_MAX = cython.declare(cython.int, 5)
MSG_OVERHEAD = cython.declare(cython.Py_ssize_t, 64)
NEED_MORE = cython.declare(cython.Py_ssize_t, -1)
VERB_MAX = cython.declare(cython.Py_ssize_t, 16)
# Lines other than plain publications that are acted on before others have their turn: a few
# milliseconds. One read brings a hundred times as many.
LINES_AT_ONCE = cython.declare(cython.int, 128)
# More digits are no count of messages (nats-server's parseSize).
COUNT_DIGITS_MAX = cython.declare(cython.Py_ssize_t, 9)
PUB = cython.declare(cython.p_const_char, b"pub")
HPUB = cython.declare(cython.p_const_char, b"hpub")
SUB = cython.declare(cython.p_const_char, b"sub")
UNSUB = cython.declare(cython.p_const_char, b"unsub")
CONNECT = cython.declare(cython.p_const_char, b"connect")
PING = cython.declare(cython.p_const_char, b"ping")
PONG = cython.declare(cython.p_const_char, b"pong")
INFO = cython.declare(cython.p_const_char, b"info")
OK = cython.declare(cython.p_const_char, b"+ok")
ERR = cython.declare(cython.p_const_char, b"-err")


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


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def is_gap(c: cython.uchar) -> cython.bint:
    """Whether a byte stands between words."""
    return c == 32 or c == 9


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def plainly(
    data: cython.p_const_uchar, name: cython.p_const_char, size: cython.Py_ssize_t
) -> cython.bint:
    """Whether a line of more than `size` + 3 bytes begins with a verb, one space and a word."""
    i: cython.Py_ssize_t
    for i in range(size):
        if (data[i] | 32) != name[i]:
            return False
    return is_gap(data[size]) and data[size + 1] > 32


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def verb_at(data: cython.p_const_uchar, n: cython.Py_ssize_t) -> cython.p_const_char:
    """The verb that the bytes at `data` may be the beginning of; NULL when one byte does not tell,
    or none begins so."""
    first: cython.uchar = data[0] | 32
    second: cython.uchar = data[1] | 32 if n > 1 else 0
    if first == 112:
        if second == 117:
            return PUB
        if second == 105:
            return PING
        return PONG if second == 111 else cython.cast(cython.p_const_char, cython.NULL)
    if first == 104:
        return HPUB
    if first == 115:
        return SUB
    if first == 117:
        return UNSUB
    if first == 99:
        return CONNECT
    if first == 105:
        return INFO
    if data[0] == 43:
        return OK
    if data[0] == 45:
        return ERR
    return cython.cast(cython.p_const_char, cython.NULL)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def verb_length(
    data: cython.p_const_uchar,
    n: cython.Py_ssize_t,
    name: cython.p_const_char,
    size: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Bytes of the whole verb `name` at `data`, 0 while more must come, -1 when it is another."""
    i: cython.Py_ssize_t
    if name == cython.NULL:
        return 0 if n == 1 and (data[0] | 32) == 112 else -1
    for i in range(1, min(n, size)):
        if (data[i] | 32 if name[i] >= 97 else data[i]) != name[i]:
            return -1
    if n <= size:
        return size if n == size and (name == PING or name == PONG or name == OK) else 0
    if name == PUB or name == HPUB or name == SUB or name == UNSUB or name == ERR:
        return size if is_gap(data[size]) else -1
    return size


@cython.cfunc
@cython.exceptval(-1, check=False)
def are_clean(words: list) -> cython.bint:
    """Whether each may stand as one word in a frame."""
    for item in words:
        word: bytes = item
        if not is_clean(word, len(word)):
            return False
    return True


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
        """Act on every complete frame, but on so many control lines alone; returns the bytes
        used."""
        pos: cython.Py_ssize_t = 0
        lines: cython.int = 0
        line: cython.Py_ssize_t
        used: cython.Py_ssize_t
        c: cython.uchar
        at: cython.p_const_uchar
        while pos < n and not self.closed and not self.paused:
            c = data[pos] | 32
            if not self.ready:
                if self.deciding:
                    break
                if c != 99:
                    self.server.first_verb(self)
                    continue
            at = cython.cast(cython.p_const_uchar, memchr(data + pos, 10, n - pos))
            line = 0 if at == cython.NULL else at - (data + pos)
            if 6 < line <= self.max_control_line and plainly(data + pos, PUB, 3):
                used = self.message(data + pos, 4, line, at + 1, n - pos - line - 1, False)
                line += 1
            elif 7 < line <= self.max_control_line and plainly(data + pos, HPUB, 4):
                used = self.message(data + pos, 5, line, at + 1, n - pos - line - 1, True)
                line += 1
            else:
                line = 0
                used = self.control(data + pos, n - pos)
                lines += 1
                if lines == LINES_AT_ONCE:
                    self.rest()
            if used == NEED_MORE:
                break
            pos += line + used
        return pos

    @cython.cfunc
    @cython.exceptval(-2, check=True)
    def control(
        self, data: cython.p_const_uchar, n: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Act on the frame at `data` that is no plain publication; returns the bytes used, or -1
        when it is not complete.

        The first byte that no verb has ends the connection, whether or not its line is there.
        """
        name: cython.p_const_char = verb_at(data, n)
        size: cython.Py_ssize_t = 0 if name == cython.NULL else strlen(name)
        found: cython.Py_ssize_t = verb_length(data, n, name, size)
        begin: cython.Py_ssize_t
        end: cython.Py_ssize_t
        at: cython.p_const_uchar
        if found < 0:
            self.fail("Unknown Protocol Operation", "Protocol Violation")
            return NEED_MORE
        begin = found
        if found and name != PING and name != PONG and name != OK:
            while begin < n and is_gap(data[begin]):
                begin += 1
        # Whatever stands behind the gap is part of the argument, an end of line too.
        at = cython.NULL
        if found and begin + 1 <= n:
            end = begin if name == PING or name == PONG or name == OK else begin + 1
            at = cython.cast(cython.p_const_uchar, memchr(data + end, 10, n - end))
        if at == cython.NULL:
            if n - begin > self.max_control_line or n > 2 * self.max_control_line + VERB_MAX:
                self.fail("maximum control line exceeded", "Maximum Control Line Exceeded")
            return NEED_MORE
        end = at - data
        return self.whole(data, n, name, begin, end)

    @cython.cfunc
    @cython.exceptval(-2, check=True)
    def whole(
        self,
        data: cython.p_const_uchar,
        n: cython.Py_ssize_t,
        name: cython.p_const_char,
        begin: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
    ) -> cython.Py_ssize_t:
        """Act on a control line whose argument stands between `begin` and `end`."""
        used: cython.Py_ssize_t = 0
        length: cython.Py_ssize_t = end
        if length > begin and data[length - 1] == 13 and length - 1 > begin:
            length -= 1
        if length - begin > self.max_control_line and name != PING and name != PONG and name != OK:
            self.fail("maximum control line exceeded", "Maximum Control Line Exceeded")
            return NEED_MORE
        if name == PUB or name == HPUB:
            used = self.message(data, begin, end, data + end + 1, n - end - 1, name == HPUB)
            return used if used == NEED_MORE else end + 1 + used
        self.message_end = cython.NULL
        self.verb(
            name,
            PyBytes_FromStringAndSize(cython.cast(cython.p_char, data + begin), length - begin),
        )
        return end + 1

    @cython.cfunc
    @cython.exceptval(-2, check=True)
    def message(
        self,
        line: cython.p_const_uchar,
        begin: cython.Py_ssize_t,
        n: cython.Py_ssize_t,
        body: cython.p_const_uchar,
        room: cython.Py_ssize_t,
        with_headers: cython.bint,
    ) -> cython.Py_ssize_t:
        """Route one PUB or HPUB, whose arguments stand between `begin` and `n`; returns the body's
        bytes used, or -1 when it is not complete."""
        starts: cython.Py_ssize_t[5]
        ends: cython.Py_ssize_t[5]
        count: cython.int
        numbers: cython.int = 2 if with_headers else 1
        m: Msg
        if line[n - 1] == 13:
            n -= 1
        count = split_words(line, begin, n, starts, ends)
        if count < 1 + numbers or count > 2 + numbers or (with_headers and not self.headers):
            return self.broken()
        m.size = parse_size(line + starts[count - 1], ends[count - 1] - starts[count - 1])
        m.header_len = 0
        if with_headers:
            m.header_len = parse_size(line + starts[count - 2], ends[count - 2] - starts[count - 2])
        if m.size < 0 or m.header_len < 0 or m.header_len > m.size:
            return self.broken()
        if m.size > self.max_payload:
            tell_payload(self, m.size)
            self.fail("Maximum Payload Violation", "Maximum Message Payload Exceeded")
            return NEED_MORE
        m.subject = line + starts[0]
        m.subject_len = ends[0] - starts[0]
        if self.pedantic and not self.warned:
            self.warned = True
            if not (is_valid(m.subject, m.subject_len) and is_literal(m.subject, m.subject_len)):
                self.queue(b"-ERR 'Invalid Publish Subject'\r\n")
        if room < m.size + 2:
            if room > m.size and body[m.size] != 13:
                self.fail("Unknown Protocol Operation", "Protocol Violation")
            return NEED_MORE
        if body[m.size] != 13 or body[m.size + 1] != 10:
            self.fail("Unknown Protocol Operation", "Protocol Violation")
            return NEED_MORE
        self.warned = False
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
        tell_error(self, "Unknown Protocol Operation")
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
        if self.account.remaps(m.subject, m.subject_len):
            self.remap(m)
        if not may_put(self.principal, m):
            return self.publish_denied(m)
        if not may_ask(self.principal, m):
            return self.reply_denied(m)
        if self.verbose and not (m.header_len and self.skips(m)):
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
    def remap(self, m: cython.pointer(Msg)) -> cython.int:
        """Put a message on the subject that the account's mappings lead it to."""
        self.mapped_from = PyBytes_FromStringAndSize(
            cython.cast(cython.p_char, m.subject), m.subject_len
        )
        if self.mapped_from.endswith(b".>"):
            # A tail is no token, so that no wildcard of a mapping takes it.
            self.mapped_from = None
            return 0
        self.mapped_to = self.account.mapped(self.mapped_from)
        if self.mapped_to is self.mapped_from:
            self.mapped_from = None
        m.subject = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(self.mapped_to))
        m.subject_len = PyBytes_GET_SIZE(self.mapped_to)
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def publish_denied(self, m: cython.pointer(Msg)) -> cython.int:
        """Refuse a message on a subject that the login may not publish on. Of a message that is to
        be traced, the subject for its trace is asked for first."""
        trace: Trace
        if m.header_len and asks_for_trace(m):
            trace = begin(self.account, self, m, None)
            if trace is not None and trace.valid() and not self.principal.may_publish(trace.dest):
                self.server.publish_denied(self, trace.dest)
                return 0
        subject: bytes = PyBytes_FromStringAndSize(
            cython.cast(cython.p_char, m.subject), m.subject_len
        )
        self.server.publish_denied(self, self.principal.named(subject))
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def skips(self, m: cython.pointer(Msg)) -> cython.bint:
        """Whether a message goes nowhere because its trace may not be sent where it asks for."""
        trace: Trace
        if not asks_for_trace(m):
            return False
        trace = begin(self.account, self, m, None)
        if trace is None:
            return False
        return not self.principal.may_publish(trace.dest) if trace.valid() else trace.only

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
        trace.send(self.server.describe_node)
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
        """Tell the requester, and nobody else, that no one listens (status 503): the subscription
        to the reply subject, where a wildcard of the same client takes it, too."""
        answer: Msg
        sink: Sink
        told: Sink = None
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
            if sink.owner is self and (told is None or place(sink.subject) < place(told.subject)):
                told = sink
        if told is not None:
            told.deliver(cython.address(answer), None)
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def fail(self, error: str, reason: str) -> cython.int:
        """Answer `-ERR` and close."""
        tell_error(self, error)
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
        if self.options.get("account") or self.options.get("new_account"):
            self.fail("Authorization Violation", "Authentication Failure")
        elif not 0 <= self.options.get("protocol", 0) <= 1:
            self.fail("invalid client protocol", "Bad Client Protocol Version")
        elif self.no_responders and not self.headers:
            self.fail("no responders requires headers support", "No Responders Requires Headers")
        else:
            self.acknowledge()

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def acknowledge(self) -> cython.int:
        if self.verbose:
            self.queue(b"+OK\r\n")
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def verb(self, name: cython.p_const_char, argument: bytes) -> cython.int:
        """Act on one control line that is not a publication."""
        if name == PING:
            self.queue(b"PONG\r\n")
            if self.ready and self.options and not self.first_ping_seen:
                self.first_ping_seen = True
                if self.protocol >= 1:
                    self.server.after_first_ping(self)
        elif name == PONG:
            self.pings_out = 0
            self.server.pong(self)
        elif name == CONNECT:
            self.connect(argument)
        elif name == SUB:
            self.subscribe(argument.split())
        elif name == UNSUB:
            self.unsubscribe(argument.split())
        elif name == ERR:
            self.close("Parse Error")
        elif name == INFO and object_in(argument) is None:
            self.broken()
        return 0

    def connect(self, payload: bytes) -> None:
        """CONNECT: take the client's options and log it in."""
        fields = connect_fields(payload, self.options)
        if fields is None:
            self.broken()
            return
        if self.options:
            # Another login on the same connection begins without subscriptions.
            self.ended()
        self.options = {"verbose": True} | fields
        self.verbose = fields.get("verbose", True)
        self.pedantic = fields.get("pedantic", True)
        self.echo = fields.get("echo", True)
        self.headers = fields.get("headers", False) and self.server.headers_supported
        self.no_responders = fields.get("no_responders", False)
        self.protocol = max(0, min(fields.get("protocol", 0), 1))
        self.server.login(self, self.options)

    def subscribe(self, args: list) -> None:
        """SUB <subject> [queue] <sid>."""
        if not 2 <= len(args) <= 3:
            self.broken()
            return
        subject: bytes = args[0]
        queue = args[1] if len(args) == 3 else None
        sid: bytes = args[len(args) - 1]
        if not are_clean(args):
            self.warn("Invalid Subject")
            return
        if not self.server.may_subscribe(self, subject, queue):
            return
        if 0 <= self.max_subscriptions <= len(self.subs) or self.account.is_full:
            tell_error(self, "maximum subscriptions exceeded")
            self.warn("maximum subscriptions exceeded")
            return
        if sid in self.subs:
            self.acknowledge()
            return
        if not is_valid(subject, len(subject)):
            self.warn("Invalid Subject")
            return
        sub = ClientSub(self, subject, queue, sid)
        sub.checked = self.principal.filters(subject, queue)
        self.subs[sid] = sub
        self.kernel.congested = None
        self.account.insert(sub)
        self.acknowledge()
        # Links that hear of each change may have no room for more.
        if self.kernel.congested is not None:
            self.pause()
        if self.account.tires():
            self.rest()

    def unsubscribe(self, args: list) -> None:
        """UNSUB <sid> [max]."""
        if not 1 <= len(args) <= 2:
            self.broken()
            return
        sub: ClientSub = self.subs.get(args[0])
        self.kernel.congested = None
        if sub is not None:
            sub.maximum = 0
            if len(args) == 2 and len(args[1]) <= COUNT_DIGITS_MAX and args[1].isdigit():
                sub.maximum = int(args[1])
            if sub.maximum == 0 or sub.delivered >= sub.maximum:
                self.drop_sub(sub)
        self.acknowledge()
        if self.kernel.congested is not None:
            self.pause()

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
        if subs:
            self.last_subs = dict(self.subs)
        self.subs.clear()
        for sub in subs:
            if self.tracer is not None:
                self.tracer.unsubscribed(sub.sid)
            sub.closed = True
        if subs:
            self.remove_all(self.account, subs)

    def shed(self) -> None:
        """As of Conn. A subscription refers to its connection: neither would go by itself."""
        Conn.shed(self)
        self.last_subs = None

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
                self.last_subs = None
            self.account = account
