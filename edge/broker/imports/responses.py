"""What crosses between accounts: the message under way, and the answers that are still to come.

A request that crosses gets a reply subject of the exporting account, `_R_.` and a random token,
that leads back (NATS account "service response tracking").

Nothing crosses in circles: `Crossing` knows a message again that crossed before, and crossings
within one another are bounded.
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
from cython.cimports.headwater.edge.broker.msg_trace import Trace
from cython.cimports.headwater.edge.kernel.kernel import (
    MADE,
    Endpoint,
    Kernel,
    Msg,
    Sink,
)
from cython.cimports.libc.string import memcmp

from headwater.edge.broker.imports.service_latency import (
    INTEREST_LOST,
    TIMED_OUT,
    InterestWatch,
)

# Answers that one account waits for; beyond this the oldest request gets none.
RESPONSES_MAX = 65536
# Crossings within one another, through services of the node that publish while they receive.
DEPTH_MAX = cython.declare(cython.int, 16)
SINGLE = cython.declare(cython.int, 0)
RESPONSE_KINDS = {"single": 0, "stream": 1, "chunked": 2}
DIGITS = cython.declare(bytes, b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")


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
        if self.remote is not None:
            self.remote.stop()

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
        if measured is not None and self.crossing.remote is not None:
            subject = subject + self.crossing.remote.suffix
            measured.follow(self.crossing.remote, subject)
        self.entries[subject] = Response(account, reply, export, kernel.now_ns, measured)
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
            if response.export in chain:
                return 0
        # What it leads to asks nothing of the service that it is the answer of.
        chain = chain + (response.export,)
        self.delivered += 1
        if response.measured is not None:
            self.unwatch(response).answered(sender)
        # It goes where the requester's mappings lead it.
        to: bytes = response.account.mapped(response.reply)
        copy.subject = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(to))
        copy.subject_len = PyBytes_GET_SIZE(to)
        # Whoever answers has no say in the requester's account, nor has a request by its reply.
        copy.via = MADE
        if m.reply_len and not is_ack(m):
            back: Responses = self.crossing.responses_of(response.account)
            reply = PyBytes_FromStringAndSize(cython.cast(cython.p_char, m.reply), m.reply_len)
            reply = back.expect(self.account, reply, response.export, None)
            copy.reply = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(reply))
            copy.reply_len = PyBytes_GET_SIZE(reply)
        count = 0
        if copy.subject_len:
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
