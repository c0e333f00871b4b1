"""A node on a thread with a loop of its own, for programs and tests that have no loop."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Self, TypeVar

from headwater.edge.embedded.embedded_node import EmbeddedNode, open_node
from headwater.edge.embedded.settings import Configuration

T = TypeVar("T")


class NodeThread:
    """`with NodeThread(config) as node` runs a node; `node.url` is where clients connect."""

    def __init__(self, config: Configuration) -> None:
        self._config = config
        self._begun: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event, EmbeddedNode]] = (
            Future()
        )
        self._thread = threading.Thread(target=self._run, name="headwater-node", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self._loop, self._end, self.node = self._begun.result()
        except BaseException:
            self._thread.join()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()

    @property
    def url(self) -> str:
        """Where clients connect."""
        return self.node.url

    def call(self, action: Callable[[EmbeddedNode], Awaitable[T]]) -> T:
        """Run `action` with the node on the node's loop; returns what it returns."""

        async def run() -> T:
            return await action(self.node)

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result()

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        except BaseException as error:
            if self._begun.done():
                raise
            self._begun.set_exception(error)

    async def _main(self) -> None:
        end = asyncio.Event()
        async with open_node(self._config) as node:
            self._begun.set_result((asyncio.get_running_loop(), end, node))
            await end.wait()
