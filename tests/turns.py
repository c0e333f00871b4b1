"""A node whose loop counts the processor time of each of its turns.

A turn is what the loop does between two looks at its sockets: nobody else is served meanwhile. The
time is that of the loop's thread alone, so other programs and other threads do not count.
"""

import asyncio
import gc
import threading
import time
from collections.abc import Callable
from typing import Any, Self

from headwater.deploy.compose import services_for
from headwater.deploy.serve import GARBAGE
from headwater.edge.conf.load import load_text
from headwater.edge.conf.validate import complete
from headwater.edge.node.node import Node
from tests.measuring import leave_out_what_is_there

START_S = 20.0


def piece() -> float:
    """Processor seconds of a fixed piece of interpreted work."""
    begin = time.thread_time()
    sum(i * i for i in range(700_000))
    return time.thread_time() - begin


class CountingLoop(asyncio.SelectorEventLoop):
    """Keeps the longest turn, in seconds of its thread's processor time."""

    def __init__(self) -> None:
        super().__init__()
        self.longest = 0.0
        self.turns = 0

    def _run_once(self) -> None:
        began = time.thread_time()
        super()._run_once()  # type: ignore[misc]
        self.longest = max(self.longest, time.thread_time() - began)
        self.turns += 1


class CountedNode:
    """A node of a configuration's text on a loop of its own thread. A context manager."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._begun = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self.loop = CountingLoop()

    def _serve(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self.loop) as runner:
            runner.run(self._run())

    async def _run(self) -> None:
        options = load_text(self._text).options
        complete(options)
        self._end = asyncio.Event()
        self.node = Node(options, self.loop)
        self.node.services.extend(services_for(options))
        self.node.start()
        await asyncio.sleep(0)
        self._begun.set()
        await self._end.wait()
        await self.node.stop()

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._begun.wait(START_S)
        return self

    def __exit__(self, *error: object) -> None:
        self.loop.call_soon_threadsafe(self._end.set)
        self._thread.join(START_S)
        leave_out_what_is_there()  # `longest` has put all of it back

    def port(self, listener: str) -> int:
        """Where a listener listens."""
        return int(self.node.ports()[listener][0].rpartition(":")[2])

    def longest(self, work: Callable[[], Any]) -> float:
        """The longest turn while `work` runs in another thread than the loop's. Garbage is looked
        for as `headwater serve` does."""
        self.settle()
        before = gc.get_threshold()
        gc.freeze()
        gc.set_threshold(*GARBAGE)
        try:
            self.loop.longest = 0.0
            work()
            self.settle()
            return self.loop.longest
        finally:
            gc.set_threshold(*before)
            gc.unfreeze()

    def settle(self) -> None:
        """Wait for the end of the turn that runs now."""
        done = threading.Event()
        for _ in range(2):
            done.clear()
            self.loop.call_soon_threadsafe(done.set)
            assert done.wait(START_S)
