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
from cython.cimports.headwater.edge.storage.commit_log import CommitLog
from cython.cimports.headwater.edge.storage.crc import crc32c
from cython.cimports.headwater.edge.storage.file_store import FileStore
from cython.cimports.headwater.edge.storage.index import IN_LOG, Entry
from cython.cimports.headwater.edge.storage.record import (
    FLAG_COPY,
    HEADER_BYTES,
    KIND_DELETE,
    KIND_HEAD,
    KIND_LOST,
    RecordHeader,
    body_ok,
    header_ok,
    record_size,
    seal_header,
)
from cython.cimports.headwater.edge.storage.stream_segment import StreamSegment
from cython.cimports.libc.string import memcpy, memset

from headwater.edge.files import sync_directory, write_file
from headwater.edge.storage.background import Background
from headwater.edge.storage.segment_files import FOOTER, RUN, SegmentHeader

# A segment that could not be rewritten is left alone for this long, in seconds.
RETRY = 30.0

log = logging.getLogger("headwater.storage")


def live_records(store: FileStore, segment: StreamSegment) -> list:
    """(sequence, offset) of every message that is served from a segment."""
    entry: cython.pointer(Entry)
    sequence: cython.ulonglong = store.next_alive(segment.first) if segment.first else 0
    rows: list = []
    while sequence and sequence <= segment.last:
        entry = store.slot(sequence)
        if not entry.flags & IN_LOG and entry.place >> 32 == segment.number:
            rows.append((sequence, entry.place & 0xFFFFFFFF))
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

    def copy(self, content: bytes, rows: list) -> None:
        """Copy the records of `rows`, (sequence, offset), from the old file's content."""
        source: cython.p_const_uchar = cython.cast(
            cython.p_const_uchar, PyBytes_AS_STRING(content)
        )
        header: cython.pointer(RecordHeader)
        at: cython.Py_ssize_t
        size: cython.Py_ssize_t = len(content)
        for sequence, offset in rows:
            at = offset
            if (
                at >= size
                or not header_ok(
                    source + at, size - at, self.seed, self.number, cython.cast(cython.uint, at)
                )
                or not body_ok(source + at)
            ):
                self.bad.append(sequence)
                continue
            header = cython.cast(cython.pointer(RecordHeader), source + at)
            place = len(self.data)
            self.data += content[at : at + record_size(header.length)]
            self.seal(place)
            self.moved.append((sequence, offset, place))
            self.copied += len(self.data) - place

    def add(self, kind: cython.int, flags: cython.int, sequence: int, body: bytes) -> None:
        """Append a record that is no message."""
        header: cython.pointer(RecordHeader)
        place: cython.Py_ssize_t = len(self.data)
        at: cython.p_uchar
        self.data += bytes(record_size(len(body)))
        at = cython.cast(cython.p_uchar, PyByteArray_AS_STRING(self.data)) + place
        memcpy(at + HEADER_BYTES, PyBytes_AS_STRING(body), len(body))
        header = cython.cast(cython.pointer(RecordHeader), at)
        memset(header, 0, HEADER_BYTES)
        header.kind = cython.cast(cython.uchar, kind)
        header.flags = cython.cast(cython.ushort, flags)
        header.length = cython.cast(cython.uint, len(body))
        header.body_crc = crc32c(0, at + HEADER_BYTES, len(body))
        header.sequence = sequence
        header.stream = self.stream
        self.seal(place)

    def seal(self, place: cython.Py_ssize_t) -> None:
        """Give the record at `place` its new position and chain."""
        header: cython.pointer(RecordHeader) = cython.cast(
            cython.pointer(RecordHeader),
            cython.cast(cython.p_uchar, PyByteArray_AS_STRING(self.data)) + place,
        )
        header.segment = self.number
        header.offset = cython.cast(cython.uint, place)
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
    built.copy(job.path.read_bytes(), job.rows)
    if job.deletes:
        built.add(KIND_DELETE, 0, 0, job.deletes)
    lost = job.lost + [(sequence, sequence) for sequence in built.results()[1]]
    if lost:
        built.add(KIND_LOST, 0, 0, b"".join([RUN.pack(*run) for run in lost]))
    runs = []
    for sequence, _, _ in built.results()[0]:
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
    """What the background needs to know of a segment."""

    def __init__(self, store: FileStore, segment: StreamSegment) -> None:
        first: cython.ulonglong = store.first_seq
        self.number = segment.number
        self.path = segment.path
        self.rows = live_records(store, segment)
        self.deletes = b"".join(
            [RUN.pack(*run) for run in RUN.iter_unpack(segment.deletes) if run[1] >= first]
        )
        self.lost = [run for run in segment.lost if run[1] >= first]
        self.first_seq = first
        self.footer = (store.settled_last, store.settled_ts, 0)


@cython.cclass
class Compactor:
    """One segment at a time."""

    def __init__(self, commit_log: CommitLog, background: Background):
        self.log = commit_log
        self.background = background
        self.queue = []

    def add(self, store: FileStore, segment: StreamSegment) -> None:
        """Rewrite a segment soon; it is marked busy already."""
        self.queue.append((store, segment))
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
        while self.queue and not self.stopped:
            store, segment = self.queue.pop(0)
            if store.closed or segment.number not in store.by_number:
                continue
            if segment.last < store.first_seq:
                segment.busy = False
                store.trim()
                continue
            self.submit(store, segment)
            return
        self.working = False

    def submit(self, store: FileStore, segment: StreamSegment) -> None:
        """Have the background build the new file."""
        header = SegmentHeader(
            segment.number, segment.generation + 1, store.stream_id, segment.created
        ).encode(self.log.seed, self.log.node_id)
        job = Job(store, segment)
        segment.erased = False
        seed = self.log.seed
        stream = store.stream_id
        self.background.submit(
            lambda: rewrite(job, header, seed, stream),
            lambda built, error: self.finish(store, segment, built, error),
        )

    def finish(
        self,
        store: FileStore,
        segment: StreamSegment,
        built: object,
        error: BaseException | None,
    ) -> None:
        """Swap the files, or leave everything as it was."""
        new = temporary(segment.path)
        segment.busy = False
        if error is not None:
            log.error("segment %s cannot be rewritten: %s", segment.path, error)
            new.unlink(missing_ok=True)
            segment.avoided = True
            store.trim()
            self.log.kernel.loop.call_later(RETRY, segment.release)
        elif segment.erased and not store.closed and not self.stopped:
            new.unlink(missing_ok=True)
            segment.busy = True
            self.queue.insert(0, (store, segment))
        elif not store.closed and not self.stopped:
            new.rename(segment.path)
            self.swap(store, segment, *built.results())
            store.trim()
            self.rewritten += 1
            if segment.number in store.by_number and segment.live and segment.mostly_dead():
                segment.busy = True
                self.queue.append((store, segment))
            directory = segment.path.parent
            self.background.submit(lambda: sync_directory(directory))
        if not self.stopped:
            self.begin()

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
        entry: cython.pointer(Entry)
        base: cython.ulonglong = cython.cast(cython.ulonglong, segment.number) << 32
        old: cython.ulonglong
        new: cython.ulonglong
        sequence: cython.ulonglong
        store.open_files.forget(segment.path)
        store.window_segment = 0
        segment.generation += 1
        segment.end = end
        segment.rest = end - size
        segment.chain = chain
        segment.indexed = False
        for at, before, after in moved:
            sequence = at
            old = before
            new = after
            entry = store.at(sequence)
            if entry != cython.NULL and not entry.flags & IN_LOG and entry.place == base | old:
                entry.place = base | new
        for at in bad:
            sequence = at
            if store.at(sequence) != cython.NULL:
                segment.lost.append((sequence, sequence))
                store.lost[sequence] = f"bad record in segment {segment.number}"
                store.lost_now.append(sequence)
                store.remove(sequence, False)
                if store.on_damage is not None:
                    store.on_damage(store, sequence, store.lost[sequence])
