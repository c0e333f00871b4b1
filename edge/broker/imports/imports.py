"""Imports between accounts: messages that cross from one subject space into another.

A *service* import is a sink in the importing account: what is published on its local subject goes
on to the exporting account. Where an answer is wanted, the reply becomes a `_R_.` subject of the
exporting account that leads back (NATS account "service response tracking"). A *stream* import
gives every subscription of the importing account a *shadow* in the exporting one, so that the
exporter sees exactly the interest there is, queue groups included.

Nothing crosses in circles: a message that came by a service does not leave by it again, nor by a
stream, and crossings within one another are bounded.
"""

from collections import OrderedDict
from functools import partial

import cython
from cython.cimports.cpython.bytes import (
    PyBytes_AS_STRING,
    PyBytes_FromStringAndSize,
    PyBytes_GET_SIZE,
)
from cython.cimports.headwater.edge.broker.account import Account
from cython.cimports.headwater.edge.broker.core import (
    FROM_PEER,
    KIND_INTERNAL,
    KIND_LEAF,
    MADE,
    Endpoint,
    Kernel,
    Msg,
    Sink,
)
from cython.cimports.headwater.edge.broker.msg_trace import CrossingSink, Trace
from cython.cimports.headwater.edge.subjects.transform import Transform
from cython.cimports.headwater.edge.wire.header_block import kept_length
from cython.cimports.libc.string import memcmp, memcpy

from headwater.edge.broker.imports.service_latency import (
    BAD_REQUEST,
    INTEREST_LOST,
    TIMED_OUT,
    UNAVAILABLE,
    InterestWatch,
)
from headwater.edge.wire.header_block import PREFIX

# Answers that one account waits for; beyond this the oldest request gets none.
RESPONSES_MAX = 65536
# Request descriptions remembered per import.
INFOS_MAX = cython.declare(cython.Py_ssize_t, 1024)
# Crossings within one another, through services of the node that publish while they receive.
DEPTH_MAX = cython.declare(cython.int, 16)
SINGLE = cython.declare(cython.int, 0)
RESPONSE_KINDS = {"single": 0, "stream": 1, "chunked": 2}
DIGITS = cython.declare(bytes, b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
INFO_NAME = b"Nats-Request-Info:"
# Subjects on which the node itself listens and that no import feeds.
INNER = (b"$JS.", b"$SYS.", b"_R_.")


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def is_ack(m: cython.pointer(Msg)) -> cython.bint:
    """JetStream's ack subjects stay what they are, when it is JetStream that asks for acks: they
    name the consumer."""
    prefix: cython.p_const_char = b"$JS.ACK."
    return m.reply_len > 8 and memcmp(m.reply, prefix, 8) == 0


@cython.cfunc
def letters(number: cython.ulonglong, count: cython.int) -> bytes:
    """`count` letters or digits out of a random number."""
    text: cython.char[16]
    digits: cython.p_char = PyBytes_AS_STRING(DIGITS)
    i: cython.int
    for i in range(count):
        text[i] = digits[number % 62]
        number //= 62
    return PyBytes_FromStringAndSize(cython.address(text[0]), count)


@cython.cfunc
def subject_of(m: cython.pointer(Msg)) -> bytes:
    return PyBytes_FromStringAndSize(cython.cast(cython.p_char, m.subject), m.subject_len)


@cython.cclass
class ServiceExport:
    """An exported service, shared by its imports. `threshold_ns` is how long answers may take."""

    kind = cython.declare(cython.int, visibility="readonly")
    threshold_ns = cython.declare(cython.longlong, visibility="readonly")
    latency = cython.declare(object, visibility="readonly")
    allow_trace = cython.declare(cython.bint, visibility="readonly")

    def __init__(
        self, kind: str, threshold_ns: int, latency: object = None, allow_trace: bool = False
    ):
        """`latency` is the `ServiceLatency` of a service that is measured; `allow_trace` says that
        traces of messages may follow."""
        self.allow_trace = allow_trace
        self.kind = RESPONSE_KINDS[kind]
        self.threshold_ns = threshold_ns
        self.latency = latency


# Events of other servers about one message, which come within this time.
TRACES = ServiceExport("stream", 10_000_000_000)


@cython.cclass
class Response:
    """A requester that waits: answers go to `reply` in `account`."""

    account: Account
    reply: bytes
    export: ServiceExport
    stamp_ns: cython.longlong
    measured: object

    def __init__(
        self,
        account: Account,
        reply: bytes,
        export: ServiceExport,
        stamp_ns: int,
        measured: object,
    ):
        """`measured` is the `Measurement` that ends with the first answer; None without."""
        self.account = account
        self.reply = reply
        self.export = export
        self.stamp_ns = stamp_ns
        self.measured = measured


@cython.cclass
class Crossing:
    """What all imports of a node share: where a message that is being routed came across.

    `describe(sender, account, share, via)` gives the JSON of a request's sender; `via` is that
    of an earlier crossing or empty.
    """

    kernel: Kernel
    describe: object
    message: cython.pointer(Msg)
    chain: tuple
    depth: cython.int
    trace: Trace
    relay: object
    waiting = cython.declare(dict, visibility="readonly")
    watches: dict

    def __cinit__(self, *args):
        self.message = cython.NULL
        self.chain = ()

    def __init__(self, kernel: Kernel, describe: object):
        self.kernel = kernel
        self.describe = describe
        self.waiting = {}
        self.watches = {}

    def watch_of(self, account: Account) -> object:
        """Who tells of lost interest in the answers to measured requests of `account`."""
        found = self.watches.get(account)
        if found is None:
            found = self.watches[account] = InterestWatch(account)
        return found

    def responses_of(self, account: Account) -> object:
        """The requests that services of `account` have still to answer."""
        found = self.waiting.get(account)
        if found is None:
            found = self.waiting[account] = Responses(self, account)
            account.insert(found)
        return found

    def stop(self) -> None:
        """Wait for no answers any more."""
        for responses in self.waiting.values():
            responses.stop()
        self.waiting.clear()

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def cross(
        self,
        account: Account,
        m: cython.pointer(Msg),
        sender: Endpoint,
        chain: tuple,
    ) -> cython.Py_ssize_t:
        """Publish in another account, and know the message again while that lasts."""
        last_message: cython.pointer(Msg) = self.message
        last_chain: tuple = self.chain
        trace: Trace = self.trace
        relay: object = self.relay
        self.trace = self.relay = None
        if self.depth >= DEPTH_MAX:
            return 0
        self.depth += 1
        self.message = m
        self.chain = chain
        try:
            if trace is not None:
                return trace.within(account, m, relay)
            return account.publish(m, sender)
        finally:
            self.message = last_message
            self.chain = last_chain
            self.depth -= 1


@cython.cclass
class Responses(Sink):
    """Leads answers of one account's services back to whoever asked."""

    crossing: Crossing
    account: Account
    prefix: bytes
    entries: object
    timer: object
    due_ns: cython.longlong

    def __init__(self, crossing: Crossing, account: Account):
        self.prefix = b"_R_." + letters(crossing.kernel.random(), 6) + b"."
        Sink.__init__(self, self.prefix + b">")
        self.crossing = crossing
        self.account = account
        self.entries = OrderedDict()

    def __len__(self):
        return len(self.entries)

    @cython.cfunc
    def expect(
        self, account: Account, reply: bytes, export: ServiceExport, measured: object
    ) -> bytes:
        """The subject on which the answer to `reply` in `account` is to come."""
        kernel: Kernel = self.crossing.kernel
        due_ns: cython.longlong = kernel.now_ns + export.threshold_ns
        subject: bytes = self.prefix + letters(kernel.random(), 10)
        self.entries[subject] = Response(
            account, reply, export, kernel.now_ns, measured
        )
        if measured is not None:
            self.crossing.watch_of(account).expect(reply, partial(self.lost, subject))
        if len(self.entries) > RESPONSES_MAX:
            self.unwatch(self.entries.popitem(last=False)[1])
        if self.timer is None or due_ns < self.due_ns:
            self.arm(due_ns)
        return subject

    @cython.cfunc
    def forget(self, subject: bytes):
        """Wait no longer for an answer."""
        self.unwatch(self.entries.pop(subject, None))

    def unwatch(self, response: Response) -> object:
        """The measurement of a request, which is taken off it; None without."""
        if response is None or response.measured is None:
            return None
        measured = response.measured
        response.measured = None
        self.crossing.watch_of(response.account).forget(response.reply)
        return measured

    def lost(self, subject: bytes) -> None:
        """Nobody waits for the answer to a measured request any more."""
        response: Response = self.entries.pop(subject, None)
        if response is not None and response.measured is not None:
            self.unwatch(response).failed(INTEREST_LOST)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def deliver(self, m: cython.pointer(Msg), sender: Endpoint) -> cython.int:
        """Lead an answer back; 0 when nobody waits for it."""
        copy: Msg = m[0]
        count: cython.Py_ssize_t
        reply: bytes
        subject: bytes = subject_of(m)
        chain: tuple = ()
        response: Response = self.entries.get(subject)
        if response is None or self.closed:
            return 0
        if m == self.crossing.message:
            chain = self.crossing.chain
        self.delivered += 1
        if response.measured is not None:
            self.unwatch(response).answered(sender)
        copy.subject = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(response.reply))
        copy.subject_len = PyBytes_GET_SIZE(response.reply)
        # Whoever answers has no say in the requester's account, nor has a request by its reply.
        copy.via = MADE
        if m.reply_len and not is_ack(m):
            back: Responses = self.crossing.responses_of(response.account)
            reply = PyBytes_FromStringAndSize(cython.cast(cython.p_char, m.reply), m.reply_len)
            reply = back.expect(self.account, reply, response.export, None)
            copy.reply = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(reply))
            copy.reply_len = PyBytes_GET_SIZE(reply)
        count = self.crossing.cross(response.account, cython.address(copy), sender, chain)
        if count == 0 or m.size == 0 or response.export.kind == SINGLE:
            self.forget(subject)
        else:
            response.stamp_ns = self.crossing.kernel.now_ns
        return 1 if count > 0 else 0

    def arm(self, due_ns: int) -> None:
        """Look for requests without an answer at `due_ns`."""
        if self.timer is not None:
            self.timer.cancel()
        self.due_ns = due_ns
        delay_s = max(due_ns - self.crossing.kernel.now_ns, 1_000_000) / 1e9
        self.timer = self.crossing.kernel.loop.call_later(delay_s, self.expire)

    def expire(self) -> None:
        """Give up what was not answered in time."""
        now_ns: cython.longlong = self.crossing.kernel.clock()
        next_ns: cython.longlong = 0
        due_ns: cython.longlong
        self.timer = None
        for subject, item in list(self.entries.items()):
            response: Response = item
            due_ns = response.stamp_ns + response.export.threshold_ns
            if due_ns <= now_ns:
                del self.entries[subject]
                if response.measured is not None:
                    self.unwatch(response).failed(TIMED_OUT)
            elif next_ns == 0 or due_ns < next_ns:
                next_ns = due_ns
        if next_ns:
            self.arm(next_ns)

    def stop(self) -> None:
        """Wait for nothing any more."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        self.entries.clear()
        self.account.remove(self)


@cython.cclass
class ServiceImport(CrossingSink):
    """Takes requests on a local subject to the exporting account.

    `fixed` is the subject there when it is always the same, `rewrite` makes it otherwise; with
    neither it stays what it is.
    """

    crossing: Crossing
    account: Account
    exporter: Account
    export: ServiceExport
    fixed: bytes
    rewrite: Transform
    share: cython.bint
    infos: dict

    def __init__(
        self,
        crossing: Crossing,
        local: bytes,
        account: Account,
        exporter: Account,
        export: ServiceExport,
        fixed: bytes | None,
        rewrite: Transform | None,
        share: bool,
    ):
        Sink.__init__(self, local)
        self.crossing = crossing
        self.account = account
        self.exporter = exporter
        self.export = export
        self.fixed = fixed
        self.rewrite = rewrite
        self.share = share
        self.infos = {}

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def deliver(self, m: cython.pointer(Msg), sender: Endpoint) -> cython.int:
        """1 when somebody serves in the exporting account.

        What came from another node of the cluster has crossed there.
        """
        copy: Msg = m[0]
        chain: tuple = ()
        count: cython.Py_ssize_t
        subject: bytes = self.target(m)
        responses: Responses = None
        measured: object = None
        reply: bytes
        if self.closed or (sender is not None and sender.kind > KIND_INTERNAL):
            return 0
        if m == self.crossing.message:
            chain = self.crossing.chain
            if self.export in chain:
                return 0
        self.delivered += 1
        if subject is not None:
            copy.subject = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(subject))
            copy.subject_len = PyBytes_GET_SIZE(subject)
        if self.crossing.trace is not None and self.crossing.trace.only:
            # Nobody gets it, so nobody answers.
            copy.reply_len = 0
        elif self.export.latency is not None:
            measured = self.measure(m, sender)
        if copy.reply_len and not (is_ack(m) and m.via != FROM_PEER):
            responses = self.crossing.responses_of(self.exporter)
            reply = PyBytes_FromStringAndSize(cython.cast(cython.p_char, m.reply), m.reply_len)
            reply = responses.expect(self.account, reply, self.export, measured)
            copy.reply = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(reply))
            copy.reply_len = PyBytes_GET_SIZE(reply)
        elif measured is not None:
            measured.failed(BAD_REQUEST)
        body: bytes = self.described(m, sender, bool(chain))
        copy.body = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(body))
        copy.size = PyBytes_GET_SIZE(body)
        copy.header_len = copy.size - (m.size - m.header_len)
        count = self.crossing.cross(
            self.exporter, cython.address(copy), sender, chain + (self.export,)
        )
        if count == 0 and responses is not None:
            measured = responses.unwatch(responses.entries.pop(reply, None))
            if measured is not None:
                measured.failed(UNAVAILABLE)
        return 1 if count > 0 else 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def pass_traced(self, m: cython.pointer(Msg), sender: Endpoint, trace: Trace) -> cython.int:
        """As `deliver`; the trace follows where the exporter allows it."""
        subject: bytes = subject_of(m)
        local: bytes = self.target(m)
        if self.closed or (sender is not None and sender.kind > KIND_INTERNAL):
            return 0
        if m == self.crossing.message and self.export in self.crossing.chain:
            return 0
        names = {"acc": self.exporter.name, "from": subject.decode("utf-8", "replace")}
        names["to"] = (subject if local is None else local).decode("utf-8", "replace")
        trace.add_event("si", **names)
        if not self.export.allow_trace:
            return trace.hide(m, self)
        self.crossing.trace = trace
        self.crossing.relay = partial(self.relayed, trace.relay, trace.dest)
        try:
            return self.deliver(m, sender)
        finally:
            self.crossing.trace = self.crossing.relay = None

    def relayed(self, relay: object, dest: bytes) -> bytes:
        """A subject of the exporter that leads to where the trace is wanted."""
        responses: Responses = self.crossing.responses_of(self.exporter)
        return responses.expect(self.account, dest if relay is None else relay(), TRACES, None)

    @cython.cfunc
    def measure(self, m: cython.pointer(Msg), sender: Endpoint) -> object:
        """The measurement of a request; None when it is not chosen."""
        block: bytes = PyBytes_FromStringAndSize(cython.cast(cython.p_char, m.body), m.header_len)
        return self.export.latency.begin(
            self.crossing.describe,
            sender,
            self.account,
            self.share,
            block,
            self.crossing.kernel.random() % 100,
        )

    @cython.cfunc
    def target(self, m: cython.pointer(Msg)) -> bytes:
        """The subject in the exporting account, its mappings applied; None for the same one."""
        subject: bytes = self.fixed
        if self.rewrite is not None:
            subject = self.rewrite.rewrite(subject_of(m), 0)
        if self.exporter.mappings is not None:
            subject = self.exporter.mappings.apply(subject_of(m) if subject is None else subject)
        return subject

    @cython.cfunc
    def described(self, m: cython.pointer(Msg), sender: Endpoint, chained: cython.bint) -> bytes:
        """Header block and payload, with the header that says who asks."""
        block: bytes = b""
        via: bytes = b""
        line: bytes
        payload: cython.Py_ssize_t = m.size - m.header_len
        at: cython.Py_ssize_t
        if m.header_len:
            block = PyBytes_FromStringAndSize(cython.cast(cython.p_char, m.body), m.header_len)
            if INFO_NAME in block:
                block, via = without_info(block)
        line = INFO_NAME + b" " + self.info(sender, via if chained else b"") + b"\r\n\r\n"
        at = kept_length(PyBytes_GET_SIZE(block))
        if at == 0:
            block = PREFIX
            at = PyBytes_GET_SIZE(block)
        body: bytes = PyBytes_FromStringAndSize(
            cython.cast(cython.p_char, cython.NULL), at + PyBytes_GET_SIZE(line) + payload
        )
        out: cython.p_char = PyBytes_AS_STRING(body)
        memcpy(out, PyBytes_AS_STRING(block), at)
        memcpy(out + at, PyBytes_AS_STRING(line), PyBytes_GET_SIZE(line))
        at += PyBytes_GET_SIZE(line)
        memcpy(out + at, m.body + m.header_len, payload)
        return body

    @cython.cfunc
    def info(self, sender: Endpoint, via: bytes) -> bytes:
        """Who asks, as JSON; remembered per connection."""
        found: object
        if via or sender is None:
            return self.crossing.describe(sender, self.account, self.share, via)
        key = (sender.kind, sender.cid)
        found = self.infos.get(key)
        if found is None:
            if len(self.infos) >= INFOS_MAX:
                self.infos.clear()
            found = self.crossing.describe(sender, self.account, self.share, via)
            self.infos[key] = found
        return found


def without_info(block: bytes) -> tuple:
    """A header block without request descriptions, and the last of these."""
    kept: list = []
    via: bytes = b""
    for line in block.split(b"\r\n"):
        if line.startswith(INFO_NAME):
            via = line[len(INFO_NAME) :].strip()
        else:
            kept.append(line)
    return b"\r\n".join(kept), via


@cython.cclass
class StreamImport:
    """Messages of the exporter's `remote` subjects, which are `local` ones in the importer.

    `forward` makes local subjects and `back` remote ones, where they differ and have wildcards.
    """

    exporter: Account
    remote: bytes
    local: bytes
    forward: Transform
    back: Transform
    same: cython.bint
    allow_trace: cython.bint

    def __init__(
        self,
        exporter: Account,
        remote: bytes,
        local: bytes,
        forward: Transform | None,
        back: Transform | None,
        allow_trace: bool = False,
    ):
        self.allow_trace = allow_trace
        self.exporter = exporter
        self.remote = remote
        self.local = local
        self.forward = forward
        self.back = back
        self.same = remote == local

    @cython.cfunc
    def local_subject(self, m: cython.pointer(Msg)) -> bytes:
        """Subject in the importing account; None for the same one."""
        if self.same:
            return None
        if self.forward is None:
            return self.local
        return self.forward.rewrite(subject_of(m), 0)

    def wanted(self, pattern: bytes) -> bytes | None:
        """What a subscription to `pattern` wants of the exporter's subjects; None for nothing."""
        common: bytes = intersection(pattern, self.local)
        if common is None:
            return None
        if common == self.local:
            return self.remote
        if self.same:
            return common
        return self.remote if self.back is None else self.back.rewrite(common, 0)


@cython.cclass
class Shadow(CrossingSink):
    """What one subscription of the importing account wants from an exporting one."""

    crossing: Crossing
    target: Sink
    entry: StreamImport
    busy: cython.bint
    importer: str
    trace: Trace

    def __init__(
        self, crossing: Crossing, entry: StreamImport, target: Sink, subject: bytes, importer: str
    ):
        Sink.__init__(self, subject, target.queue)
        self.importer = importer
        self.crossing = crossing
        self.entry = entry
        self.target = target
        self.owner = target.owner
        self.weight = target.weight

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def deliver(self, m: cython.pointer(Msg), sender: Endpoint) -> cython.int:
        """Deliver under the importing account's subject; 0 when the subscription cannot take it.

        What came here by a service import stays here.
        """
        copy: Msg = m[0]
        subject: bytes
        owner: Endpoint = self.target.owner
        trace: Trace = self.trace
        self.trace = None
        if self.closed or self.busy or m == self.crossing.message:
            return 0
        if self.target.remote and owner is sender:
            return 0
        subject = self.entry.local_subject(m)
        if subject is not None:
            copy.subject = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(subject))
            copy.subject_len = PyBytes_GET_SIZE(subject)
        self.busy = True
        try:
            if trace is not None:
                return trace.offer_one(cython.address(copy), self.target, self.subject)
            if not self.target.remote:
                return self.target.deliver(cython.address(copy), sender)
            if owner.collect(self.target):
                return owner.emit(cython.address(copy))
        finally:
            self.busy = False
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def pass_traced(self, m: cython.pointer(Msg), sender: Endpoint, trace: Trace) -> cython.int:
        """As `deliver`; the trace follows where the importer allows it."""
        subject: bytes
        if self.closed or self.busy or m == self.crossing.message:
            return 0
        subject = self.entry.local_subject(m)
        if subject is None:
            subject = subject_of(m)
        trace.add_event("se", acc=self.importer, to=subject.decode("utf-8", "replace"))
        if not self.entry.allow_trace:
            return trace.hide(m, self)
        self.trace = trace
        return self.deliver(m, sender)


def intersection(first: bytes, second: bytes) -> bytes | None:
    """The pattern of all subjects that both patterns match; None when there is none."""
    left: list = first.split(b".")
    right: list = second.split(b".")
    tokens: list = []
    i: cython.Py_ssize_t
    for i in range(min(len(left), len(right))):
        if left[i] == b">":
            return b".".join(tokens + right[i:])
        if right[i] == b">":
            return b".".join(tokens + left[i:])
        if left[i] == b"*" or left[i] == right[i]:
            tokens.append(right[i])
        elif right[i] == b"*":
            tokens.append(left[i])
        else:
            return None
    return b".".join(tokens) if len(left) == len(right) else None


@cython.cclass
class StreamImports:
    """All stream imports of one account: keeps the shadows of its subscriptions. A watcher."""

    crossing: Crossing
    account: Account
    entries: list
    shadows: dict

    def __init__(self, crossing: Crossing, account: Account, entries: list):
        self.crossing = crossing
        self.account = account
        self.entries = entries
        self.shadows = {}
        for sink in account.trie.everything():
            self.interest_added(sink)
        account.add_watcher(self)

    def interest_added(self, sink: Sink) -> None:
        """The account gained a sink: it may want something of the exporters."""
        entry: StreamImport
        made: list = []
        if not self.concerns(sink):
            return
        for item in self.entries:
            entry = item
            subject = entry.wanted(sink.subject)
            if subject is not None:
                shadow = Shadow(self.crossing, entry, sink, subject, self.account.name)
                made.append((entry.exporter, shadow))
        if made:
            self.shadows[sink] = made
            for exporter, shadow in made:
                exporter.insert(shadow)

    def interest_removed(self, sink: Sink) -> None:
        """The account lost a sink."""
        for exporter, shadow in self.shadows.pop(sink, ()):
            exporter.remove(shadow)

    def stop(self) -> None:
        """Import nothing any more."""
        self.account.drop_watcher(self)
        for sink in list(self.shadows):
            self.interest_removed(sink)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def concerns(self, sink: Sink) -> cython.bint:
        """Whether a sink is a subscription: of a client, behind a leaf link, or of a stream.

        Imports do not chain: what was imported is not there to be imported again.
        """
        if isinstance(sink, (ServiceImport, Shadow, Responses)):
            return False
        if sink.remote:
            return sink.owner is not None and sink.owner.kind == KIND_LEAF
        return sink.owner is not None or not sink.subject.startswith(INNER)
