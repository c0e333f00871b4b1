"""Fences: a node learns that another one has heard what was said to it, on all routes.

What is said on one route is heard in order, but two routes know nothing of each other. A fence is a
number in an INFO on each of them, which the other node sends back in the same way.
"""

import asyncio
import functools
from collections.abc import Iterable

from headwater.hub.routes.route_conn import RouteConn
from headwater.hub.routes.session import RouteInfo, info_line

FENCES_VERSION = 2
"""Of what nodes say to each other: those before it know no fences."""


class Fences:
    """The fences of one node that have not come back."""

    def __init__(self, server_id: str, loop: asyncio.AbstractEventLoop) -> None:
        self.server_id = server_id
        self._loop = loop
        self._last = 0
        self._waiting: dict[int, dict[int, asyncio.Future[None]]] = {}

    async def wait(self, routes: Iterable[RouteConn]) -> None:
        """Send a fence on each route, and return when all have come back or the route has ended."""
        futures = []
        for conn in routes:
            if conn.session.peer.headwater < FENCES_VERSION:
                continue
            self._last += 1
            number = self._last
            future: asyncio.Future[None] = self._loop.create_future()
            self._waiting.setdefault(conn.cid, {})[number] = future
            future.add_done_callback(functools.partial(self._forget, conn.cid, number))
            conn.queue(info_line(RouteInfo(server_id=self.server_id, fence=number)))
            futures.append(future)
        if futures:
            await asyncio.gather(*futures)

    def _forget(self, cid: int, number: int, _: object) -> None:
        of_route = self._waiting.get(cid, {})
        of_route.pop(number, None)
        if not of_route:
            self._waiting.pop(cid, None)

    def passed(self, conn: RouteConn, number: int) -> None:
        """A fence has come back."""
        future = self._waiting.get(conn.cid, {}).get(number)
        if future is not None and not future.done():
            future.set_result(None)

    def gone(self, conn: RouteConn) -> None:
        """A route has ended: nothing comes back on it."""
        for future in list(self._waiting.get(conn.cid, {}).values()):
            if not future.done():
                future.set_result(None)
