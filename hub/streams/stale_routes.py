"""Routes on which what comes may have been on its way for long.

A node that stood still (SIGSTOP, a machine that was suspended) finds what others sent it meanwhile,
and so does one that was cut off, when the line is back. Deliveries among that are asked about:
`late_deliveries`. A fence on the routes says when all of it has come.
"""

import asyncio
import logging
from collections.abc import Callable

from headwater.edge.kernel.kernel import Kernel
from headwater.hub.cluster.peers import number_of_name
from headwater.hub.cluster.transport import CallFailed, Transport
from headwater.hub.routes.route_conn import RouteConn

LOOK_SECONDS = 0.25
"""Between two looks at who was heard."""
STOOD_NS = 1_000_000_000
"""A look that is so late says that this node stood still; `RouteConn` has the same."""
SILENT_NS = 2_500_000_000
"""After which a node that says nothing is cut off: it says something each second."""
FENCE_SECONDS = 120.0
"""A route that says nothing is cut before that."""
STALE_VERSION = 9
"""Of nodes that can be asked."""

log = logging.getLogger("headwater.streams")

Key = tuple[bytes, bytes]
"""Account and reply subject of a delivery."""


class StaleRoutes:
    """Of one node. `comes` is what `RouteConn.late` is to be; `needs(conn)` says whether it is
    needed there otherwise. Not thread-safe."""

    def __init__(
        self,
        kernel: Kernel,
        transport: Transport,
        comes: Callable[..., bool],
        needs: Callable[[RouteConn], bool],
    ) -> None:
        self.kernel = kernel
        self.transport = transport
        self.comes = comes
        self.needs = needs
        self._asked: dict[RouteConn, dict[Key, asyncio.Task[None]]] = {}
        """By route; those to one node share it."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._looked_ns = kernel.monotonic_ns()
        self._timer = kernel.loop.call_later(LOOK_SECONDS, self._look)

    def stop(self) -> None:
        """The node stops."""
        self._timer.cancel()
        for task in list(self._tasks):
            task.cancel()

    def _look(self) -> None:
        """Mark the routes whose other ends were heard a moment ago. If this node stood still, that
        waits until what came meanwhile is read."""
        self._timer = self.kernel.loop.call_later(LOOK_SECONDS, self._look)
        before, now = self._looked_ns, self.kernel.monotonic_ns()
        self._looked_ns = now
        routes = list(self.transport.all_routes())
        heard: dict[str, int] = {}
        for conn in routes:
            name = conn.session.peer.server_name
            heard[name] = max(heard.get(name, 0), conn.received_ns)
            if conn.stale is None:
                conn.stale, conn.fresh_ns = self._begin, before
        if now - before > STOOD_NS:
            return
        for conn in routes:
            if now - heard[conn.session.peer.server_name] < SILENT_NS:
                conn.fresh_ns = now

    def _begin(self, conn: RouteConn) -> None:
        """Something comes by a route after a time in which this node was still, or the other."""
        name, now = conn.session.peer.server_name, self.kernel.monotonic_ns()
        routes = [r for r in self.transport.all_routes() if r.session.peer.server_name == name]
        for each in routes:
            each.fresh_ns = now
        number = number_of_name(name)
        if self.transport.version(number) < STALE_VERSION or conn in self._asked:
            return
        log.debug("%s: what comes may have been on its way for long", name)
        asked: dict[Key, asyncio.Task[None]] = {}
        # Those that are waited for by now keep their own questions: one of the pool may be new.
        begun = [each for each in routes if each not in self._asked]
        for each in begun:
            self._asked[each] = asked
            each.late = self.comes
        task = asyncio.ensure_future(self._wait(number, begun, asked), loop=self.kernel.loop)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _wait(
        self, number: int, routes: list[RouteConn], asked: dict[Key, asyncio.Task[None]]
    ) -> None:
        """All that was on its way is here, or lost, and what was asked about is answered: what
        comes now is behind it."""
        try:
            await self.transport.fence(number, FENCE_SECONDS)
            if asked:
                log.info("%d messages that may be old are asked about", len(asked))
                await asyncio.wait(set(asked.values()))
        except CallFailed as error:
            log.debug("a node that was not heard for a while says nothing: %s", error)
        finally:
            for conn in routes:
                self._asked.pop(conn, None)
                if not self.needs(conn):
                    conn.late = None

    def asks(self, conn: RouteConn) -> bool:
        """Whether what comes by a route may be old."""
        return conn in self._asked

    def asked(self, conn: RouteConn, key: Key, task: asyncio.Task[None]) -> None:
        """A delivery that came by it is asked about, until `task` ends."""
        self._asked[conn][key] = task

    def was_asked(self, conn: RouteConn, key: Key) -> bool:
        """Whether a delivery is the answer to such a question. It comes once."""
        return self._asked[conn].pop(key, None) is not None
