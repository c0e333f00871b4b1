"""What this node's part of an account wants, told to every route by RS+ and RS- lines.

A node speaks for its clients, its leaf links and its own services, never for other routes.
"""

import cython
from cython.cimports.headwater.edge.broker.account import Account
from cython.cimports.headwater.edge.broker.core import Sink
from cython.cimports.headwater.edge.subjects.trie import Node
from cython.cimports.headwater.hub.route_conn import RouteConn, RouteSub

from headwater.edge.broker.imports import ServiceImport

# Services that answer for the node a client is connected to, and for no other.
LOCAL_SERVICES = frozenset((b"$SYS.REQ.USER.INFO",))


@cython.cfunc
def walk(node: Node, found: list):
    """Collect every sink at and below `node`."""
    found.extend(node.plain)
    if node.queues:
        for members in node.queues.values():
            found.extend(members)
    if node.star is not None:
        walk(node.star, found)
    if node.tail is not None:
        walk(node.tail, found)
    for child in node.children.values():
        walk(cython.cast(Node, child), found)


@cython.cclass
class RouteInterest:
    """One account's interest as the routes know it. A watcher of the account.

    `routes` is the list of connections to tell, shared with their registry.
    """

    account: Account
    name: bytes
    routes: list
    counts: dict

    def __init__(self, account: Account, routes: list):
        self.account = account
        self.name = account.name.encode()
        self.routes = routes
        self.counts = {}
        sinks: list = []
        walk(account.trie.root, sinks)
        for item in sinks:
            if self.concerns(cython.cast(Sink, item)):
                self.count(cython.cast(Sink, item))
        account.add_watcher(self)

    def stop(self) -> None:
        """Watch no longer."""
        self.account.drop_watcher(self)

    def lines(self) -> bytes:
        """Everything, for a route that has just come up."""
        return b"".join([self.line(key) for key in self.counts])

    def interest_added(self, sink: Sink) -> None:
        """The account gained a sink."""
        if self.concerns(sink) and (self.count(sink) or sink.queue is not None):
            self.tell((sink.subject, sink.queue))

    def interest_removed(self, sink: Sink) -> None:
        """The account lost a sink."""
        key = (sink.subject, sink.queue)
        if key not in self.counts or not self.concerns(sink):
            return
        self.counts[key] -= sink.weight if sink.queue is not None else 1
        gone: bool = self.counts[key] <= 0
        if gone or sink.queue is not None:
            self.tell(key)
        if gone:
            del self.counts[key]

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def count(self, sink: Sink) -> cython.int:
        """Add a sink; 1 when it is the first of its key."""
        key = (sink.subject, sink.queue)
        first: cython.bint = key not in self.counts
        more: cython.int = sink.weight if sink.queue is not None else 1
        self.counts[key] = self.counts.get(key, 0) + more
        return 1 if first else 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def concerns(self, sink: Sink) -> cython.bint:
        """Whether other nodes are to know of a sink.

        Not of a service import: they have it themselves, and it says nothing of whether anybody
        serves.
        """
        if isinstance(sink, (RouteSub, ServiceImport)):
            return False
        return sink.owner is not None or sink.subject not in LOCAL_SERVICES

    def tell(self, key: tuple) -> None:
        """Queue the line for one key as it stands on every route."""
        text: bytes = self.line(key)
        for route in self.routes:
            cython.cast(RouteConn, route).queue(text)

    @cython.cfunc
    def line(self, key: tuple) -> bytes:
        """The RS+ or RS- line for one key."""
        subject, queue = key
        weight = self.counts[key]
        if weight <= 0:
            group: bytes = b"" if queue is None else b" " + queue
            return b"RS- %s %s%s\r\n" % (self.name, subject, group)
        if queue is None:
            return b"RS+ %s %s\r\n" % (self.name, subject)
        return b"RS+ %s %s %s %d\r\n" % (self.name, subject, queue, weight)
