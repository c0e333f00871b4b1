"""Stream imports: a subscription of one account has *shadows* in the accounts it imports from.

The exporter sees exactly the interest there is, queue groups included. What was imported is not
there to be imported again, and what came by a service stays where it is.
"""

import cython
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_GET_SIZE
from cython.cimports.headwater.edge.broker.account import Account
from cython.cimports.headwater.edge.broker.imports.responses import (
    Crossing,
    Responses,
    subject_of,
)
from cython.cimports.headwater.edge.broker.imports.service_import import ServiceImport
from cython.cimports.headwater.edge.broker.msg_trace import CrossingSink, Trace
from cython.cimports.headwater.edge.kernel.kernel import KIND_LEAF, Endpoint, Msg, Sink
from cython.cimports.headwater.edge.subjects.transform import Transform

from headwater.edge.subjects.subject_tree import SubjectTree

# Subjects on which the node itself listens and that no import feeds.
INNER = (b"$JS.", b"$SYS.", b"_R_.")


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
                return owner.emit(cython.address(copy), sender)
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
    entries: object
    """By local subject and place: a subscription asks only those that it may want."""
    shadows: dict

    def __init__(self, crossing: Crossing, account: Account, entries: list):
        entry: StreamImport
        self.crossing = crossing
        self.account = account
        self.entries = SubjectTree()
        for place, item in enumerate(entries):
            entry = item
            self.entries.put(entry.local.decode("utf-8", "surrogateescape"), place, entry)
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
        found: dict = self.entries.overlapping(sink.subject.decode("utf-8", "surrogateescape"))
        for place in sorted(found):
            entry = found[place]
            subject = entry.wanted(sink.subject)
            if subject is not None:
                shadow = Shadow(self.crossing, entry, sink, subject, self.account.name)
                made.append((entry.exporter, shadow))
        if made:
            self.shadows[sink] = made
            self.account.shadows += len(made)
            self.account.turned += len(made)
            for exporter, shadow in made:
                exporter.insert(shadow)

    def interest_removed(self, sink: Sink) -> None:
        """The account lost a sink."""
        made: list = self.shadows.pop(sink, [])
        self.account.shadows -= len(made)
        self.account.turned += len(made)
        for exporter, shadow in made:
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
