"""Writes a stream anew with messages that were lost and have been found elsewhere.

An offline repair: the stream is copied to a new incarnation, the messages at their old sequences
in their places, and takes the old one's place in one durable step. A crash before that step leaves
the old stream, one after it the new one. It takes the stream's size on the disk once more.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from headwater.edge.storage.format.errors import Damaged
from headwater.edge.storage.node.node_store import NodeStore
from headwater.edge.storage.recovery.stream_recovery import RecoveredStream
from headwater.edge.storage.segments.file_store import FileStore
from headwater.edge.storage.segments.loss import set_size

# Bytes that are appended between two waits for the disk.
BATCH_BYTES = 4 << 20


@dataclass
class FetchedMessage:
    """A message from elsewhere; `timestamp` in ns."""

    subject: bytes
    headers: bytes
    payload: bytes
    timestamp: int


Fetch = Callable[[int], Awaitable[FetchedMessage | None]]
Progress = Callable[[int, int], None]


class Rebuild:
    """One stream of an open store on which nothing else works. `put_back` and `refused` list
    sequences; those refused have a time that does not fit between their neighbours'."""

    def __init__(
        self, storage: NodeStore, stream: RecoveredStream, fetch: Fetch, progress: Progress
    ) -> None:
        self.storage = storage
        self.stream = stream
        self.old = stream.store
        self.fetch = fetch
        self.progress = progress
        self.put_back: list[int] = []
        self.refused: list[int] = []
        self._room = BATCH_BYTES
        self._found: dict[int, FetchedMessage] = {}

    async def run(self) -> FileStore:
        """Returns the store that took the place, or the old one when nothing was found. Raises
        StoreError, OSError; then the old one is as it was."""
        old, storage = self.old, self.storage
        await self._collect()
        if not self._found:
            return old
        first = min(old.first_seq, *self._found)
        storage.making = True
        try:
            made = storage.create_stream(
                self.stream.account, self.stream.name, self.stream.meta, first_seq=first
            )
        finally:
            storage.making = False
        assert isinstance(made, FileStore)
        try:
            await self._copy(made)
            self._copy_states(made)
            await storage.log.wait_durable(storage.log.hand_over())
            storage.finish_stream(made, old)
        except BaseException:
            if not made.closed and not old.closed:
                storage.delete_stream(made)
            raise
        await storage.log.wait_durable(storage.log.hand_over())
        return made

    async def _collect(self) -> None:
        """Ask for what is lost, and keep what fits."""
        everything = self.old.filter(())
        wanted = sorted(self.old.lost)
        before = 0
        for done, sequence in enumerate(wanted):
            self.progress(done, len(wanted))
            found = await self.fetch(sequence)
            if found is None:
                continue
            following = self._time_of(self.old.next_matching(everything, sequence + 1))
            before = max(before, self._time_before(sequence))
            if found.timestamp < before or (following and found.timestamp > following):
                self.refused.append(sequence)
                continue
            before = found.timestamp
            self._found[sequence] = found
            self.put_back.append(sequence)
        self.progress(len(wanted), len(wanted))

    def _time_before(self, sequence: int) -> int:
        """Timestamp of the nearest message in front that can be read, within a few."""
        for at in range(sequence - 1, max(sequence - 1000, self.old.first_seq) - 1, -1):
            if self.old.subject_at(at) is not None:
                return self._time_of(at)
        return 0

    def _time_of(self, sequence: int) -> int:
        try:
            message = self.old.get(sequence) if sequence else None
        except Damaged:
            return 0
        return 0 if message is None else int(message.timestamp)

    async def _copy(self, made: FileStore) -> None:
        old = self.old
        everything = old.filter(())
        at = old.next_matching(everything, 0)
        for sequence in [*self.put_back, old.last_seq + 1]:
            while at and at < sequence:
                await self._copy_one(made, at)
                at = old.next_matching(everything, at + 1)
            found = self._found.get(sequence)
            if found is not None:
                await self._append(made, sequence, found)
        made.skip(old.last_seq)
        for sequence, reason in old.lost.items():
            if sequence not in self._found:
                made.add_lost(sequence, str(reason))
                set_size(made, sequence, getattr(reason, "bytes", 0))
        made.log_lost()

    async def _copy_one(self, made: FileStore, sequence: int) -> None:
        """Copy a message; one that turns out to be damaged now is in `old.lost` afterwards."""
        try:
            message = self.old.get(sequence)
        except Damaged:
            return
        if message is not None:
            found = FetchedMessage(
                message.subject, message.headers, message.payload, message.timestamp
            )
            await self._append(made, sequence, found)

    async def _append(self, made: FileStore, sequence: int, found: FetchedMessage) -> None:
        made.add_message(found.subject, found.payload, found.headers, found.timestamp, sequence)
        self._room -= len(found.payload) + len(found.headers) + 128
        if self._room <= 0:
            self._room = BATCH_BYTES
            await self.storage.keep_up()

    def _copy_states(self, made: FileStore) -> None:
        """Consumers and whatever else is kept of the stream."""
        log = self.storage.log
        owner = made.incarnation.encode()
        for key, (value, deltas) in log.states(self.old.incarnation.encode()).items():
            if value is not None:
                log.put_state(owner, key, value)
            for delta in deltas:
                log.add_delta(owner, key, delta)
