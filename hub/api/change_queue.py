"""How many changes of streams the meta leader works on at once.

A stream that is made costs each of its nodes some milliseconds, and one client may ask for
thousands in one write. So what an account asks for waits in a queue, and accounts take turns:
whoever asks for much waits, and others go on beside that.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

from headwater.edge.jetstream.account.account_js import AccountJetStream
from headwater.edge.jetstream.api.api import LINE_BYTES_MAX, WAITING_MAX
from headwater.edge.jetstream.model import errors
from headwater.edge.jetstream.model.requests import Context, Handler

UNDER_WAY_MAX = 32
"""Changes of all accounts at once."""
OF_ACCOUNT_MAX = 16
"""Those of one account among them: others have places left."""
ROW_BYTES = 100
"""What a change that waits takes beside its payload."""
PLACE_SECONDS = 1.0
"""A change has its place so long. What lasts longer waits for nodes that are away, and costs
nobody anything."""


class ChangeQueue:
    """Gives changes their turn."""

    def __init__(self, loop: asyncio.AbstractEventLoop, limit: int = 0) -> None:
        """`limit`: how many changes of an account may wait; 0 for WAITING_MAX."""
        self._loop = loop
        self._limit = limit or WAITING_MAX
        self._under_way: dict[str, int] = {}
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """By account; the first account has the next turn."""
        self._bytes: dict[str, int] = {}
        """Of requests that wait, by account."""

    def bounded(self, handler: Handler) -> Handler:
        """A handler that waits for its turn. It refuses with 10008 what finds no place to wait."""

        def serve(
            js: AccountJetStream, tokens: list[str], payload: bytes, ctx: Context
        ) -> Awaitable[Any]:
            if not self._has_room(js.name, len(payload)):
                js.router.count_overload()
                raise errors.CLUSTER_NOT_AVAIL.error()
            return self._in_turn(handler, js, tokens, payload, ctx)

        return serve

    async def _in_turn(
        self,
        handler: Handler,
        js: AccountJetStream,
        tokens: list[str],
        payload: bytes,
        ctx: Context,
    ) -> Any:
        await self._turn(js.name, len(payload))
        with _Place(self, js.name):
            answer = handler(js, tokens, payload, ctx)
            return await answer if isinstance(answer, Awaitable) else answer

    def _has_room(self, account: str, size: int) -> bool:
        waiting = len(self._waiting.get(account, ()))
        return waiting < self._limit and self._bytes.get(account, 0) + size <= LINE_BYTES_MAX

    def _may_begin(self, account: str) -> bool:
        mine = self._under_way.get(account, 0)
        return mine < OF_ACCOUNT_MAX and sum(self._under_way.values()) < UNDER_WAY_MAX

    async def _turn(self, account: str, size: int) -> None:
        if account not in self._waiting and self._may_begin(account):
            self._begin(account)
            return
        turn = self._loop.create_future()
        self._waiting.setdefault(account, deque()).append(turn)
        size += ROW_BYTES
        self._bytes[account] = self._bytes.get(account, 0) + size
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.leave(account)
            raise
        finally:
            self._bytes[account] -= size
            if not self._bytes[account]:
                del self._bytes[account]

    def _begin(self, account: str) -> None:
        self._under_way[account] = self._under_way.get(account, 0) + 1

    def leave(self, account: str) -> None:
        """A change of an account has its place no more: somebody else may begin."""
        self._under_way[account] -= 1
        if not self._under_way[account]:
            del self._under_way[account]
        for other in list(self._waiting):
            while other in self._waiting and self._may_begin(other):
                if self._call(other):
                    break

    def _call(self, account: str) -> bool:
        """Have the first that waits of an account begin, which is the last in turn then. False
        when it waits no more."""
        line = self._waiting.pop(account)
        turn = line.popleft()
        if line:
            self._waiting[account] = line
        if turn.done():
            return False
        self._begin(account)
        turn.set_result(None)
        return True


class _Place(AbstractContextManager[None]):
    """One change under way: it leaves its place at its end, or when it lasts too long."""

    def __init__(self, queue: ChangeQueue, account: str) -> None:
        self._queue = queue
        self._account = account
        self._timer = queue._loop.call_later(PLACE_SECONDS, self._leave)
        self._there = True

    def _leave(self) -> None:
        if self._there:
            self._there = False
            self._queue.leave(self._account)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._timer.cancel()
        self._leave()
