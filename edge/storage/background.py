"""One worker thread for slow file work that nobody's ack waits for."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

log = logging.getLogger("headwater.storage")


class Background:
    """Runs functions one after the other beside the event loop. What it runs must not touch
    anything that belongs to the loop; `done` is called on the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="headwater-files")
        self._closed = False

    def submit(
        self,
        work: Callable[[], Any],
        done: Callable[[Any, BaseException | None], None] | None = None,
    ) -> None:
        """Run `work`; then `done(result, error)`. An error that nobody takes is logged."""
        if self._closed:
            return

        def finish(future: asyncio.Future[Any]) -> None:
            error = None if future.cancelled() else future.exception()
            if done is not None:
                done(None if error or future.cancelled() else future.result(), error)
            elif error is not None:
                log.error("background file work failed: %s", error)

        self._loop.run_in_executor(self._pool, work).add_done_callback(finish)

    def close(self) -> None:
        """Finish what is queued and end the thread (blocks)."""
        self._closed = True
        self._pool.shutdown(wait=True)
