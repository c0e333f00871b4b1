"""What this node's part of an account wants, told to every route by RS+ and RS- lines.

A node speaks for its clients, its leaf links and its own services, never for other routes.
"""

import cython
from cython.cimports.headwater.edge.broker.account import Account
from cython.cimports.headwater.edge.broker.authorize import Peer
from cython.cimports.headwater.edge.broker.interest_counts import InterestCounts
from cython.cimports.headwater.edge.kernel.kernel import KIND_LEAF, Sink
from cython.cimports.headwater.federation.leaf.leaf_conn import LeafConn
from cython.cimports.headwater.hub.routes.route_conn import RouteConn

from headwater.edge.broker.imports.latency_watch import AnswerWatch, RequestWatch
from headwater.edge.broker.imports.service_import import ServiceImport
from headwater.edge.jetstream.publish.ingest import LastIngest
from headwater.hub.routes.holding_sink import HoldingSink

# What other nodes have themselves, or do not serve.
UNTOLD = (ServiceImport, LastIngest, HoldingSink, AnswerWatch, RequestWatch)

# Services that answer for the node a client is connected to, and for no other.
LOCAL_SERVICES = frozenset((b"$SYS.REQ.USER.INFO",))


@cython.cclass
class RouteInterest(InterestCounts):
    """One account's interest as the routes know it.

    `routes` are those to tell, one for each other node; `principal` is what each of them may do;
    `pool_index` is the account's route in a pool.
    """

    account: Account
    routes: list
    principal: Peer
    pool_index = cython.declare(cython.int, visibility="public")
    lead = cython.declare(cython.Py_ssize_t)

    def __init__(self, account: Account, pool_index: int, principal: Peer):
        name: bytes = account.name.encode() + b" "
        InterestCounts.__init__(self, b"R", name)
        self.account = account
        self.routes = []
        self.principal = principal
        self.pool_index = pool_index
        self.lead = len(name)
        self.begin_counting(account)

    def stop(self) -> None:
        """Watch no longer."""
        self.account.drop_watcher(self)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def concerns(self, sink: Sink) -> cython.bint:
        """Whether other nodes are to know of a sink.

        Not of a service import: they have it themselves, and it says nothing of whether anybody
        serves. Nor of a stream that another node is about to lead.
        """
        if isinstance(sink, UNTOLD) or isinstance(sink.owner, RouteConn):
            return False
        if not self.principal.may_be_asked(sink.subject):
            return False
        return sink.owner is not None or sink.subject not in LOCAL_SERVICES

    def join(self, route: RouteConn) -> None:
        """Tell a route everything, and every change from now on."""
        if route not in self.routes:
            self.routes.append(route)
            for key in self.counts:
                route.queue(self.shown(route, key, self.line(key)))

    def leave(self, route: RouteConn) -> None:
        """Tell a route no more."""
        if route in self.routes:
            self.routes.remove(route)

    @cython.cfunc
    def origin_of(self, sink: Sink) -> bytes:
        """The cluster behind a leaf link: other nodes may have links to it, too, and must not tell
        it of its own interest."""
        if sink.owner is None or sink.owner.kind != KIND_LEAF:
            return None
        owner: LeafConn = cython.cast(LeafConn, sink.owner)
        return owner.cluster or None

    @cython.cfunc
    def shown(self, route: RouteConn, key: tuple, line: bytes) -> bytes:
        """A line as a route has it: one that is the account's own does not name it, and what is
        wanted for a linked cluster names that. A peer that knows no origins hears of all alike,
        and that it ends when nobody wants it."""
        rest: bytes = line[4:] if route.named else line[4 + self.lead :]
        if route.origins and key[2] is not None:
            return b"L" + line[1:4] + key[2] + b" " + rest
        if not route.origins and line[2:3] == b"-" and self.wanted_besides(key):
            return b""
        return line[:4] + rest

    def wanted_besides(self, key: tuple) -> bool:
        """Whether the same is wanted for another origin."""
        return any(each != key and each[:2] == key[:2] for each in self.counts)

    def send_key(self, key: tuple) -> None:
        """Queue a line on every route that is to know of it."""
        line: bytes = self.line(key)
        for item in self.routes:
            route = cython.cast(RouteConn, item)
            route.queue(self.shown(route, key, line))
