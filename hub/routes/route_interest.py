"""What this node's part of an account wants, told to every route by RS+ and RS- lines.

A node speaks for its clients, its leaf links and its own services, never for other routes.
"""

import cython
from cython.cimports.headwater.edge.broker.account import Account
from cython.cimports.headwater.edge.broker.authorize import Peer
from cython.cimports.headwater.edge.broker.core import Sink
from cython.cimports.headwater.edge.broker.interest_counts import InterestCounts
from cython.cimports.headwater.hub.routes.route_conn import RouteConn

from headwater.edge.broker.imports.imports import ServiceImport
from headwater.edge.jetstream.publish.ingest import LastIngest

# Services that answer for the node a client is connected to, and for no other.
LOCAL_SERVICES = frozenset((b"$SYS.REQ.USER.INFO",))


@cython.cclass
class RouteInterest(InterestCounts):
    """One account's interest as the routes know it.

    `routes` is the list of connections to tell, shared with their registry; `principal` is what
    each of them may do.
    """

    account: Account
    routes: list
    principal: Peer

    def __init__(self, account: Account, routes: list, principal: Peer):
        InterestCounts.__init__(self, b"R", account.name.encode() + b" ")
        self.account = account
        self.routes = routes
        self.principal = principal
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
        if isinstance(sink, (ServiceImport, LastIngest)) or isinstance(sink.owner, RouteConn):
            return False
        if not self.principal.may_be_asked(sink.subject):
            return False
        return sink.owner is not None or sink.subject not in LOCAL_SERVICES

    def send(self, line: bytes) -> None:
        """Queue a line on every route."""
        for route in self.routes:
            cython.cast(RouteConn, route).queue(line)
