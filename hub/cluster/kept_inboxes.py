"""Inboxes of clients that leave another node: each answer goes to one of two nodes.

A node that leaves keeps what comes to its clients' inboxes (`edge/node/parting.py`), and passes it
on when they have subscribed again elsewhere. It cannot know which of the others have heard of that
by then: those send to both. So it says whose inboxes it keeps, and who hears of the heir sends it
nothing more.
"""

from typing import Any

import msgspec

from headwater.edge.broker.account import Account
from headwater.edge.view.node_view import NodeView
from headwater.hub.cluster.transport import Transport
from headwater.hub.routes.route_conn import RouteConn

KEPT_SECONDS = 5.0
"""After which a node that leaves keeps nothing any more."""
KEPT_MAX = 50_000
"""Inboxes that are known to be kept elsewhere."""
OWN_SINKS = 2
"""Of an inbox on the node that leaves: the client's own, and the one that keeps."""


def listeners(account: Account, subject: bytes) -> list[Any]:
    """The sinks of an account that have this very subject, which may have wildcards."""
    literal = subject.replace(b"*", b"x").replace(b">", b"x")
    return [sink for sink in account.sinks(literal) if sink.subject == subject]


class Kept(msgspec.Struct, array_like=True, frozen=True):
    """An inbox of a client that leaves the sender."""

    account: str
    subject: bytes


class Watch:
    """The inboxes of one account that other nodes keep, until somebody listens to them."""

    def __init__(self, account: Account, loop: Any) -> None:
        self.account = account
        self.loop = loop
        self.conns: dict[bytes, RouteConn] = {}
        """By subject: the route of the node that keeps it."""
        account.add_watcher(self)

    def add(self, subject: bytes, conn: RouteConn) -> None:
        """A node keeps what comes to an inbox."""
        if len(self.conns) >= KEPT_MAX or self._sub(subject, conn) is None:
            return
        self.conns[subject] = conn
        self.loop.call_later(KEPT_SECONDS, self._forget, subject, conn)
        for sink in listeners(self.account, subject):
            self.interest_added(sink)

    def interest_added(self, sink: Any) -> None:
        """As of `Account.add_watcher`: somebody listens."""
        conn = self.conns.get(sink.subject)
        if conn is not None and sink.owner is not conn and sink.queue is None:
            sub = self._sub(sink.subject, conn)
            if sub is not None:
                # From now on: the account is not to change while it tells of a change.
                sub.closed = True
            self.loop.call_soon(self._leave_out, sink.subject, conn)

    def interest_removed(self, sink: Any) -> None:
        """As of `Account.add_watcher`."""

    def _key(self, subject: bytes) -> tuple[bytes, bytes, None, None]:
        return (self.account.name.encode(), subject, None, None)

    def _sub(self, subject: bytes, conn: RouteConn) -> Any:
        return conn.subs.get(self._key(subject))

    def _leave_out(self, subject: bytes, conn: RouteConn) -> None:
        """Send the node that leaves nothing more of an inbox that has its heir."""
        sub = self._sub(subject, conn)
        if sub is not None and self.conns.get(subject) is conn:
            del conn.subs[self._key(subject)]
            conn.forget(sub)
        self._forget(subject, conn)

    def _forget(self, subject: bytes, conn: RouteConn) -> None:
        if self.conns.get(subject) is conn:
            del self.conns[subject]


class KeptInboxes:
    """Of one node."""

    def __init__(self, node: NodeView, transport: Transport) -> None:
        self.node = node
        self.transport = transport
        self._watches: dict[str, Watch] = {}
        node.on_keeping = self._keeps
        transport.handlers[b"keeps"] = self._heard

    def _keeps(self, account: str, subject: bytes) -> None:
        """This node leaves, and keeps an inbox for its client. One to which somebody else listens
        here, too, is not told of."""
        own = [sink for sink in listeners(self.node.accounts[account], subject) if not sink.remote]
        if len(own) > OWN_SINKS:
            return
        body = msgspec.msgpack.encode(Kept(account, subject))
        for number in list(self.transport.conns):
            self.transport.send_beside(number, account, b"keeps", body)

    def _heard(self, number: int, body: memoryview) -> None:
        """Another node does."""
        try:
            kept = msgspec.msgpack.decode(body, type=Kept)
        except msgspec.DecodeError as error:
            raise ValueError(str(error)) from error
        account = self.node.accounts.get(kept.account)
        conn = self.transport.arriving
        if account is None or conn is None:
            return
        watch = self._watches.get(kept.account)
        if watch is None or watch.account is not account:
            watch = self._watches[kept.account] = Watch(account, self.node.loop)
        watch.add(kept.subject, conn)
