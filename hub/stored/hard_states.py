"""The hard states of a node's groups as they reach the disk: who wrote what, and since when it
holds.

Writes are numbered. One sync in the background makes all of them durable that were there when it
began. Where a sync fails another one says nothing, so the file is made again from what can be read.
"""

import asyncio
import errno
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from headwater.edge.storage.node.node_store import NodeStore
from headwater.hub.raft.model.hard_state import HardState
from headwater.hub.stored.directory_disk import DirectoryDisk
from headwater.hub.stored.hard_state_file import NAME, HardStateFile

RETRY_SECONDS = 0.5
"""After a refusal of the file."""

log = logging.getLogger("headwater.raft")


class HardStates:
    """Made when the node's store is open, which gives it the background and the loop."""

    def __init__(self, disk: DirectoryDisk, node: NodeStore) -> None:
        self.file = HardStateFile(disk)
        self.written = 0
        """The number of the last write."""
        self.durable = 0
        """The number of the last one that is on the disk."""
        self.on_durable: Callable[[], None] = lambda: None
        """Called when more is durable."""
        self._disk = disk
        self._node = node
        self._busy = False
        self._bad = False
        self._renewal: asyncio.TimerHandle | None = None
        self._waits: deque[tuple[int, Callable[[BaseException | None], None]]] = deque()
        self._last = {group: replace(hard, commit=0) for group, hard in self.file.found.items()}

    @property
    def synced(self) -> bool:
        """Whether all is durable."""
        return self.durable == self.written

    def write(self, group: int, hard: HardState) -> None:
        """A group has another state. Raises OSError. A commit that moved is a hint and goes with
        entries: it is not worth a write here."""
        what = replace(hard, commit=0)
        if self._last.get(group) != what:
            self.written += 1
            self.file.write(group, hard)
            self._last[group] = what

    def erase(self, group: int) -> None:
        """A group is gone. Raises OSError; it is to be called again then."""
        self.file.erase(group)
        self._last.pop(group, None)
        self.written += 1
        self.sync()

    def write_again(self) -> None:
        """After a sync that failed, what was read may be in memory only, and no later sync would
        write it: write it again."""
        if NAME in self._disk.names():
            self._disk.write(NAME, 0, self._disk.read(NAME))

    def sync(self) -> None:
        """Have the background make durable what is written."""
        if self._busy or self._bad or self.synced:
            return
        self._busy = True
        written = self.written

        def done(result: object, error: BaseException | None) -> None:
            self._busy = False
            if error is not None:
                self._fail(error)
                return
            self._reach(written)
            self.sync()

        self._node.background.submit(self.file.sync, done)

    def sync_now(self) -> None:
        """Wait until all is durable, at a start or a stop. Raises OSError."""
        if self._bad:
            raise OSError(errno.EIO, "hard state is not durable")
        self.file.sync()
        self.durable = self.written

    def when_durable(self, call: Callable[[BaseException | None], None]) -> None:
        """`call(None)` when all that was written until now is durable; before that it gets each
        error that keeps it from being so."""
        self._waits.append((self.written, call))
        self.sync()
        self._serve()

    def _reach(self, number: int) -> None:
        self.durable = number
        self.on_durable()
        self._serve()

    def _serve(self) -> None:
        while self._waits and self._waits[0][0] <= self.durable:
            self._waits.popleft()[1](None)

    def _fail(self, error: BaseException) -> None:
        log.error(
            "%s cannot be written (%s): this node promises nothing until it can; look at its disk",
            NAME,
            error,
        )
        self._bad = True
        for _, call in self._waits:
            call(error)
        self._renewal = self._node.kernel.loop.call_later(RETRY_SECONDS, self._renew)

    def close(self) -> None:
        """Try nothing again: the next start has the same folder."""
        if self._renewal is not None:
            self._renewal.cancel()

    def _renew(self) -> None:
        self._renewal = None
        try:
            self._disk.make_again(NAME)
        except OSError as error:
            self._fail(error)
            return
        self._bad = False
        self._reach(self.written)
