"""Service imports: requests cross into another account, and answers find their way back.

A *service* import is a sink in the importing account: what is published on its local subject goes
on to the exporting account. Where an answer is wanted, `responses.py` makes a subject for it.

A message that came by a service does not leave by it again.
"""

from functools import partial

import cython
from cython.cimports.cpython.bytes import (
    PyBytes_AS_STRING,
    PyBytes_FromStringAndSize,
    PyBytes_GET_SIZE,
)
from cython.cimports.headwater.edge.broker.account import Account
from cython.cimports.headwater.edge.broker.imports.responses import (
    Crossing,
    Responses,
    ServiceExport,
    is_ack,
    subject_of,
)
from cython.cimports.headwater.edge.broker.msg_trace import CrossingSink, Trace
from cython.cimports.headwater.edge.kernel.kernel import (
    FROM_PEER,
    KIND_INTERNAL,
    Endpoint,
    Msg,
    Sink,
)
from cython.cimports.headwater.edge.subjects.transform import Transform
from cython.cimports.headwater.edge.wire.header_block import kept_length
from cython.cimports.libc.string import memcpy

from headwater.edge.broker.imports.responses import TRACES
from headwater.edge.broker.imports.service_latency import BAD_REQUEST, UNAVAILABLE
from headwater.edge.wire.header_block import PREFIX

# Request descriptions remembered per import.
INFOS_MAX = cython.declare(cython.Py_ssize_t, 1024)
INFO_NAME = b"Nats-Request-Info:"


@cython.cclass
class ServiceImport(CrossingSink):
    """Takes requests on a local subject to the exporting account.

    `fixed` is the subject there when it is always the same, `rewrite` makes it otherwise; with
    neither it stays what it is.
    """

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
        if subject is None:
            if not self.exporter.remaps(m.subject, m.subject_len):
                return None
            subject = subject_of(m)
        return self.exporter.mapped(subject)

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
