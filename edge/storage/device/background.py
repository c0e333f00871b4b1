"""One worker thread for slow file work that nobody's ack waits for."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any

log = logging.getLogger("headwater.storage")


class SteppedExecutor(Executor):
    """Runs one job after the other on the loop's thread, each in a call of its own."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._queue: list[tuple[Future[Any], Callable[[], Any]]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self._queue.append((future, lambda: fn(*args, **kwargs)))
        self._loop.call_soon(self._step)
        return future

    def _step(self) -> None:
        if not self._queue:
            return
        future, work = self._queue.pop(0)
        try:
            future.set_result(work())
        except Exception as error:
            future.set_exception(error)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Run what is queued."""
        while self._queue:
            self._step()


class Background:
    """Runs functions one after the other beside the event loop. What it runs must not touch
    anything that belongs to the loop; `done` is called on the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, threaded: bool = True) -> None:
        """Not `threaded`: one job per call of the loop, on its thread (simulations)."""
        self._loop = loop
        self._pool: Executor = (
            ThreadPoolExecutor(1, thread_name_prefix="headwater-files")
            if threaded
            else SteppedExecutor(loop)
        )
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
                log.error(
                    "work on files beside the loop failed: %r; what it was for stays to be done",
                    error,
                )

        self._loop.run_in_executor(self._pool, work).add_done_callback(finish)

    def close(self) -> None:
        """Finish what is queued and end the thread (blocks)."""
        self._closed = True
        self._pool.shutdown(wait=True)
