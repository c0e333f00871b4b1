"""Inboxes of clients that leave another node: each answer goes to one of two nodes.

A node that leaves keeps what comes to its clients' inboxes (`edge/node/parting.py`), and passes it
on when they have subscribed again elsewhere. It cannot know which of the others have heard of that
by then: those send to both. So it says whose inboxes it keeps, before it lets a client go, and who
hears of the heir sends it nothing more, and says so to the heir's node (`overlaps.py`). What was
kept goes to the heir in a frame of its own, since all others who listen have got it.
"""

import asyncio
import contextlib
import struct
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from headwater.edge.broker.account import Account
from headwater.edge.broker.keeping_sink import hand_to
from headwater.hub.routes.overlaps import MARKS_SECONDS, MARKS_VERSION, Overlap
from headwater.hub.routes.route_conn import NODE_ACCOUNT, RouteConn

if TYPE_CHECKING:
    from headwater.edge.view.node_view import NodeView
    from headwater.hub.routes.peer_routes import PeerRoutes

KEPT_SECONDS = 5.0
"""After which a node that leaves keeps nothing any more."""
KEPT_MAX = 50_000
"""Inboxes that are known to be kept elsewhere."""
HEARD_SECONDS = 1.0
"""That others have to hear of it; from who has not, nothing is kept."""
HEIRS_VERSION = 7
"""Of what nodes say to each other: before it, only nodes with JetStream know kept inboxes, and none
knows a message for an heir alone."""

HEAD = struct.Struct("<Q")
"""As of every frame; see `cluster.transport`. What is said here is of no JetStream."""


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

    def __init__(self, account: Account, loop: Any, routes: "Registry") -> None:
        self.account = account
        self.loop = loop
        self.routes = routes
        self.conns: dict[bytes, RouteConn] = {}
        """By subject: the route of the node that keeps it."""
        self.overlaps: dict[bytes, Overlap] = {}
        """By subject: of those that have an heir on this node."""
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
            say_heir(self.account, sink)
            self.loop.call_soon(self._leave_out, sink.subject, conn)
            if not sink.remote and sink.owner is not None:
                self._listen_beside(sink)

    def interest_removed(self, sink: Any) -> None:
        """As of `Account.add_watcher`."""

    def _listen_beside(self, sink: Any) -> None:
        """Know what an heir on this node hears while the others hear of it."""
        if sink.subject in self.overlaps:
            return
        there = [self.routes.beside(peer, self.account.name) for peer in self.routes.peers]
        awaited = {conn for conn in there if conn is not None and _marks(conn)}
        overlap = self.overlaps[sink.subject] = Overlap(sink.subject, awaited)
        # At once, as messages may come by the next route that is read.
        self.account.insert(overlap)
        self.loop.call_later(MARKS_SECONDS, overlap.stop_waiting)
        self.loop.call_later(KEPT_SECONDS, self._end, overlap)

    def _end(self, overlap: Overlap) -> None:
        del self.overlaps[overlap.subject]
        self.account.remove(overlap)

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


def say_heir(account: Account, sink: Any) -> None:
    """Tell the node of an heir that the one that leaves gets nothing more from here."""
    conn = sink.owner
    if isinstance(conn, RouteConn) and _marks(conn):
        _put(conn, b"heir", msgspec.msgpack.encode(Kept(account.name, sink.subject)))


class KeptMessage(msgspec.Struct, array_like=True, frozen=True):
    """A message that was kept, for who listens to that very inbox now."""

    account: str
    inbox: bytes
    subject: bytes
    payload: bytes
    reply: bytes
    headers: bytes
    shown: bytes


class Registry(Protocol):
    """What is used of `Routes`."""

    peers: "dict[str, PeerRoutes]"

    def beside(self, server_id: str, account: str) -> RouteConn | None:
        """The route that an account has to a node."""

    async def fence(self, server_id: str) -> None:
        """Return when a node has heard all that was said to it."""


class KeptInboxes:
    """Of one node: its `InboxKeeper`, and what others tell it."""

    def __init__(self, node: "NodeView", routes: Registry) -> None:
        self.node = node
        self.routes = routes
        self.handlers = {b"keeps": self._heard, b"kept": self._handed, b"heir": self._left_out}
        self._watches: dict[str, Watch] = {}
        self._slow: set[str] = set()
        """Nodes that have not heard in time: nobody waits for them again."""
        node.inbox_keeper = self

    # -- this node leaves -------------------------------------------------------

    async def announce(self, inboxes: list[tuple[str, bytes]]) -> frozenset[Any]:
        """As of InboxKeeper. One to which somebody else listens here, too, is not named."""
        said: dict[str, set[RouteConn]] = {}
        for account, subject in inboxes:
            here = listeners(self.node.accounts[account], subject)
            if sum(not sink.remote and not isinstance(sink, Overlap) for sink in here) > 1:
                continue
            body = msgspec.msgpack.encode(Kept(account, subject))
            for server_id in self.routes.peers:
                conn = self.routes.beside(server_id, account)
                if conn is not None and _knows(conn):
                    _put(conn, b"keeps", body)
                    said.setdefault(server_id, set()).add(conn)
        heard = await asyncio.gather(*map(self._has_heard, said))
        return frozenset(
            conn for conns, good in zip(said.values(), heard, strict=True) if good for conn in conns
        )

    async def _has_heard(self, server_id: str) -> bool:
        if server_id in self._slow:
            return False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(HEARD_SECONDS):
                await self.routes.fence(server_id)
                return True
        self._slow.add(server_id)
        return False

    def found(self, account: Account, heir: Any) -> None:
        """As of InboxKeeper."""
        say_heir(account, heir)

    def hand(self, account: Account, heir: Any, *message: bytes) -> None:
        """As of InboxKeeper."""
        conn = heir.owner
        if not isinstance(conn, RouteConn) or conn.session.peer.headwater < HEIRS_VERSION:
            hand_to(account, (heir,), *message)
        elif not conn.closed:
            kept = KeptMessage(account.name, heir.subject, *message)
            _put(conn, b"kept", msgspec.msgpack.encode(kept))

    # -- another node does ------------------------------------------------------

    def receive(self, conn: RouteConn, kind: bytes, frame: bytes) -> bool:
        """A peer sent a frame: False when it is of another kind."""
        handler = self.handlers.get(kind)
        if handler is None:
            return False
        try:
            handler(conn, frame[HEAD.size :])
        except msgspec.DecodeError:
            conn.fail("Unknown Protocol Operation", "Parse Error")
        return True

    def _heard(self, conn: RouteConn, body: bytes) -> None:
        kept = msgspec.msgpack.decode(body, type=Kept)
        account = self.node.accounts.get(kept.account)
        if account is None:
            return
        watch = self._watches.get(kept.account)
        if watch is None or watch.account is not account:
            watch = self._watches[kept.account] = Watch(account, self.node.loop, self.routes)
        watch.add(kept.subject, conn)

    def _left_out(self, conn: RouteConn, body: bytes) -> None:
        found = msgspec.msgpack.decode(body, type=Kept)
        overlap = self._overlap(found.account, found.subject)
        if overlap is not None:
            overlap.ends(conn)

    def _overlap(self, account: str, inbox: bytes) -> Overlap | None:
        watch = self._watches.get(account)
        return watch.overlaps.get(inbox) if watch is not None else None

    def _handed(self, conn: RouteConn, body: bytes) -> None:
        message = msgspec.msgpack.decode(body, type=KeptMessage)
        account = self.node.accounts.get(message.account)
        if account is None:
            return
        overlap = self._overlap(message.account, message.inbox)
        if overlap is None:
            _deliver(account, message)
            return
        others = [
            sink
            for sink in account.sinks(message.subject)
            if not isinstance(sink, Overlap) and not isinstance(sink.owner, RouteConn)
        ]
        what = (message.subject, message.payload, message.reply, message.headers)
        overlap.hand(what, partial(_deliver, account, message), len(others) < 2)


def _deliver(account: Account, message: KeptMessage) -> None:
    """Give it to who listens here to that very inbox."""
    heirs = [
        sink
        for sink in listeners(account, message.inbox)
        if not sink.remote and sink.queue is None and sink.owner is not None
    ]
    hand_to(
        account,
        tuple(heirs),
        message.subject,
        message.payload,
        message.reply,
        message.headers,
        message.shown,
    )


def _knows(conn: RouteConn) -> bool:
    """Whether the node at the other end knows kept inboxes."""
    peer = conn.session.peer
    return bool(peer.headwater >= HEIRS_VERSION or (peer.headwater and peer.jetstream))


def _marks(conn: RouteConn) -> bool:
    """Whether the node at the other end says when it sends the one that leaves nothing more."""
    return bool(conn.session.peer.headwater >= MARKS_VERSION)


def _put(conn: RouteConn, kind: bytes, body: bytes) -> None:
    size = HEAD.size + len(body)
    head = b"RMSG %b %b %d\r\n" % (NODE_ACCOUNT, kind, size)
    conn.queue_pieces([head, HEAD.pack(0), body, b"\r\n"])
