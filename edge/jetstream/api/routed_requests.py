"""Requests that other nodes of a cluster passed on, beyond what a turn of the loop does.

A client that asks for much rests, but a route must not. It carries what other accounts say, and
what nodes say to each other. So what it brings for one account waits here.
"""

from asyncio import AbstractEventLoop
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

BUSY_SECONDS = 0.01
"""Until an account is looked at again that has enough under way."""
Routed = tuple[bytes, bytes, bytes, bytes, object, Any]
"""Subject, reply, headers, payload and sender of a request, and `passing` as of `Context`."""


class RoutedRequests:
    """Those of one account, in the order in which they came."""

    def __init__(
        self,
        loop: AbstractEventLoop,
        admit: Callable[[Routed], None],
        busy: Callable[[], bool],
    ) -> None:
        """`admit` handles one, unless the account is `busy`."""
        self._loop = loop
        self._admit = admit
        self._busy = busy
        self._waiting: deque[Routed] = deque()
        self._names: Counter[tuple[bytes, bytes]] = Counter()
        """Subjects and replies of what waits."""
        self._bytes = 0
        self._done = 0
        """Requests that this turn has handled, of all routes."""

    def serve(self, request: Routed, a_turn: int, most: int, most_bytes: int) -> bool:
        """Handle a request now; in a later turn when `a_turn` others were handled in this one, or
        the account is busy. False when `most` wait already, or `most_bytes` of their payloads."""
        if not self._done and not self._waiting:
            self._loop.call_soon(self._go_on, a_turn)
        if self._done < a_turn and not self._waiting and not self._busy():
            self._done += 1
            self._admit(request)
            return True
        size = len(request[3])
        if len(self._waiting) >= most or self._bytes + size > most_bytes:
            return False
        self._waiting.append(request)
        self._names[request[:2]] += 1
        self._bytes += size
        return True

    def has(self, subject: bytes, reply: bytes) -> bool:
        """Whether a request waits."""
        return (subject, reply) in self._names

    def stop(self) -> None:
        """Give up what waits."""
        self._waiting.clear()
        self._names.clear()

    def _go_on(self, a_turn: int) -> None:
        self._done = 0
        while self._waiting and self._done < a_turn and not self._busy():
            request = self._pop()
            self._done += 1
            self._admit(request)
        if self._done:
            self._loop.call_soon(self._go_on, a_turn)
        elif self._waiting:
            self._loop.call_later(BUSY_SECONDS, self._go_on, a_turn)

    def _pop(self) -> Routed:
        request = self._waiting.popleft()
        self._bytes -= len(request[3])
        names = request[:2]
        self._names[names] -= 1
        if not self._names[names]:
            del self._names[names]
        return request
