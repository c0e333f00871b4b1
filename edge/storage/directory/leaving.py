"""Streams that are removed for good and whose files are still there."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from headwater.edge.ports.files import rename, sync_directory
from headwater.edge.storage.device.background import Background
from headwater.edge.storage.directory.directory import StoreDirectory, discard_tree
from headwater.edge.storage.format.record import STREAM_DELETE

log = logging.getLogger("headwater.storage")

RETRY_S = 1.0
# How long an answer waits for room that it will have made.
WAIT_S = 3.0


class Leaving:
    """Moves their directories to the trash, again until that works. A log segment that says
    that they are gone may be checkpointed only when others say so too (`put_again`), or they would
    be back."""

    def __init__(self, commit_log: Any, directory: StoreDirectory, background: Background) -> None:
        self._log = commit_log
        self._directory = directory
        self._background = background
        self.on_room: Callable[[], object] = lambda: None
        """Called when files are gone, so that there may be room again."""
        self._streams: dict[str, int] = {}
        self._waiters: dict[str, asyncio.Future[None]] = {}

    def write(self, stream_id: int, incarnation: str) -> int:
        """Write the tombstone, twice; returns its lsn. Raises StoreError."""
        return int(self._log.write_twice(STREAM_DELETE, stream_id, incarnation.encode()))

    def put_again(self) -> None:
        """The segment that has tombstones is to be checkpointed: write them at the log's tail."""
        for incarnation, stream_id in self._streams.items():
            self.write(stream_id, incarnation)

    def remove(self, stream_id: int, incarnation: str) -> None:
        """The tombstone is durable: remove the files."""
        self._streams[incarnation] = stream_id
        source = self._directory.streams / incarnation
        target = self._directory.trash / incarnation

        def move() -> None:
            if source.exists():
                rename(source, target)
            sync_directory(self._directory.streams)

        def discarded(result: object, error: BaseException | None) -> None:
            self.given_back(result, error)
            waiter = self._waiters.pop(incarnation, None)
            if waiter is not None and not waiter.done():
                waiter.set_result(None)

        def moved(_: object, error: BaseException | None) -> None:
            if error is None:
                self._streams.pop(incarnation, None)
                self._background.submit(lambda: discard_tree(target), discarded)
                return
            log.warning("%s is deleted, and cannot be removed: %s; tried again", source, error)
            self._log.kernel.loop.call_later(RETRY_S, lambda: self.again(stream_id, incarnation))

        self._background.submit(move, moved)

    def given_back(self, result: object, error: BaseException | None) -> None:
        """Files are gone, as far as they can be for now: there may be room again."""
        if error is not None:
            log.warning("files without use cannot be removed: %s; the next start does that", error)
        self.on_room()

    def freed(self, durable: Awaitable[None], incarnation: str) -> Awaitable[None]:
        """Done when a stream's removal is `durable` and its files are gone too, but not much
        later when that takes long."""
        gone: asyncio.Future[None] = self._log.kernel.loop.create_future()
        self._waiters[incarnation] = gone

        async def wait() -> None:
            await durable
            with suppress(TimeoutError):
                async with asyncio.timeout(WAIT_S):
                    await gone

        return wait()

    def again(self, stream_id: int, incarnation: str) -> None:
        """Try once more, unless the store was closed meanwhile."""
        if not self._log.closed:
            self.remove(stream_id, incarnation)
