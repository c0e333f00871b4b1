"""How the commit log goes on when it cannot be written.

After a failed write or sync nothing is trusted that was not synced before: it is written again to a
fresh file, and only what is synced there is durable. On a full device appends are refused until
there is room, which is looked for again and again.
"""

import logging

import cython
from cython.cimports.headwater.edge.storage.format.record import (
    FILE_HEADER_BYTES,
    KIND_ADOPT,
    KIND_BUNDLE,
    KIND_CHECKPOINT,
    KIND_FOOTER,
    KIND_SKIP,
    RecordHeader,
    record_size,
)
from cython.cimports.headwater.edge.storage.log.commit_log import CommitLog
from cython.cimports.headwater.edge.storage.log.log_segment import LogSegment
from cython.cimports.headwater.edge.storage.log.logged_store import LoggedStore

from headwater.edge.storage.format.errors import NoLogFile, StoreError, StoreFailed, StoreFull
from headwater.edge.storage.log.commit_log import FULL
from headwater.edge.storage.log.log_files import LogSlot

# Seconds until the first new attempt after a failure, and between later ones at most.
RETRY_FIRST = 0.5
RETRY_MAX = 30.0
# Seconds between two lines that say that there is still no file: a device may stay read-only.
SAY_AGAIN = 60.0
# What a first file must have room for: records in memory, their second copies, footers.
ROOM_MIN = 12 << 10
ROOM_FACTOR = 2

logger = logging.getLogger("headwater.storage")


@cython.cclass
class LogRestart:
    """See the module. Made with the log; it listens to the log's failures."""

    def __init__(self, log: CommitLog):
        self.log = log
        self.retry_delay = RETRY_FIRST
        self.on_dead_weight = None
        self.say_at = 0.0
        log.on_full = self.wait_for_room
        log.on_broken = self.begin_later

    def first_slot(self) -> tuple[LogSlot, object]:
        """The slot for the first segment of this start, and None. Where there is no room for its
        file: one in memory, and the error that stops appends until there is. Raises OSError."""
        try:
            return self.log.files.allocate_first(), None
        except OSError as error:
            if error.errno not in FULL:
                raise
            return self.log.files.stand_in(), NoLogFile(
                f"no room in {self.log.directory} for a file of the log: {error.strerror}"
            )

    def wait_for_file(self, full: object) -> None:
        """The log has begun in memory; go on in a file as soon as there is room for one."""
        logger.error(
            "%s: reads go on, nothing is stored until there is room; free some on its device", full
        )
        self.log.fail(full)
        self.log.kernel.loop.call_later(self.retry_delay, self.begin_again)

    def begin_later(self, reason: str) -> None:
        """A write or sync failed: make a new beginning soon."""
        logger.error(
            "the commit log in %s cannot be written (%s): nothing is acknowledged until it goes "
            "on in "
            "a fresh file; check the device",
            self.log.directory,
            reason,
        )
        self.log.kernel.loop.call_later(self.retry_delay, self.begin_again)
        self.retry_delay = min(self.retry_delay * 2, RETRY_MAX)

    def begin_again(self) -> None:
        """After a failure: write everything that is not durable to a fresh file and sync that."""
        log: CommitLog = self.log
        if log.closed or not isinstance(log.failure, StoreFailed):
            return
        fresh = isinstance(log.failure, NoLogFile)
        try:
            if fresh:
                slot = log.files.allocate(ROOM_MIN + ROOM_FACTOR * log.active.end, True)
            else:
                slot = log.files.create(log.segment_bytes)
        except OSError as error:
            now = log.kernel.loop.time()
            if not fresh and now >= self.say_at:
                self.say_at = now + SAY_AGAIN
                logger.error(
                    "the commit log still has no file in %s to go on with: %s; nothing is "
                    "acknowledged, and it is tried again and again",
                    log.directory,
                    error,
                )
            log.kernel.loop.call_later(self.retry_delay, self.begin_again)
            return
        self.write_again(slot)
        if fresh:
            log.write_record(KIND_CHECKPOINT, 0, log.live[0].number, b"", b"", b"")
        log.when_durable(log.hand_over(), self.recovered)
        log.kernel.kick()

    def write_again(self, slot: LogSlot) -> None:
        """Copy the records after the durable point to a segment in `slot`: those that wait for
        their acknowledgement, and those that were acknowledged when they were written."""
        log: CommitLog = self.log
        segment: LogSegment
        store: LoggedStore
        header: cython.pointer(RecordHeader)
        at: cython.Py_ssize_t
        old, waiting = log.rewind(slot)
        for item in old:
            segment = item
            at = FILE_HEADER_BYTES
            if segment.number == log.progress.durable_segment:
                at = log.progress.durable_end
            while at < segment.end:
                header = cython.cast(cython.pointer(RecordHeader), segment.image + at)
                at += record_size(header.length)
                if header.kind == KIND_ADOPT or header.kind == KIND_BUNDLE:
                    self.write_adopted_again(segment, header.offset)
                elif header.kind != KIND_FOOTER:
                    log.write_again(cython.cast(cython.p_uchar, header))
        log.forget(old)
        for item in waiting:
            store = item
            log.touch(store)
            if store.last_seq and store.at(store.last_seq) == cython.NULL:
                # Removed meanwhile, so it was not copied, and its sequence is used up all the same.
                log.write_own(store, KIND_SKIP, store.last_seq, b"")

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def write_adopted_again(self, segment: LogSegment, offset: cython.Py_ssize_t) -> cython.int:
        """Messages of an entry or a bundle become records of their own: it stands elsewhere from
        now on."""
        at: cython.ulonglong
        end: cython.ulonglong
        header: cython.pointer(RecordHeader)
        at, end = segment.adopted.ranges[offset]
        while at < end:
            header = cython.cast(cython.pointer(RecordHeader), at)
            self.log.write_again(cython.cast(cython.p_uchar, header))
            at += record_size(header.length)
        return 0

    def recovered(self) -> None:
        """Everything that was pending is durable in the fresh file."""
        log: CommitLog = self.log
        logger.warning(
            "the commit log in %s is written again: publishes are accepted", log.directory
        )
        self.retry_delay = RETRY_FIRST
        self.say_at = 0.0
        log.fail(None)
        try:
            log.files.top_up()
        except OSError as error:
            log.no_room(error)
        if log.on_checkpoint is not None:
            log.on_checkpoint()

    def wait_for_room(self, failure: StoreError) -> None:
        """The device is full: look again by a timer."""
        logger.error(
            "%s: reads go on, publishes are refused until there is room; free some on its device",
            failure,
        )
        if self.room_timer is not None:
            self.room_timer.cancel()
        self.room_timer = self.log.kernel.loop.call_later(self.retry_delay, self.retry_room)

    def retry_room(self) -> None:
        """See whether there is room again."""
        full = isinstance(self.log.failure, StoreFull)
        if not self.log.closed and full and not self.look_for_room():
            if self.on_dead_weight is not None:
                self.on_dead_weight()
            self.room_timer = self.log.kernel.loop.call_later(self.retry_delay, self.retry_room)

    def look_for_room(self) -> bool:
        """Whether a device that was full has room again; then publishes are accepted. Worth asking
        when something was given back."""
        log: CommitLog = self.log
        full = isinstance(log.failure, StoreFull) and not isinstance(log.failure, NoLogFile)
        if log.closed or not full:
            return log.failure is None
        if log.blocked:
            return False
        try:
            log.files.top_up()
        except OSError:
            return False
        logger.warning("there is room again in %s: publishes are accepted", log.directory)
        log.fail(None)
        return True
