"""Rewrites segments that are mostly dead, so that interior deletes give their space back.

The background copies live records to a new file; the loop then renames it over the old one and
points the index at the new offsets in the same step, so no read ever sees one without the other.
A record that does not verify is not copied but listed as lost.
"""

import logging
import struct
from pathlib import Path

import cython
from cython.cimports.cpython.bytearray import PyByteArray_AS_STRING
from cython.cimports.cpython.bytes import PyBytes_AS_STRING
from cython.cimports.headwater.edge.storage.format.crc import crc32c
from cython.cimports.headwater.edge.storage.format.record import (
    FLAG_COPY,
    HEADER_BYTES,
    KIND_DELETE,
    KIND_HEAD,
    KIND_LOST,
    RecordHeader,
    body_ok,
    header_ok,
    packed_bits,
    record_size,
    seal_header,
)
from cython.cimports.headwater.edge.storage.index.index import IN_LOG, IndexEntry
from cython.cimports.headwater.edge.storage.log.commit_log import CommitLog
from cython.cimports.headwater.edge.storage.packing.packing import Packer
from cython.cimports.headwater.edge.storage.segments.file_store import FileStore
from cython.cimports.headwater.edge.storage.segments.stream_segment import StreamSegment
from cython.cimports.libc.string import memcpy, memset

from headwater.edge.ports.files import remove, rename, sync_directory, write_file
from headwater.edge.storage.device.background import Background
from headwater.edge.storage.format.errors import StoreError
from headwater.edge.storage.segments.dead_runs import needed_runs
from headwater.edge.storage.segments.index_bytes import index_bytes
from headwater.edge.storage.segments.index_rows import index_of
from headwater.edge.storage.segments.removals import when_removals_last, write_index_later
from headwater.edge.storage.segments.segment_files import FOOTER, RUN, SegmentHeader
from headwater.edge.storage.segments.segment_jobs import remove_segments

# A segment that could not be rewritten is left alone for this long, in seconds.
RETRY = 30.0
# One record of removals, at most; and removals that a segment tells of before that is looked into.
DELETE_BYTES = 1 << 20
REVIEW_BYTES = 1024
# What a rewritten segment has besides messages and removals, about: its headers and footers.
FRAME_BYTES = 1024

log = logging.getLogger("headwater.storage")


def live_records(store: FileStore, segment: StreamSegment) -> list:
    """(sequence, offset) of every message that is served from a segment."""
    entry: cython.pointer(cython.const[IndexEntry])
    sequence: cython.ulonglong = store.next_alive(segment.first) if segment.first else 0
    rows: list = []
    while sequence and sequence <= segment.last:
        entry = store.entry(sequence)
        if not entry.flags & IN_LOG and entry.location >> 32 == segment.number:
            rows.append((sequence, entry.location & 0xFFFFFFFF))
        sequence = store.next_alive(sequence + 1)
    return rows


@cython.cclass
class Rewrite:
    """A new file for a segment, built in memory. Touches neither store nor index."""

    seed: cython.uint
    number: cython.uint
    stream: cython.ulonglong
    chain: cython.uint
    records: cython.uint
    copied: cython.Py_ssize_t
    data: bytearray
    moved: list
    bad: list

    def __init__(self, seed: int, number: int, stream: int, header: bytes):
        self.seed = seed
        self.number = number
        self.stream = stream
        self.data = bytearray(header)
        self.moved = []
        self.bad = []

    def copy(self, content: bytes, number: cython.uint, rows: list, packer: object) -> None:
        """Copy the records of `rows`, (sequence, offset), from the content of segment `number`;
        `packer` packs them again, if there is one."""
        source: cython.p_const_uchar = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(content))
        header: cython.pointer(RecordHeader)
        at: cython.Py_ssize_t
        size: cython.Py_ssize_t = len(content)
        again: Packer = packer
        for sequence, offset in rows:
            at = offset
            if (
                at >= size
                or not header_ok(
                    source + at, size - at, self.seed, number, cython.cast(cython.uint, at)
                )
                or not body_ok(source + at)
            ):
                self.bad.append(sequence)
                continue
            header = cython.cast(cython.pointer(RecordHeader), source + at)
            position = len(self.data)
            record: bytes = content[at : at + record_size(header.length)]
            if again is not None:
                record = again.repack(record)
            self.data += record
            self.seal(position)
            old: cython.ulonglong = (cython.cast(cython.ulonglong, number) << 32) | at
            packed = packed_bits(cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(record)))
            self.moved.append((sequence, old, position, packed))
            self.copied += len(self.data) - position

    def add(self, kind: cython.int, flags: cython.int, sequence: int, body: bytes) -> None:
        """Append a record that is no message."""
        header: cython.pointer(RecordHeader)
        position: cython.Py_ssize_t = len(self.data)
        at: cython.p_uchar
        self.data += bytes(record_size(len(body)))
        at = cython.cast(cython.p_uchar, PyByteArray_AS_STRING(self.data)) + position
        memcpy(at + HEADER_BYTES, PyBytes_AS_STRING(body), len(body))
        header = cython.cast(cython.pointer(RecordHeader), at)
        memset(header, 0, HEADER_BYTES)
        header.kind = cython.cast(cython.uchar, kind)
        header.flags = cython.cast(cython.ushort, flags)
        header.length = cython.cast(cython.uint, len(body))
        header.body_crc = crc32c(0, at + HEADER_BYTES, len(body))
        header.sequence = sequence
        header.stream = self.stream
        self.seal(position)

    def seal(self, position: cython.Py_ssize_t) -> None:
        """Give the record at `position` its new offset and chain."""
        header: cython.pointer(RecordHeader) = cython.cast(
            cython.pointer(RecordHeader),
            cython.cast(cython.p_uchar, PyByteArray_AS_STRING(self.data)) + position,
        )
        header.segment = self.number
        header.offset = cython.cast(cython.uint, position)
        header.chain = self.chain
        seal_header(header, self.seed)
        self.chain = header.header_crc
        self.records += 1

    def results(self) -> tuple[list, list, int, int, int]:
        """(moved, bad, bytes of messages, end, chain)"""
        return self.moved, self.bad, self.copied, len(self.data), self.chain

    def counted(self) -> int:
        return self.records

    def write(self, path: Path) -> None:
        write_file(path, self.data)


def temporary(path: Path) -> Path:
    return path.with_name(path.name + ".new")


def rewrite(job: object, header: bytes, seed: int, stream: int) -> Rewrite:
    """Build and write the new file beside the old one (in the background)."""
    built = Rewrite(seed, job.number, stream, header)
    for path, number, rows, packer in job.sources:
        built.copy(path.read_bytes(), number, rows, packer)
    job.deletes = needed_runs(job.deletes, job.dirty)
    for at in range(0, len(job.deletes), DELETE_BYTES):
        built.add(KIND_DELETE, 0, 0, job.deletes[at : at + DELETE_BYTES])
    lost = job.lost + [(sequence, sequence) for sequence in built.results()[1]]
    if lost:
        built.add(KIND_LOST, 0, 0, b"".join([RUN.pack(*run) for run in lost]))
    runs = []
    for sequence, _, _, _ in built.results()[0]:
        if runs and runs[len(runs) - 1][1] + 1 == sequence:
            runs[len(runs) - 1][1] = sequence
        else:
            runs.append([sequence, sequence])
    body = FOOTER.pack(*job.footer, len(header), built.counted(), 0) + b"".join(
        [struct.pack("<QQQ", stream, *run) for run in runs]
    )
    for flags in (0, FLAG_COPY):
        built.add(KIND_HEAD, flags, job.first_seq, body)
    built.write(temporary(job.path))
    return built


class Job:
    """What the background needs to know to rewrite a segment, and with it (`before`) an older one
    whose messages it takes over."""

    def __init__(
        self, store: FileStore, segment: StreamSegment, before: StreamSegment | None = None
    ) -> None:
        first: cython.ulonglong = store.first_seq
        parts = [segment] if before is None else [before, segment]
        self.number = segment.number
        self.path = segment.path
        self.sources = [
            (
                part.path,
                part.number,
                live_records(store, part),
                store.repacker if part.stale else None,
            )
            for part in parts
        ]
        self.fresh = segment.stale and store.repacker is not None
        self.deletes = b"".join([bytes(part.deletes) for part in parts])
        self.dirty = dirty_spans(store, parts)
        self.lost = [run for part in parts for run in part.lost if run[1] >= first]
        self.first_seq = first
        self.footer = (store.durable_last, store.durable_ts, 0)


def give_up(segment: StreamSegment, before: StreamSegment | None) -> None:
    """They are not being rewritten any more."""
    segment.busy = False
    if before is not None:
        before.busy = False


def small(segment: StreamSegment) -> int:
    """Bytes that a segment would have if it were rewritten, at most."""
    return int(segment.live_bytes) + len(segment.deletes) + 48 * int(segment.live) + FRAME_BYTES


def merge(store: FileStore, segment: StreamSegment, before: StreamSegment) -> None:
    """The messages of `before` are served from `segment` now."""
    segment.live += before.live
    segment.live_bytes += before.live_bytes
    segment.first = before.first or segment.first
    segment.last = max(segment.last, before.last)
    segment.lost = before.lost + segment.lost
    store.segments.remove(before)
    del store.by_number[before.number]
    store.recent = None
    store.window.forget()
    store.open_files.forget(before.path)
    store.leaving.append(before)


def dirty_spans(store: FileStore, but: list) -> bytes:
    """Packed runs of sequences of which some file, `but` for these segments, may hold records of
    messages that are gone."""
    first: cython.ulonglong = store.first_seq
    return b"".join(
        [
            RUN.pack(max(segment.first, first), segment.last)
            for segment in [*store.leaving, *store.segments]
            if segment.dirty and segment.first and segment.last >= first and segment not in but
        ]
    )


@cython.cclass
class Compactor:
    """One segment at a time."""

    def __init__(self, commit_log: CommitLog, background: Background):
        self.log = commit_log
        self.background = background
        self.queue = []

    def add(
        self, store: FileStore, segment: StreamSegment, before: StreamSegment | None = None
    ) -> None:
        """Rewrite a segment soon, with what `before` holds; they are marked busy already."""
        self.queue.append((store, segment, before))
        if not self.working:
            self.working = True
            self.log.kernel.loop.call_soon(self.begin)

    @property
    def idle(self) -> bool:
        """Whether nothing waits to be rewritten."""
        return not self.working

    def begin(self) -> None:
        """Take the next segment whose store still wants it."""
        store: FileStore
        segment: StreamSegment
        before: StreamSegment
        while self.queue and not self.stopped:
            store, segment, before = self.queue.pop(0)
            if store.closed or segment.number not in store.by_number:
                continue
            if (segment.last < store.first_seq and not segment.pressed) or (
                before is not None and before.last < store.first_seq
            ):
                give_up(segment, before)
                self.trim(store)
                continue
            self.submit(store, segment, before)
            return
        self.working = False

    def submit(
        self, store: FileStore, segment: StreamSegment, before: StreamSegment | None
    ) -> None:
        """Have the background build the new file."""
        header = SegmentHeader(
            segment.number, segment.generation + 1, store.stream_id, segment.created
        ).encode(self.log.seed, self.log.node_id)
        job = Job(store, segment, before)
        segment.erased = segment.dirty = False
        if before is not None:
            before.erased = False
        seed = self.log.seed
        stream = store.stream_id
        work = lambda: rewrite(job, header, seed, stream)  # noqa: E731
        done = lambda built, error: self.finish(  # noqa: E731
            store, segment, before, job, built, error
        )
        when_removals_last(self.log, lambda: self.background.submit(work, done))

    def finish(
        self,
        store: FileStore,
        segment: StreamSegment,
        before: StreamSegment | None,
        job: object,
        built: object,
        error: BaseException | None,
    ) -> None:
        """Swap the files, or leave everything as it was."""
        new = temporary(segment.path)
        give_up(segment, before)
        if error is None and not store.closed and not self.stopped:
            error = self.rename_over(segment, before)
        if error is not None:
            log.error(
                "segment %s cannot be rewritten: %s; it stays as it is, and it is tried again",
                segment.path,
                error,
            )
            self.background.submit(lambda: remove(new, True))
            segment.dirty = segment.avoided = True
            self.trim(store)
            self.log.kernel.loop.call_later(RETRY, segment.allow_rewrite)
        elif store.closed or self.stopped:
            segment.dirty = True
        elif segment.erased or (before is not None and before.erased):
            remove(new, True)
            segment.dirty = segment.busy = True
            if before is not None:
                before.busy = True
            self.queue.insert(0, (store, segment, before))
        else:
            self.swap(store, segment, *built.results())
            segment.stale = segment.stale and not job.fresh
            segment.deletes = bytearray(job.deletes)
            self.make_durable(store, segment, before)
        if not self.stopped:
            self.begin()

    def trim(self, store: FileStore) -> None:
        """Let go of segments at the front once that all of them is gone is durable."""
        first = store.first_seq
        when_removals_last(self.log, lambda: store.trim(first))

    def rename_over(
        self, segment: StreamSegment, before: StreamSegment | None
    ) -> BaseException | None:
        """Rename the new file over the old one, unless it holds what was erased meanwhile."""
        if not segment.erased and (before is None or not before.erased):
            try:
                rename(temporary(segment.path), segment.path)
            except OSError as error:
                return error
        return None

    def make_durable(
        self, store: FileStore, segment: StreamSegment, before: StreamSegment | None
    ) -> None:
        """A segment was rewritten: make that durable, and see what follows from it."""
        directory = segment.path.parent
        self.rewritten += 1
        if before is None:
            self.background.submit(lambda: sync_directory(directory))
        else:
            merge(store, segment, before)
            self.background.submit(
                lambda: sync_directory(directory),
                lambda _, error: self.leave(store, before, error),
            )
        if not store.copying:
            index = index_of(store, segment, self.log.active.number)
            data = index_bytes(store, index)
            write_index_later(self.log, self.background, store, segment, data)
        self.trim(store)
        self.review(store)
        if segment.number in store.by_number:
            self.join(store, segment)

    def leave(self, store: FileStore, before: StreamSegment, error: BaseException | None) -> None:
        """The messages of `before` are durable elsewhere: say so, then remove its files."""
        if store.closed or self.stopped:
            return
        if error is None:
            store.gone_numbers.add(before.number)
            try:
                lsn = self.on_gone(store)
            except StoreError as failure:
                error = failure
        if error is not None:
            log.warning(
                "%s is not needed and cannot be removed: %s; tried again", before.path, error
            )
            self.log.kernel.loop.call_later(RETRY, lambda: self.leave(store, before, None))
            return
        self.log.when_durable(lsn, lambda: self.remove(store, before))

    def remove(self, store: FileStore, before: StreamSegment) -> None:
        """Remove the files of a segment that is known to be gone; tried again until it works."""
        path = before.path

        def removed(result: object, error: BaseException | None) -> None:
            if error is None:
                store.leaving.remove(before)
            elif not store.closed and not self.stopped:
                log.warning("%s is not needed and cannot be removed: %s; tried again", path, error)
                self.log.kernel.loop.call_later(RETRY, lambda: self.remove(store, before))

        self.background.submit(lambda: remove_segments([path]), removed)

    def review(self, store: FileStore) -> None:
        """Other files hold fewer dead records now: segments that had to tell of them may give
        room back."""
        segment: StreamSegment
        for item in list(store.segments):
            segment = item
            if not segment.sealed or not segment.written_rest or segment.busy:
                continue
            if len(segment.deletes) >= REVIEW_BYTES:
                runs = needed_runs(bytes(segment.deletes), dirty_spans(store, [segment]))
                segment.rest = segment.written_rest - (len(segment.deletes) - len(runs))
            if segment.mostly_dead():
                store.ask_compact(segment)

    def join(self, store: FileStore, segment: StreamSegment) -> None:
        """Put small neighbours together, so that there never are many small files. The first
        segment goes away as a whole, so it is left alone."""
        rows: list = store.segments
        at: cython.Py_ssize_t = rows.index(segment)
        for i in (at, at + 1):
            if 2 <= i < len(rows) and self.fit(store, rows[i - 1], rows[i]):
                rows[i - 1].busy = rows[i].busy = True
                self.add(store, rows[i], rows[i - 1])
                return

    def fit(self, store: FileStore, before: StreamSegment, segment: StreamSegment) -> bool:
        """Whether two segments are small enough to be one."""
        if store.copying or not (before.sealed and segment.sealed):
            return False
        if before.busy or segment.busy or before.avoided or segment.avoided:
            return False
        return bool((small(before) + small(segment)) * 2 <= store.segment_limit)

    def swap(
        self,
        store: FileStore,
        segment: StreamSegment,
        moved: list,
        bad: list,
        size: int,
        end: int,
        chain: int,
    ) -> None:
        """Point the index at the new file."""
        entry: cython.pointer(IndexEntry)
        found: cython.pointer(cython.const[IndexEntry])
        base: cython.ulonglong = cython.cast(cython.ulonglong, segment.number) << 32
        old: cython.ulonglong
        new: cython.ulonglong
        sequence: cython.ulonglong
        store.pack_some()
        store.open_files.forget(segment.path)
        store.window.forget()
        segment.generation += 1
        segment.end = segment.durable_end = end
        segment.rest = segment.written_rest = end - size
        segment.chain = chain
        segment.indexed = segment.pressed = False
        for at, before, after, packed in moved:
            sequence = at
            old = before
            new = after
            found = store.at(sequence)
            if found != cython.NULL and not found.flags & IN_LOG and found.location == old:
                entry = store.opened(sequence)
                entry.location = base | new
                segment.live_bytes -= record_size(store.body_length(entry))
                entry.flags = packed
                segment.live_bytes += record_size(store.body_length(entry))
            else:
                segment.dirty = True
        for at in bad:
            sequence = at
            if store.at(sequence) != cython.NULL:
                segment.lost.append((sequence, sequence))
                store.lost[sequence] = f"bad record in segment {segment.number}"
                store.lost_now.append(sequence)
                store.remove(sequence, False)
                if store.on_damage is not None:
                    store.on_damage(store, sequence, store.lost[sequence])
