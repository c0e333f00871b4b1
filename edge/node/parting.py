"""Clients of a node that leaves its cluster move to another one and lose no answer on the way.

A client is told that nothing more comes, and what it has sent until it hears that is still taken.
Answers that reach its inbox meanwhile are kept until the client has subscribed to it again, on
another node; then they go there. What else it subscribed to ends as with any closed connection.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any

from headwater.edge.broker.account import Account
from headwater.edge.broker.keeping_sink import KeepingSink
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


class Inboxes:
    """Inboxes of one account whose clients are on their way to another node."""

    def __init__(
        self, account: Account, loop: asyncio.AbstractEventLoop, removed: Callable[[], None]
    ) -> None:
        self.account = account
        self.loop = loop
        self.removed = removed
        """Called when what was kept for an inbox is there no more."""
        self.sinks: dict[bytes, KeepingSink] = {}
        account.add_watcher(self)

    def keep(self, subject: bytes) -> None:
        """Keep what comes to an inbox."""
        if subject not in self.sinks:
            sink = self.sinks[subject] = KeepingSink(self.account, subject)
            self.account.insert(sink)
            self.loop.call_later(PART_SECONDS, self.remove, sink)

    def interest_added(self, sink: Any) -> None:
        """As of `Account.add_watcher`: somebody listens."""
        kept = self.sinks.get(sink.subject)
        if kept is not None and sink is not kept and sink.queue is None and kept.heir is None:
            # The account is not to change while it tells of a change.
            self.loop.call_soon(self.release, kept, sink)

    def interest_removed(self, sink: Any) -> None:
        """As of `Account.add_watcher`."""

    def release(self, sink: KeepingSink, heir: Any) -> None:
        """Give what was kept to who listens now, and for a moment what still comes here."""
        count = sink.release(heir)
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

    def part(self, conn: Any) -> None:
        """Send a client away. One that cannot be told that nothing more comes is closed."""
        account, loop = conn.account, self.node.loop
        if account is None or not self.node.options.cluster.port:
            conn.close(REASON)
            return
        inboxes = self._inboxes.get(account.name)
        if inboxes is None:
            inboxes = self._inboxes[account.name] = Inboxes(account, loop, self._look)
        for sub in conn.subs.values():
            if sub.queue is None and sub.subject.startswith(INBOX):
                inboxes.keep(sub.subject)
                self.node.on_keeping(account.name, sub.subject)
        if conn.say_last(REASON):
            conn.ended()
            loop.call_later(PART_SECONDS, conn.close, REASON)
        else:
            conn.close(REASON)

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
    for conn in list(node.sessions.conns.values()):
        parting.part(conn)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(STOP_SECONDS):
            await parting.wait()
