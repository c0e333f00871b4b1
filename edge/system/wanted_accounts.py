"""Accounts that other nodes name, or that have streams here, whose tokens are not held.

Without the token such an account has no JetStream here, and takes no part in what other nodes of a
cluster say in it: a node that leads the cluster, or a stream of the account, would not hear its
requests. No login of its own waits for the token, so it is looked for until it is there.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headwater.security.nkeys import is_public_key

if TYPE_CHECKING:
    from headwater.edge.view.node_view import NodeView

WANTED_MAX = 10_000
"""Accounts that are wanted at one time. More are looked for when they are named again."""

WAITING_MAX = 64
"""Questions of other nodes that wait for one of them."""

AT_ONCE = 4
"""That are looked for at one time: logins have the other half of what goes to an HTTP server."""

AGAIN_S = 2.0
AGAIN_MAX_S = 60.0
"""Until a token that nobody had is looked for again: twice as long each time, up to the second."""


@dataclass(slots=True)
class Wanted:
    """One account."""

    pause: float = AGAIN_S
    """Seconds until it is looked for again."""
    timer: asyncio.TimerHandle | None = None
    """Runs in that pause."""
    waiting: list[Callable[[], None]] = field(default_factory=list)
    """Whom to tell when the token is there; forgotten when it is not found."""


class WantedAccounts:
    """Of one node. `look` finds the token of an account, and says whether it is held then."""

    def __init__(self, node: "NodeView", look: Callable[[str], Awaitable[bool]]) -> None:
        self._node = node
        self._look = look
        self._wanted: dict[str, Wanted] = {}
        self._queue: deque[str] = deque()
        self._workers: set[asyncio.Task[None]] = set()

    def want(self, account: str, done: Callable[[], None] = lambda: None) -> None:
        """Look for an account's token if it is not held, and make the account when it is there.
        `done` is called then, at once when it is held."""
        node, wanted = self._node, self._wanted.get(account)
        if wanted is not None:
            if len(wanted.waiting) < WAITING_MAX:
                wanted.waiting.append(done)
            return
        if not is_public_key(account, "A"):
            return
        if not node.authenticator.resolver.seeks(account, node.kernel.wall_ns() / 1e9):
            # What is held may be a stranger's, and then there is no such account.
            if node.authenticator.account_claims(account) is not None:
                node.account(account)
                done()
        elif len(self._wanted) < WANTED_MAX:
            self._wanted[account] = Wanted(waiting=[done])
            self._put(account)

    def stop(self) -> None:
        """Look for nothing any more."""
        for wanted in self._wanted.values():
            if wanted.timer is not None:
                wanted.timer.cancel()
        self._queue.clear()
        for worker in list(self._workers):
            worker.cancel()

    def _put(self, account: str) -> None:
        self._queue.append(account)
        if len(self._workers) < AT_ONCE:
            worker = self._node.loop.create_task(self._work())
            self._workers.add(worker)
            worker.add_done_callback(self._workers.discard)

    async def _work(self) -> None:
        while self._queue:
            account = self._queue.popleft()
            found = await self._look(account)
            wanted = self._wanted[account]
            waiting, wanted.waiting = wanted.waiting, []
            if not found:
                wanted.timer = self._node.loop.call_later(wanted.pause, self._put, account)
                wanted.pause = min(2 * wanted.pause, AGAIN_MAX_S)
                continue
            del self._wanted[account]
            self._node.account(account)
            for done in waiting:
                done()
            self._node.kernel.kick()
