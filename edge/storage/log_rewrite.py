"""A new beginning of the commit log: what was not synced is written again to a fresh segment."""

import errno
import logging

import cython
from cython.cimports.headwater.edge.storage.commit_log import CommitLog
from cython.cimports.headwater.edge.storage.log_segment import LogSegment
from cython.cimports.headwater.edge.storage.logged_store import LoggedStore
from cython.cimports.headwater.edge.storage.record import (
    FILE_HEADER_BYTES,
    HEADER_BYTES,
    KIND_FOOTER,
    KIND_MESSAGE,
    KIND_RETIRED,
    KIND_SKIP,
    RecordHeader,
    record_size,
)
from cython.cimports.libc.string import memcpy

from headwater.edge.storage.errors import NoLogFile, StoreError, StoreFailed, StoreFull
from headwater.edge.storage.log_files import Slot

# Seconds until the first new attempt after a failure.
RETRY_FIRST = 0.5
# What a first file must have room for: records in memory, their second copies, footers.
ROOM_MIN = 12 << 10
ROOM_FACTOR = 2
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

logger = logging.getLogger("headwater.storage")


def begin_first(log: CommitLog, number: int, previous: int, end: int) -> None:
    """Begin the first segment of this start. Where there is no room for its file the log is held in
    memory, and what comes in is not acknowledged, until there is. Raises OSError."""
    full: StoreError | None = None
    try:
        slot = log.files.take_first()
    except OSError as error:
        if error.errno not in FULL:
            raise
        slot = log.files.stand_in()
        full = NoLogFile(f"no room in {log.directory} for a file of the log: {error.strerror}")
    log.begin_segment(slot, number, previous, end, log.chain)
    if full is None:
        log.active.write_header()
        return
    logger.error("%s: reads go on, nothing is stored until there is room", full)
    log.fail(full)
    log.kernel.loop.call_later(log.retry_delay, begin_again, log)


def begin_again(log: CommitLog) -> None:
    """After a failure: write everything that is not durable to a fresh file and sync that."""
    if log.closed or not isinstance(log.failure, StoreFailed):
        return
    fresh = isinstance(log.failure, NoLogFile)
    try:
        if fresh:
            slot = log.files.take(ROOM_MIN + ROOM_FACTOR * log.active.end, True)
        else:
            slot = log.files.create(log.segment_bytes)
    except OSError as error:
        if not fresh:
            logger.error("still no file to go on with: %s", error)
        log.kernel.loop.call_later(log.retry_delay, begin_again, log)
        return
    log.thread.clear_error()
    log.failure = None
    write_again(log, slot)
    if fresh:
        log.write_record(KIND_RETIRED, 0, log.live[0].number, b"", b"", b"")
    log.end_turn()
    log.when_durable(log.batch - 1, lambda: recovered(log))
    log.kernel.kick()


def look_for_room(log: CommitLog) -> bool:
    """Whether a device that was full has room again; then publishes are accepted. Worth asking when
    something was given back."""
    if log.closed or not isinstance(log.failure, StoreFull) or isinstance(log.failure, NoLogFile):
        return log.failure is None
    if log.blocked:
        return False
    try:
        log.files.top_up()
    except OSError:
        return False
    logger.warning("there is room again: publishes are accepted")
    log.fail(None)
    return True


def recovered(log: CommitLog) -> None:
    """Everything that was pending is durable in the fresh file."""
    logger.warning("the commit log is written again: publishes are accepted")
    log.retry_delay = RETRY_FIRST
    log.fail(None)
    try:
        log.files.top_up()
    except OSError as error:
        log.no_room(error)
    if log.on_retire is not None:
        log.on_retire()


def write_again(log: CommitLog, slot: Slot) -> None:
    """Copy the records after the durable point to a segment in `slot`: those that wait for their
    acknowledgement, and those that were acknowledged when they were written."""
    segment: LogSegment
    store: LoggedStore
    at: cython.Py_ssize_t
    header: cython.pointer(RecordHeader)
    old = [item for item in log.live if item.number >= log.durable_segment]
    number: cython.uint = log.active.number + 1
    touched = {row[0] for batch in log.pending for row in batch[4]} | set(log.touched)
    log.pending.clear()
    log.unwritten.clear()
    log.touched = []
    log.runs.count = 0
    log.batch_records = 0
    log.batch += 1
    log.written = log.flushed = log.settled
    log.batch_delay_ns = 0
    log.chain = log.durable_chain
    log.begin_segment(slot, number, log.durable_segment, log.durable_end, log.durable_chain)
    for item in old:
        segment = item
        at = log.durable_end if segment.number == log.durable_segment else FILE_HEADER_BYTES
        while at < segment.end:
            header = cython.cast(cython.pointer(RecordHeader), segment.image + at)
            at += record_size(header.length)
            if header.kind != KIND_FOOTER:
                copy_again(log, cython.cast(cython.p_uchar, header))
    for item in old:
        segment = item
        if segment.number == log.durable_segment:
            segment.end = log.durable_end
            segment.suspect = True
            segment.slot.blank = False
        else:
            log.live.remove(segment)
            log.files.discard(segment.slot)
    for item in touched:
        store = item
        log.touch(store)
        if store.last_seq and store.at(store.last_seq) == cython.NULL:
            # Removed meanwhile, so it was not copied, and its sequence is used up all the same.
            log.write_own(store, KIND_SKIP, store.last_seq, b"")


@cython.cfunc
@cython.exceptval(-1, check=False)
def copy_again(log: CommitLog, old: cython.p_uchar) -> cython.int:
    """Write one record again."""
    source: cython.pointer(RecordHeader) = cython.cast(cython.pointer(RecordHeader), old)
    store: LoggedStore
    at: cython.p_uchar
    length: cython.Py_ssize_t = source.length
    if source.kind == KIND_MESSAGE:
        store = log.stores.get(source.stream)
        if store is None:
            return 0
        at = log.reserve(length, False)
        if not store.moved(
            source.sequence,
            cython.cast(cython.ulonglong, old),
            cython.cast(cython.ulonglong, at),
        ):
            return 0
        memcpy(at, old, HEADER_BYTES + length)
        log.runs.add(store, log.batch, source.sequence)
        log.touch(store)
        return log.finish(at, length)
    at = log.reserve(length, False)
    memcpy(at, old, HEADER_BYTES + length)
    return log.finish(at, length)
