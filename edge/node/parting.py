"""Clients of a node that leaves its cluster move to another one and lose no answer on the way.

A client is told that nothing more comes, and what it has sent until it hears that is still taken.
Answers that reach its inbox meanwhile are kept until the client has subscribed to it again, on
another node; then they go there. Before it is told, the other nodes hear whose answers are kept:
who learns of it only behind the client's next subscription would send each to both nodes. What
else a client subscribed to ends as with any closed connection.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Any

from headwater.edge.broker.account import Account
from headwater.edge.broker.keeping_sink import KeepingSink, hand_to
from headwater.edge.view.node_view import NodeView

PART_SECONDS = 4.0
"""That answers wait for their client, and a client's last words are heard."""
FOLLOW_SECONDS = 0.5
"""That other nodes may need to hear where a client listens now."""
STOP_SECONDS = 1.5
"""That a node which stops at once waits for all of it."""
REASON = "Server Shutdown"
INBOX = b"_INBOX."
"""What the inboxes of all official clients begin with; nobody else listens to one."""

log = logging.getLogger("headwater.node")


class AloneKeeper:
    """As of `InboxKeeper`, of a node without others."""

    async def announce(self, inboxes: list[tuple[str, bytes]]) -> frozenset[Any]:
        """Nobody is to hear of it."""
        return frozenset()

    def found(self, account: Account, heir: Any) -> None:
        """Nobody is to hear of it."""

    def hand(self, account: Account, heir: Any, *message: bytes) -> None:
        """Deliver it."""
        hand_to(account, (heir,), *message)


class Inboxes:
    """Inboxes of one account whose clients are on their way to another node."""

    def __init__(self, account: Account, node: NodeView, removed: Callable[[], None]) -> None:
        self.account = account
        self.loop = node.loop
        self.keeper = node.inbox_keeper
        self.removed = removed
        """Called when what was kept for an inbox is there no more."""
        self.sinks: dict[bytes, KeepingSink] = {}
        account.add_watcher(self)

    def keep(self, subject: bytes, routes: frozenset[Any]) -> None:
        """Keep what comes to an inbox; `routes` are those whose nodes know of it."""
        if subject not in self.sinks:
            sink = KeepingSink(self.account, subject, routes, self.keeper.hand)
            self.sinks[subject] = sink
            self.account.insert(sink)
            self.loop.call_later(PART_SECONDS, self.remove, sink)

    def interest_added(self, sink: Any) -> None:
        """As of `Account.add_watcher`: somebody listens, and gets all that comes from now on."""
        kept = self.sinks.get(sink.subject)
        if kept is not None and sink is not kept and sink.queue is None and kept.heir is None:
            kept.heir = sink
            self.keeper.found(self.account, sink)
            # The account is not to change while it tells of a change.
            self.loop.call_soon(self.release, kept)

    def interest_removed(self, sink: Any) -> None:
        """As of `Account.add_watcher`."""

    def release(self, sink: KeepingSink) -> None:
        """Give what was kept to who listens now, and for a moment what still comes here."""
        count = sink.pass_on()
        if count:
            log.debug("%d answers on %r follow their client", count, sink.subject)
        self.loop.call_later(FOLLOW_SECONDS, self.remove, sink)

    def remove(self, sink: KeepingSink) -> None:
        """Keep nothing any more."""
        if self.sinks.get(sink.subject) is sink:
            del self.sinks[sink.subject]
            self.account.remove(sink)
            self.removed()


class Parting:
    """Of one node that leaves."""

    def __init__(self, node: NodeView) -> None:
        self.node = node
        self._inboxes: dict[str, Inboxes] = {}
        self._empty = asyncio.Event()

    async def part(self, conns: Sequence[Any]) -> None:
        """Send clients away. One that cannot be told that nothing more comes is closed."""
        inboxes = [each for conn in conns for each in self._inboxes_of(conn)]
        routes = await self.node.inbox_keeper.announce(inboxes) if inboxes else frozenset()
        known = set(inboxes)
        for conn in conns:
            if not conn.closed:
                self._send_away(conn, known, routes)

    def _inboxes_of(self, conn: Any) -> list[tuple[str, bytes]]:
        if conn.account is None or not self.node.options.cluster.port:
            return []
        subs = [sub for sub in conn.subs.values() if sub.queue is None]
        return [(conn.account.name, sub.subject) for sub in subs if sub.subject.startswith(INBOX)]

    def _send_away(
        self, conn: Any, known: set[tuple[str, bytes]], routes: frozenset[Any]
    ) -> None:
        """Keep what comes to its inboxes of which others know, and say that nothing follows."""
        if conn.account is None or not self.node.options.cluster.port:
            conn.close(REASON)
            return
        for name, subject in self._inboxes_of(conn):
            if (name, subject) in known:
                self._of(conn.account).keep(subject, routes)
        if conn.say_last(REASON):
            conn.ended()
            self.node.loop.call_later(PART_SECONDS, conn.close, REASON)
        else:
            conn.close(REASON)

    def _of(self, account: Account) -> Inboxes:
        inboxes = self._inboxes.get(account.name)
        if inboxes is None:
            inboxes = self._inboxes[account.name] = Inboxes(account, self.node, self._look)
        return inboxes

    def _look(self) -> None:
        if not any(one.sinks for one in self._inboxes.values()):
            self._empty.set()

    async def wait(self) -> None:
        """Return when every answer has followed its client, or has waited for long enough."""
        self._look()
        await self._empty.wait()


async def part_all(node: NodeView) -> None:
    """Send every client away at once, and give them a moment."""
    parting = Parting(node)
    await parting.part(list(node.sessions.conns.values()))
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(STOP_SECONDS):
            await parting.wait()
