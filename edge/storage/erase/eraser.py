"""Erases messages: overwrites their bytes wherever the store has them.

First an ERASE record names the locations durably, in the batch that takes the message out. Then the
record is overwritten in the log or its segment, index files that named its subject are replaced,
and, for a message that had left the log, everything in log slots that does not count any more is
wiped. An ERASE_DONE record ends it; a start without one does it again. The answer to the request
waits for all of that.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headwater.edge.storage.device.background import Background
from headwater.edge.storage.erase.erase_jobs import (
    EraseJob,
    Location,
    decode_locations,
    encode_locations,
    fits,
    in_bundle,
    record_for,
    wipe,
)
from headwater.edge.storage.erase.erase_log import ZEROS_MAX, submit_zeros, wipe_images
from headwater.edge.storage.erase.erase_rows import IN_BUNDLE, IN_SEGMENT, names_subject, rows_of
from headwater.edge.storage.format.errors import StoreError
from headwater.edge.storage.format.record_layout import ERASE, ERASE_DONE
from headwater.edge.storage.log.log_files import DATA_START, LogSlot
from headwater.edge.storage.segments.index_bytes import index_bytes
from headwater.edge.storage.segments.index_rows import index_of
from headwater.edge.storage.segments.removals import when_removals_last

QUARANTINE = "quarantine"
RETRY = 1.0
# How often to look whether checkpointing has come to an end.
LOOK_SECONDS = 0.02
# Segments that one round overwrites in, since each may cost a new index file.
SEGMENTS_MAX = 8
# Messages that one round overwrites.
ROUND_MAX = 1024

log = logging.getLogger("headwater.storage")


@dataclass
class Intent:
    """One message to erase. `store` is None for what an earlier start left."""

    number: int
    lsn: int
    stream: int
    store: Any
    locations: list[Location]
    reindex: bool


def is_being_copied(intent: Intent) -> bool:
    """Whether the message may be on its way to a segment just now."""
    store = intent.store
    return store is not None and (
        bool(store.leaving) or (len(intent.locations) > 1 and bool(store.copying))
    )


class Eraser:
    """Works in rounds: several messages at a time, the files in the background."""

    def __init__(self, commit_log: Any, background: Background, checkpointer: Any) -> None:
        self.log = commit_log
        self.erased = 0
        """Messages erased since the start."""
        self.stopped = False
        self._background = background
        self._checkpointer = checkpointer
        self._pending: dict[int, Intent] = {}
        self._number = 0
        self._busy = False
        self._again = False
        self._ready: list[Intent] = []
        self._held: list[LogSlot] = []
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._checkpoints_before = 0
        self._has_left = False
        """Whether a message of this round has left the log since it was deleted."""
        self._wiped_to = (0, 0)
        self._wiping: LogSlot | None = None

    # Intents.

    def add(self, store: Any, sequence: int) -> None:
        """A message is about to be taken out and shall be erased. Raises StoreError."""
        reindex = names_subject(store, sequence)
        locations = [Location(*row) for row in rows_of(store, sequence)]
        if not locations:
            return
        number = self._number + 1
        body = encode_locations(locations)
        lsn = self.log.write_record(ERASE, store.stream_id, number, b"", b"", body)
        self._number = number
        self._pending[number] = Intent(number, lsn, store.stream_id, store, locations, reindex)
        self.log.when_durable(lsn, self._wake)

    def resume(self, left: list[tuple[int, int, bytes]], done: int) -> None:
        """Go on with what a crash interrupted: (number, stream id, body) of each. Recovery has
        overwritten the records already."""
        self._number = max([done, *(number for number, _, _ in left)])
        for number, stream, body in left:
            self._pending[number] = Intent(number, 0, stream, None, decode_locations(body), False)
        if left:
            self._wake()

    def wipe_rest(self) -> None:
        """Wipe what log slots still hold of what does not count any more. Raises StoreError."""
        number = self._number + 1
        lsn = self.log.write_record(ERASE, 0, number, b"", b"", b"")
        self._number = number
        self._pending[number] = Intent(number, lsn, 0, None, [], False)
        self.log.when_durable(lsn, self._wake)

    def put_again(self) -> None:
        """Write what is not done at the log's tail: the segment that has it is to be
        checkpointed."""
        for intent in self._pending.values():
            body = encode_locations(intent.locations)
            self.log.write_record(ERASE, intent.stream, intent.number, b"", b"", body)

    async def wait(self) -> None:
        """Return once everything asked for so far is erased. Raises StoreError when that fails for
        now; it is tried again."""
        if not self._pending:
            return
        future: asyncio.Future[None] = self.log.kernel.loop.create_future()
        self._waiters.append((max(self._pending), future))
        await future

    def close_files(self) -> None:
        """After the background has ended: nothing of it stays open."""
        if self._wiping is not None:
            self.log.files.free_slot(self._wiping)
            self._wiping = None

    # Rounds.

    def _wake(self) -> None:
        if not self._busy and not self.stopped:
            self._busy = True
            self.log.kernel.loop.call_soon(self._start_round)

    def _later(self, seconds: float, step: Callable[[], None]) -> None:
        if not self.stopped:
            self.log.kernel.loop.call_later(seconds, step)

    def _start_round(self) -> None:
        """Take what can be done now, and have the background overwrite it."""
        self._busy = False
        if self.stopped or not self._pending:
            return
        self._ready = self._choose()
        if not self._ready:
            first = next(iter(self._pending.values()))
            if first.lsn <= self.log.durable_lsn:
                self._busy = True
                self._later(LOOK_SECONDS, self._start_round)
            return
        self._busy = True
        self._checkpoints_before = self._checkpointer.done
        when_removals_last(self.log, self._begin)

    def _begin(self) -> None:
        """What was removed before is gone for good. The job is put together when nothing comes
        between it and its doing: a segment that grows meanwhile would be cut."""
        if self.stopped:
            return
        if any(is_being_copied(intent) for intent in self._ready):
            self._later(LOOK_SECONDS, self._start_round)
            return
        job = self._make_job(self._ready)
        job.again = self._again
        self._background.submit(job.run, self._overwritten)

    def _choose(self) -> list[Intent]:
        ready: list[Intent] = []
        segments = set()
        for intent in self._pending.values():
            early = intent.lsn > self.log.durable_lsn or is_being_copied(intent)
            if early or len(ready) >= ROUND_MAX:
                break
            segments |= {
                (intent.stream, at.number) for at in intent.locations if at.where == IN_SEGMENT
            }
            if len(segments) > SEGMENTS_MAX and ready:
                break
            ready.append(intent)
        return ready

    def _make_job(self, ready: list[Intent]) -> EraseJob:
        job = EraseJob(self.log.seed, [self.log.active.slot.path])
        self._has_left = False
        gone = {(at.stream, location.sequence) for at in ready for location in at.locations}
        job.kept = (self.log.directory.parent / QUARANTINE, gone)
        stores = {}
        indexes: set[tuple[int, int]] = set()
        for intent in ready:
            if intent.store is None or intent.store.closed:
                continue
            stores[intent.stream] = intent.store
            for location in intent.locations:
                if location.where != IN_SEGMENT:
                    self._overwrite_image(job, intent.stream, location)
                else:
                    job.segments.append((intent.store.directory, intent.stream, location))
                    if intent.reindex:
                        indexes.add((intent.stream, location.number))
        for stream, number in indexes:
            self._replace_index(job, stores[stream], number)
        for store in stores.values():
            if store.segments and not store.copying:
                job.tails.append((store.segments[-1].path, store.segments[-1].end))
        return job

    def _overwrite_image(self, job: EraseJob, stream: int, location: Location) -> None:
        """Overwrite a record in the log's memory, and list what is to be written to its file."""
        live = any(segment.number == location.number for segment in self.log.live)
        # Nothing is known of a slot that was given back meanwhile but that it may hold the message.
        self._has_left = self._has_left or not live
        for segment in self.log.live:
            if segment.number != location.number or location.offset + location.size > segment.end:
                continue
            parts = self._in_place_of(segment, stream, location)
            for offset, new in parts:
                segment.fill(new, offset)
                self.log.files.pin(segment.slot)
                self._held.append(segment.slot)
                job.synced_first.append(segment.slot.path)
                job.log_parts.append((segment.slot.path, offset, new))

    def _in_place_of(
        self, segment: Any, stream: int, location: Location
    ) -> list[tuple[int, bytes]]:
        """What is to stand where; nothing when it is not the message."""
        if location.where == IN_BUNDLE:
            found = in_bundle(segment, stream, location, self.log.seed)
            if found is None:
                return []
            segment.wipe_record(location.generation, location.sequence)
            return found.parts
        old = segment.bytes_at(location.offset, location.size)
        if not fits(old, 0, stream, location, self.log.seed, False):
            return []
        return [(location.offset, record_for(stream, location, self.log.seed))]

    def _replace_index(self, job: EraseJob, store: Any, number: int) -> None:
        for segment in store.segments:
            if segment.number != number:
                continue
            index = None
            if segment.indexed and not store.copying:
                index = index_bytes(store, index_of(store, segment, self.log.live[0].number))
            segment.indexed = index is not None
            segment.index_number += 1
            job.indexes.append((segment.path, index))

    def _overwritten(self, result: object, error: BaseException | None) -> None:
        held, self._held = self._held, []
        for slot in held:
            self.log.files.unpin(slot)
        if self.stopped:
            return
        if error is not None:
            self._again = True
            self._failed(error)
            return
        self._again = False
        if self._needs_wipe():
            wipe_images(self.log)
            self._wipe_next()
        else:
            self._finish()

    def _failed(self, error: BaseException) -> None:
        """Tell who waits, and try again later."""
        log.error(
            "%d erased messages cannot be overwritten yet (%s): nobody can read them, and it is "
            "tried again",
            len(self._ready),
            error,
        )
        waiters, self._waiters = self._waiters, []
        for _, future in waiters:
            if not future.done():
                future.set_exception(
                    StoreError(f"the message is deleted, but not yet overwritten: {error}")
                )
        self._later(RETRY, self._start_round)

    def _finish(self) -> None:
        """Everything of this round is overwritten."""
        done = self._ready[-1].number
        try:
            self.log.write_record(ERASE_DONE, 0, done, b"", b"", b"")
        except StoreError as error:
            log.warning(
                "that messages were overwritten cannot be written to the log yet (%s): it is tried "
                "again",
                error,
            )
            self._later(RETRY, self._finish)
            return
        for intent in self._ready:
            del self._pending[intent.number]
        self.erased += sum(bool(intent.locations) for intent in self._ready)
        self._ready = []
        waiting = [row for row in self._waiters if row[0] > done]
        for number, future in self._waiters:
            if number <= done and not future.done():
                future.set_result(None)
        self._waiters = waiting
        self._start_round()

    # What earlier uses left in log slots.

    def _needs_wipe(self) -> bool:
        """Whether copies may be left in log slots: of messages that have left the log, of those
        that were written again after a failed sync, and of what an earlier start left."""
        return self._has_left or bool(self.log.sync_failures) or any(
            intent.store is None
            or any(location.where == IN_SEGMENT for location in intent.locations)
            for intent in self._ready
        )

    def _wipe_next(self) -> None:
        """Wipe the next part of a slot that is not blank, or finish when all are."""
        if self.stopped:
            return
        done = self._checkpointer.done
        if self._checkpointer.step != "idle" and done == self._checkpoints_before:
            self._later(LOOK_SECONDS, self._wipe_next)
            return
        spare = self.log.files.pop_unwiped()
        if spare is not None:
            self._wipe_slot(spare, DATA_START, True)
            return
        for segment in self.log.live[:-1]:
            if not segment.slot.blank:
                self._wipe_slot(segment.slot, max(segment.end, DATA_START), False)
                return
        if not self.log.active.slot.blank:
            self._wipe_active()
        else:
            self._finish()

    def _wipe_slot(self, slot: LogSlot, start: int, spare: bool) -> None:
        if spare:
            self._wiping = slot
        self.log.files.pin(slot)

        def done(result: object, error: BaseException | None) -> None:
            slot.blank = error is None
            self.log.files.unpin(slot)
            if self.stopped:
                return
            if spare:
                self._wiping = None
                self.log.files.free_slot(slot, slot.blank)
            if error is not None:
                self._failed(error)
            else:
                self._wipe_next()

        path, end = slot.path, slot.capacity
        self._background.submit(lambda: wipe(path, start, end), done)

    def _wipe_active(self) -> None:
        """The active slot is written by the commit thread alone, so it also writes the zeros."""
        active = self.log.active
        start = active.end
        if self._wiped_to[0] == active.number:
            start = max(start, self._wiped_to[1])
        length = min(active.slot.capacity - start, ZEROS_MAX)
        if length <= 0:
            active.slot.blank = True
            self._wipe_next()
            return
        try:
            if not submit_zeros(self.log, length, start):
                self._later(LOOK_SECONDS, self._wipe_next)
                return
            self._wiped_to = (active.number, start + length)
            lsn = self.log.write_record(ERASE_DONE, 0, self._ready[0].number - 1, b"", b"", b"")
        except StoreError as error:
            self._failed(error)
            return
        self.log.when_durable(lsn, self._wipe_next)
