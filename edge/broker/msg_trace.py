"""Tracing of single messages (ADR-41): what becomes of one, told to the subject its header names.

A message with `Nats-Trace-Dest` takes this way instead of `Account.route`: each receiver is listed
as an event, and the events go to that subject. With `Nats-Trace-Only` nobody gets the message, and
no stream stores it. An account may name a subject for what carries a sampled `traceparent`.
"""

import json

import cython
from cython.cimports.cpython.bytes import (
    PyBytes_AS_STRING,
    PyBytes_FromStringAndSize,
    PyBytes_GET_SIZE,
)
from cython.cimports.headwater.edge.broker.account import Account
from cython.cimports.headwater.edge.kernel.kernel import KIND_CLIENT, KIND_LEAF, Endpoint, Msg, Sink
from cython.cimports.headwater.edge.subjects.tokens import is_literal, is_valid
from cython.cimports.headwater.edge.subjects.trie import Match
from cython.cimports.headwater.edge.wire.header_block import find_header

from headwater.edge.facts.moments import rfc3339
from headwater.edge.wire.header_block import PREFIX, opened

DEST = b"Nats-Trace-Dest"
DEST_NAME = cython.declare(cython.p_const_char, b"Nats-Trace-Dest")
DEST_LENGTH = cython.declare(cython.Py_ssize_t, 15)
HOP = b"Nats-Trace-Hop"
OFF = b"trace disabled"
OLD = "Nats-Trace-Origin-Account"
"""A message with this header, of a form of traces that is no more, is not traced."""

# The kinds of connections by NATS's numbers.
NATS_CLIENT = 0
NATS_ROUTER = 1
NATS_LEAF = 4
TRACING_SINCE = (2, 11)

NO_ECHO = "Not delivered because of no echo"
SUB_DENY = "Not delivered because subscription denies this subject"
NO_SUPPORT = "Not delivered because remote does not support message tracing"
SUB_CLOSED = "Not delivered because subscription is closed"


def headers_of(block: bytes) -> dict:
    """All headers of a block, by their names as they are written."""
    found: dict = {}
    if block.startswith(PREFIX):
        for line in block[len(PREFIX) :].split(b"\r\n"):
            key, colon, value = line.partition(b":")
            value = value.strip(b" \t")
            if colon and key and value:
                found.setdefault(key.decode("utf-8", "replace"), []).append(
                    value.decode("utf-8", "replace")
                )
    return found


def written(event: dict, accepted: str) -> tuple:
    """An event as it is sent, and its header block, by a node that has no name."""
    return json.dumps(event, separators=(",", ":")).encode(), b""


def is_sampled(headers: dict) -> bool:
    """Whether a `traceparent`, in any case, says that its trace is recorded."""
    for key, values in headers.items():
        if key.lower() == "traceparent":
            for value in values:
                flags = value.split("-")[3:]
                if len(flags) == 1 and len(flags[0]) == 2 and flags[0][1] in "13579bdfBDF":
                    return True
    return False


def with_header(block: bytes, key: bytes, value: bytes) -> bytes:
    """`block` with one header `key`, in the place of those that it has."""
    start = key + b":"
    kept = [line for line in block.split(b"\r\n") if not line.startswith(start)]
    return opened(b"\r\n".join(kept)) + key + b": " + value + b"\r\n\r\n"


@cython.cclass
class CrossingSink(Sink):
    """A receiver that leads into another account."""

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def pass_traced(self, m: cython.pointer(Msg), sender: Endpoint, trace: Trace) -> cython.int:
        """As `deliver`, with the trace of the message."""
        return self.deliver(m, sender)


@cython.cclass
class Trace:
    """The events of one message on this node."""

    def __init__(
        self, account: Account, sender: Endpoint, subject: bytes, headers: dict, size: int
    ):
        self.account = self.home = account
        self.sender = sender
        self.headers = headers
        self.size = size
        only = headers.get("Nats-Trace-Only", [""])[0].lower()
        self.only = only in ("1", "true", "on")
        self.dest = headers.get("Nats-Trace-Dest", [""])[0].encode()
        self.hop = headers.get("Nats-Trace-Hop", [""])[0] if sender.kind != KIND_CLIENT else ""
        self.events = []
        self.add_event("in", **described(sender), acc=account.name, subj=text_of(subject))

    def add_event(self, event_type: str, **fields: object) -> None:
        """Add an event; fields without a value are left out."""
        event = {"type": event_type, "ts": rfc3339(self.account.kernel.clock())}
        event.update({k: v for k, v in fields.items() if v != "" and v is not None})
        self.events.append(event)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def mapped(self, subject: bytes, m: cython.pointer(Msg)) -> cython.int:
        """List that the message, which came in on `subject`, goes to another one."""
        self.events[0]["subj"] = text_of(subject)
        self.add_event("sm", to=text_of(subject_of(m)))
        return 0

    def valid(self) -> bool:
        """Whether the events can be sent where they are wanted."""
        dest: bytes = self.dest
        return bool(dest) and is_valid(dest, len(dest)) and is_literal(dest, len(dest))

    def send(self, write: object) -> None:
        """Tell what became of the message; `write` makes the node's event of it, as `written`."""
        event = {"request": {"header": self.headers, "msgsize": self.size}}
        if self.hops:
            event["hops"] = self.hops
        event["events"] = self.events
        body, block = write(event, self.headers.get("Accept-Encoding", [""])[0])
        self.account.send(self.dest, body, b"", block)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def route(self, m: cython.pointer(Msg), match: Match, only: tuple) -> cython.Py_ssize_t:
        """Route a message as `Account.route` does, and list who gets it."""
        count: cython.Py_ssize_t = 0
        sink: Sink
        block = PyBytes_FromStringAndSize(cython.cast(cython.p_char, m.body), m.header_len)
        payload = PyBytes_FromStringAndSize(
            cython.cast(cython.p_char, m.body) + m.header_len, m.size - m.header_len
        )
        far: list = []
        for item in match.plain:
            sink = cython.cast(Sink, item)
            if sink.remote:
                far.append(sink)
            else:
                count += self.offer(m, sink, block, payload)
        for group in match.queues:
            if only is not None and cython.cast(Sink, group[0]).queue not in only:
                continue
            here: list = [item for item in group if not cython.cast(Sink, item).remote]
            if here:
                start = self.account.kernel.random() % len(here)
                here = here[start:] + here[:start]
            for item in here:
                if self.offer(m, cython.cast(Sink, item), block, payload):
                    count += 1
                    break
            else:
                far += [item for item in group if cython.cast(Sink, item).remote][:1]
        return count + self.pass_on(m, far, block, payload)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def offer(self, m: cython.pointer(Msg), sink: Sink, block: bytes, payload: bytes) -> cython.int:
        """Let one receiver have the message, unless it is only traced; 1 when it was taken."""
        if isinstance(sink, CrossingSink):
            return cython.cast(CrossingSink, sink).pass_traced(m, self.sender, self)
        if hasattr(sink, "sid"):
            return self.deliver(m, sink)
        if hasattr(sink, "stream"):
            self.add_event("js", stream=sink.stream.name, subject=text_of(subject_of(m)))
        if self.only:
            return 1
        return self.give(m, sink, with_header(block, DEST, OFF), payload)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def offer_one(self, m: cython.pointer(Msg), sink: Sink, subject: bytes) -> cython.int:
        """Let one receiver behind a stream import, which wants `subject` there, have it."""
        block = PyBytes_FromStringAndSize(cython.cast(cython.p_char, m.body), m.header_len)
        payload = PyBytes_FromStringAndSize(
            cython.cast(cython.p_char, m.body) + m.header_len, m.size - m.header_len
        )
        if sink.remote:
            return 1 if self.pass_on(m, [sink], block, payload) else 0
        self.wanted = subject
        try:
            return self.offer(m, sink, block, payload)
        finally:
            self.wanted = None

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def hide(self, m: cython.pointer(Msg), sink: Sink) -> cython.int:
        """Let the message go where its trace may not follow."""
        if self.only:
            return 1
        block = PyBytes_FromStringAndSize(cython.cast(cython.p_char, m.body), m.header_len)
        payload = PyBytes_FromStringAndSize(
            cython.cast(cython.p_char, m.body) + m.header_len, m.size - m.header_len
        )
        return self.give(m, sink, with_header(block, DEST, OFF), payload)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def within(self, account: Account, m: cython.pointer(Msg), relay: object) -> cython.Py_ssize_t:
        """Follow the message into another account."""
        outer: Account = self.account
        before: object = self.relay
        self.account = account
        self.relay = relay
        try:
            return self.route(m, account.match(m.subject, m.subject_len), None)
        finally:
            self.account = outer
            self.relay = before

    def elsewhere(self, owner: object) -> str:
        """The account of a receiver, when it is not that in which the message came in."""
        account = getattr(owner, "account", None)
        return "" if account is None or account is self.home else account.name

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def deliver(self, m: cython.pointer(Msg), sub: object) -> cython.int:
        """Deliver to a client's subscription."""
        sink: Sink = cython.cast(Sink, sub)
        owner = sub.owner
        error = ""
        if owner.closed or sub.closed:
            error = SUB_CLOSED
        elif owner is self.sender and not owner.echo:
            error = NO_ECHO
        elif sub.checked and not owner.principal.may_receive(subject_of(m), sub.queue):
            error = SUB_DENY
        elif not self.only and sink.deliver(m, self.sender) <= 0:
            error = SUB_CLOSED
        self.add_event(
            "eg",
            **described(owner),
            acc=self.elsewhere(owner),
            sub=text_of(self.wanted or sub.subject),
            queue=text_of(sub.queue or b""),
            error=error,
        )
        return 0 if error else 1

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def pass_on(
        self, m: cython.pointer(Msg), far: list, block: bytes, payload: bytes
    ) -> cython.Py_ssize_t:
        """Send the message to the servers behind `far` sinks, which go on with the trace."""
        count: cython.Py_ssize_t = 0
        sink: Sink
        links: list = []
        for item in far:
            sink = cython.cast(Sink, item)
            if sink.owner is self.sender:
                continue
            if self.only and not traces(sink.owner):
                self.add_event("eg", **described(sink.owner), error=NO_SUPPORT)
            elif sink.owner.collect(sink):
                links.append(sink.owner)
        if links and self.relay is not None:
            block = with_header(block, DEST, self.relay())
        for link in links:
            hop = f"{self.hop}.{self.hops + 1}" if self.hop else str(self.hops + 1)
            if self.give(m, None, with_header(block, HOP, hop.encode()), payload, link) > 0:
                self.hops += 1
                count += 1
                self.add_event("eg", **described(link), acc=self.elsewhere(link), hop=hop)
        return count

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def give(
        self,
        m: cython.pointer(Msg),
        sink: Sink,
        block: bytes,
        payload: bytes,
        link: Endpoint = None,
    ) -> cython.int:
        """Hand the message over with another header block: to `sink`, or by `link`.

        It stays the same message, by which links and imports know where it came from.
        """
        kept: Msg = m[0]
        body: bytes = block + payload
        m.body = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(body))
        m.header_len = PyBytes_GET_SIZE(block)
        m.size = PyBytes_GET_SIZE(body)
        try:
            return sink.deliver(m, self.sender) if link is None else link.emit(m, self.sender)
        finally:
            m[0] = kept


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def asks_for_trace(m: cython.pointer(Msg)) -> cython.bint:
    """Whether a message names a subject for its trace."""
    return (
        find_header(
            m.body, m.header_len, cython.cast(cython.p_const_uchar, DEST_NAME), DEST_LENGTH
        ).n
        > 0
    )


@cython.cfunc
def begin(account: Account, sender: Endpoint, m: cython.pointer(Msg), fallback: object) -> Trace:
    """The trace of a message, None when it is not traced.

    `fallback` is the account's (subject, percent) for messages that carry a sampled `traceparent`.
    """
    found: Trace
    block = PyBytes_FromStringAndSize(cython.cast(cython.p_char, m.body), m.header_len)
    headers = headers_of(block)
    dest = headers.get("Nats-Trace-Dest", [""])[0].encode()
    if dest == OFF or not (dest or (fallback is not None and is_sampled(headers))):
        return None
    found = Trace(account, sender, subject_of(m), headers, m.size)
    if OLD in headers:
        found.only = found.only and bool(dest)
        found.dest = b""
    elif not dest:
        if account.kernel.random() % 100 >= fallback[1]:
            return None
        found.dest = fallback[0]
        found.only = False
    return found


@cython.cfunc
def subject_of(m: cython.pointer(Msg)) -> bytes:
    return PyBytes_FromStringAndSize(cython.cast(cython.p_char, m.subject), m.subject_len)


def text_of(subject: bytes) -> str:
    return subject.decode("utf-8", "replace")


def traces(link: Endpoint) -> bool:
    """Whether the server behind a link knows traces; an older one would deliver the message."""
    major, _, rest = link.session.peer.version.partition(".")
    minor = rest.partition(".")[0]
    return major.isdigit() and minor.isdigit() and (int(major), int(minor)) >= TRACING_SINCE


def described(endpoint: Endpoint) -> dict:
    """Who a message came from or went to."""
    if endpoint.kind == KIND_CLIENT:
        kind = NATS_CLIENT
        name = endpoint.options.get("name", "")
    else:
        kind = NATS_LEAF if endpoint.kind == KIND_LEAF else NATS_ROUTER
        peer = endpoint.session.peer
        name = getattr(peer, "server_name", "") or getattr(peer, "name", "")
    return {"kind": kind, "cid": endpoint.cid, "name": name}
