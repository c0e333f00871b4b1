"""Checkpoints log segments: what still lives in the oldest one moves to the segments of its
streams.

In steps, so that the event loop is never held for long: copy live records to per-stream builders (a
slice per turn), write and sync them in the background, point the index at them (a slice per
turn), put states of that segment again at the log's tail, and when that is durable, give the file
back. A failure leaves the log segment as it is and tries again later.
"""

import errno
import logging

import cython
from cython.cimports.headwater.edge.kernel.kernel import Task
from cython.cimports.headwater.edge.storage.format.record import (
    FILE_HEADER_BYTES,
    HEADER_BYTES,
    KIND_ADOPT,
    KIND_BUNDLE,
    KIND_CHECKPOINT,
    KIND_DELETE,
    KIND_HEAD,
    KIND_LOST,
    KIND_MESSAGE,
    KIND_SKIP,
    Adoption,
    RecordHeader,
    body_ok,
    find_record,
    header_ok,
    record_size,
)
from cython.cimports.headwater.edge.storage.log.commit_log import CommitLog
from cython.cimports.headwater.edge.storage.log.log_segment import LogSegment
from cython.cimports.headwater.edge.storage.segments.file_store import FileStore
from cython.cimports.headwater.edge.storage.segments.segment_builder import SegmentBuilder
from cython.cimports.headwater.edge.storage.segments.segment_copy import SegmentCopy
from cython.cimports.headwater.edge.storage.segments.stream_segment import StreamSegment

from headwater.edge.storage.device.background import Background
from headwater.edge.storage.format.errors import InvariantBroken, StoreError
from headwater.edge.storage.log.states import put_again
from headwater.edge.storage.segments.dead_space import press
from headwater.edge.storage.segments.file_store import HEAD
from headwater.edge.storage.segments.index_bytes import index_bytes
from headwater.edge.storage.segments.index_rows import index_of
from headwater.edge.storage.segments.removals import when_removals_last, write_index_later
from headwater.edge.storage.segments.segment_jobs import cut_segments, write_segments

# Bytes of log looked at, and messages pointed elsewhere, in one turn: about a millisecond.
COPY_SLICE = cython.declare(cython.Py_ssize_t, 256 << 10)
PUBLISH_SLICE = cython.declare(cython.Py_ssize_t, 4096)
RETRY = 1.0
# What fails on and on is said this often, in seconds.
SAY_AGAIN = 60.0
# Files that one log line names at most.
UNDO_NAMED = 4
# Log segments' worth of dead bytes that first and newest segments of all streams may hold.
DEAD_SEGMENTS = cython.declare(cython.Py_ssize_t, 4)

log = logging.getLogger("headwater.storage")


def write_jobs(jobs: list, source: LogSegment) -> None:
    """Write and sync every builder (in the background): a stream's in order, as a segment may
    only be there when the one before it is whole, and different streams' together. `source` is in
    whose memory their records are; it must live as long."""
    built = [copy.builders for copy in jobs]
    for turn in range(max(map(len, built), default=0)):
        together = [builders[turn] for builders in built if turn < len(builders)]
        write_segments([(one.segment.path, one.offset, one.save) for one in together])


@cython.cfunc
@cython.exceptval(check=False)
def is_of_stream(kind: cython.int) -> cython.bint:
    """Whether a record of the log says something that a stream's segments are to have."""
    return (
        kind == KIND_MESSAGE
        or kind == KIND_ADOPT
        or kind == KIND_BUNDLE
        or kind == KIND_DELETE
        or kind == KIND_LOST
        or kind == KIND_HEAD
        or kind == KIND_SKIP
    )


@cython.cfunc
@cython.exceptval(check=False)
def last_adopted(header: cython.pointer(RecordHeader)) -> cython.ulonglong:
    """The last sequence that an ADOPT or BUNDLE tells of; 0 when an ADOPT is damaged."""
    record: cython.p_const_uchar = cython.cast(cython.p_const_uchar, header)
    if header.kind == KIND_BUNDLE:
        return header.sequence + header.subject_len - 1
    if header.length != cython.sizeof(Adoption) or not body_ok(record):
        return 0
    return cython.cast(cython.pointer(Adoption), record + HEADER_BYTES).last


@cython.cclass
class Checkpointer(Task):
    """One segment at a time; `wake` when there may be one."""

    def __init__(self, commit_log: CommitLog, background: Background):
        self.log = commit_log
        self.background = background
        self.step = "idle"
        self.retry_delay = RETRY
        self.failures = 0
        self.say_at = {}
        self.undo = []

    def wake(self) -> None:
        """Begin with the oldest segment when there are more than shall be kept."""
        if self.step != "idle" or self.stopped:
            return  # a closed log has no segment to look at
        keep = self.log.keep + 1 + 2 * self.log.table.bytes // self.log.segment_bytes
        if self.before:
            keep = 1 if self.log.live[0].number < self.before else len(self.log.live)
        if len(self.log.live) <= keep:
            return
        press(self.log.stores, DEAD_SEGMENTS * self.log.segment_bytes)
        self.segment = self.log.live[0]
        self.at = FILE_HEADER_BYTES
        self.stores = []
        self.copies = []
        self.step = "copy"
        self.log.kernel.schedule_later(self)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def run(self) -> cython.int:
        """The next slice."""
        if self.stopped:
            return 0
        if self.step == "copy":
            try:
                self.copy_slice(COPY_SLICE)
                if self.at >= self.segment.end:
                    self.write_builders()
                else:
                    self.log.kernel.schedule_later(self)
            except InvariantBroken as error:
                self.refuse(error)
        elif self.step == "publish":
            self.publish_slice()
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def add_store(self, store: FileStore) -> cython.int:
        """Copy what follows of a stream, too."""
        copy: SegmentCopy = store.copy
        if copy is None:
            copy = SegmentCopy(store)
            self.stores.append(store)
            self.copies.append(copy)
        self.copy = copy
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def copy_slice(self, limit: cython.Py_ssize_t) -> cython.int:
        """Copy what lives in the next part of the segment."""
        header: cython.pointer(RecordHeader)
        record: cython.p_const_uchar
        store: FileStore = None
        added: FileStore = None
        store_id: cython.ulonglong = 0
        stop: cython.Py_ssize_t = min(self.at + limit, self.segment.end)
        kind: cython.int
        while self.at < stop:
            record = self.segment.image + self.at
            if not header_ok(
                record,
                self.segment.end - self.at,
                self.log.seed,
                self.segment.number,
                cython.cast(cython.uint, self.at),
            ):
                self.at = find_record(
                    self.segment.image,
                    self.at + 8,
                    self.segment.end,
                    self.log.seed,
                    self.segment.number,
                )
                continue
            header = cython.cast(cython.pointer(RecordHeader), record)
            self.at += record_size(header.length)
            kind = header.kind
            if not is_of_stream(kind):
                continue
            if store is None or store_id != header.stream:
                store_id = header.stream
                store = self.log.stores.get(store_id)
            if store is None or store.closed or self.segment.number < store.first_log_segment:
                continue
            if store is not added:
                added = store
                self.add_store(store)
            if kind == KIND_MESSAGE:
                self.copy.add_message(record, self.segment.number)
            elif kind == KIND_ADOPT or kind == KIND_BUNDLE:
                self.copy_adopted(header)
            elif not body_ok(record) or self.is_again(record):
                continue
            elif kind == KIND_SKIP:
                self.copy.advance(header.sequence, 0)
            elif kind == KIND_HEAD:
                body: bytes = cython.cast(cython.p_char, record)[
                    HEADER_BYTES : HEADER_BYTES + header.length
                ]
                last, last_ts = HEAD.unpack_from(body)
                self.copy.advance(last, last_ts)
            else:
                self.copy.add_removals(kind, record)
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def copy_adopted(self, header: cython.pointer(RecordHeader)) -> cython.int:
        """Copy messages that the segment holds in entry or bundle. A start may have found none:
        the stream's segments had them, or they are damaged and lost."""
        at: cython.ulonglong
        end: cython.ulonglong
        record: cython.p_const_uchar
        found: tuple = None
        if self.segment.adopted is not None:
            found = self.segment.adopted.ranges.get(header.offset)
        if found is not None:
            at, end = found
            while at < end:
                record = cython.cast(cython.p_const_uchar, at)
                self.copy.add_message(record, self.segment.number)
                at += record_size(cython.cast(cython.pointer(RecordHeader), record).length)
        return self.copy.advance(last_adopted(header), 0)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def is_again(self, record: cython.p_const_uchar) -> cython.bint:
        """Whether a record is the second copy of the one before it that was copied."""
        header: cython.pointer(RecordHeader) = cython.cast(cython.pointer(RecordHeader), record)
        end: cython.Py_ssize_t = header.offset + record_size(header.length)
        again: cython.bint = (
            self.copied_end == header.offset
            and self.copied_kind == header.kind
            and self.copied_stream == header.stream
            and self.copied_sequence == header.sequence
            and self.copied_crc == header.body_crc
        )
        self.copied_end = 0 if again else end
        self.copied_kind = header.kind
        self.copied_stream = header.stream
        self.copied_sequence = header.sequence
        self.copied_crc = header.body_crc
        return again

    def fail(self, text: str, *args: object) -> None:
        """An attempt failed: say so, but once a minute when it fails again and again."""
        now = self.log.kernel.loop.time()
        self.failures += 1
        if now >= self.say_at.get(text, 0.0):
            self.say_at[text] = now + SAY_AGAIN
            log.error(text, *args)

    def refuse(self, error: StoreError) -> None:
        """What would be written cannot be: nothing is, and the log keeps the segment."""
        self.fail(
            "segment %d of the log in %s cannot be checkpointed: %s; it stays, and the log grows: "
            "free room on the device, or check it",
            self.segment.number,
            self.log.directory,
            error,
        )
        for copy in self.copies:
            copy.give_up(False)
        self.copies = []
        self.jobs = []
        self.copy = None
        self.step = "idle"
        self.log.kernel.loop.call_later(self.retry_delay, self.wake)

    def write_builders(self) -> None:
        """Everything is copied: write it."""
        copy: SegmentCopy
        self.jobs = []
        for item in self.copies:
            copy = item
            if not copy.store.closed:
                copy.end(self.segment.number)
                self.jobs.append(copy)
        self.copies = []
        self.copy = None
        self.step = "write"
        when_removals_last(self.log, self.submit)

    def submit(self) -> None:
        """What was left out is gone for good: write the rest."""
        jobs = self.jobs
        if not self.stopped:
            if self.on_write is not None:
                self.on_write()
            # What the builders copy from stays in memory until they did, whatever happens here.
            source = self.segment
            self.background.submit(lambda: write_jobs(jobs, source), self.written)

    def written(self, result: object, error: BaseException | None) -> None:
        """The background wrote the builders, or could not."""
        if self.stopped:
            return
        if error is None:
            self.log.unblock()
            for copy in self.jobs:
                for builder in copy.builders:
                    builder.segment.chain = builder.chain
            self.step = "publish"
            self.log.kernel.schedule_later(self)
            return
        full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
        released = full and not self.before and self.log.files.make_room()
        if full:
            self.failures += 1
        if full and not released:
            self.log.files.restore_ballast()
            self.log.block(error)
        elif not full:
            self.fail(
                "messages of segment %d of the log cannot be moved to their streams' segments: "
                "%s; the "
                "log keeps them, and it is tried again",
                self.segment.number,
                error,
            )
        for copy in self.jobs:
            self.undo += [(builder.segment.path, builder.offset) for builder in copy.builders]
            if not copy.store.closed:
                copy.give_up(not full)
        self.jobs = []
        self.at_once = released
        self.cut_back()

    def cut_back(self) -> None:
        """Nothing is written anew before what a failed attempt left is durably gone: a start would
        take it for what is newer."""
        undo = self.undo
        if not self.stopped:
            self.background.submit(lambda: cut_segments(undo), self.was_cut)

    def was_cut(self, result: object, error: BaseException | None) -> None:
        """What a failed attempt left is gone, or cannot be cut off yet."""
        if error is not None:
            self.fail(
                "what a failed write left in %s cannot be cut off: %s; the log keeps everything, "
                "and it "
                "is tried again",
                ", ".join(str(path) for path, _ in self.undo[:UNDO_NAMED]),
                error,
            )
            self.log.kernel.loop.call_later(self.retry_delay, self.cut_back)
            return
        self.undo = []
        self.step = "idle"
        self.log.kernel.loop.call_later(0.0 if self.at_once else self.retry_delay, self.wake)

    def publish_slice(self) -> None:
        """Point a slice of messages at their segments; go on when all are done."""
        copy: SegmentCopy
        for item in self.jobs:
            copy = item
            if copy.store.closed:
                continue
            if copy.store.copy is copy and copy.publish(PUBLISH_SLICE):
                self.log.kernel.schedule_later(self)
                return
            self.write_indexes(copy.store, copy.builders)
        self.jobs = []
        self.give_back()

    def write_indexes(self, store: FileStore, builders: list) -> None:
        """Index segments that were sealed by these builders."""
        segment: StreamSegment
        for builder in builders:
            segment = cython.cast(SegmentBuilder, builder).segment
            if segment.sealed and not segment.indexed and segment.number in store.by_number:
                index = index_of(store, segment, self.segment.number)
                data = index_bytes(store, index)
                write_index_later(self.log, self.background, store, segment, data)

    def give_back(self) -> None:
        """Put states again, and say in the log that the following segment is the oldest one;
        `finish` frees the file when that is durable."""
        following: LogSegment = self.log.live[1]
        self.step = "give back"
        self.log.checkpointing = True
        try:
            if self.on_copied is not None:
                self.on_copied(self.stores)
            put_again(self.log, self.segment.number)
            lsn = self.log.write_record(KIND_CHECKPOINT, 0, following.number, b"", b"", b"")
        except Exception as error:
            self.fail(
                "segment %d of the log cannot be given back: %s; it stays, and it is tried again",
                self.segment.number,
                error,
            )
            self.log.kernel.loop.call_later(self.retry_delay, self.give_back_again)
            return
        finally:
            self.log.checkpointing = False
        self.log.when_durable(lsn, self.finish)

    def give_back_again(self) -> None:
        if not self.stopped and not self.log.closed:
            self.give_back()

    def finish(self) -> None:
        """Nothing needs the segment any more: its file can be used again."""
        segment = self.log.drop_oldest()
        self.done += 1
        if segment.suspect:
            self.log.files.discard(segment.slot)
        else:
            self.log.files.free_slot(segment.slot)
        self.segment = None
        self.stores = []  # one that is deleted is kept by nothing
        self.failures = 0
        self.say_at = {}
        self.step = "idle"
        self.wake()
        if self.on_done is not None:
            self.on_done()
