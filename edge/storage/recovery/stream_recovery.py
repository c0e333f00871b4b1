"""What a node finds of one stream when it starts: its segments, their indexes, and what is missing.

Every stream is read by itself, so that one that cannot be opened takes nothing else down: it is
moved to quarantine. Nothing is removed on doubt, and what was found wrong is told in `problems`.
"""

import logging
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headwater.edge.ports import files as ports
from headwater.edge.storage.format.problem import Problem, ProblemKind
from headwater.edge.storage.recovery.restore import restore_ends, restore_removal
from headwater.edge.storage.recovery.segment_scan import SegmentScan, cut_off, first_alive
from headwater.edge.storage.recovery.torn_tail import (
    whole_until,
)
from headwater.edge.storage.segments.file_store import FileStore
from headwater.edge.storage.segments.index_bytes import read_index
from headwater.edge.storage.segments.index_load import load_index
from headwater.edge.storage.segments.loss import LOST_BEFORE, LOST_MAX, removed_before, set_size
from headwater.edge.storage.segments.manifest import Manifest
from headwater.edge.storage.segments.segment_files import (
    DATA_START as SEGMENT_START,
)
from headwater.edge.storage.segments.segment_files import (
    RUN,
    IndexFile,
    SegmentHeader,
    decode_segment_header,
    segment_number,
    segment_path,
)
from headwater.edge.storage.segments.segment_jobs import (
    cut_durably,
    cut_segments,
    index_path,
    remove_segments,
    write_again,
)
from headwater.edge.storage.segments.stream_segment import StreamSegment

log = logging.getLogger("headwater.storage")


@dataclass
class RecoveredStream:
    """A file-backed stream that was found. `meta` is what the stream layer stored last."""

    store: FileStore
    account: str
    name: str
    meta: bytes
    identity: dict[str, Any]
    """Id, incarnation, account and name, keys and dictionaries: see `Metas`."""
    problems: list[Problem] = field(default_factory=list)
    recovery: "StreamRecovery | None" = None
    """What is to be finished once the log was read; None afterwards."""

    @property
    def label(self) -> str:
        """Account and name, for people."""
        return f"{self.account} > {self.name}"

    def listed_problems(self) -> list[Problem]:
        """What was found wrong, with the stream's name."""
        return [problem.found(0, self.label) for problem in self.problems]

    @property
    def incarnation(self) -> str:
        return str(self.store.incarnation)


@dataclass
class Heads:
    """How far a stream had come, as far as segments tell."""

    first_seq: int = 0
    last_seq: int = 0
    last_ts: int = 0
    log_segment: int = 0

    def raise_to(self, first_seq: int, last_seq: int, last_ts: int, log_segment: int) -> None:
        self.first_seq = max(self.first_seq, first_seq)
        self.last_seq = max(self.last_seq, last_seq)
        self.last_ts = max(self.last_ts, last_ts)
        self.log_segment = max(self.log_segment, log_segment)


class StreamRecovery:
    """Reads the segments of one stream into its store."""

    def __init__(
        self,
        store: FileStore,
        problems: list[Problem],
        manifest: Manifest | None = None,
        log_is_whole: bool = False,
    ) -> None:
        self.store = store
        self.problems = problems
        self.manifest = manifest or Manifest("", "")
        self.has_manifest = manifest is not None
        # Whether what segments hold behind the manifest is in the log as well.
        self.manifest_counts = (
            manifest is not None
            and log_is_whole
            and (manifest.segment > 0 or not manifest.first_log_segment)
        )
        self.heads = Heads()
        self.on_segment: Callable[[int], None] = lambda scanned: None
        """Called after each segment with how many bytes of it no index covered."""
        self.on_foreign: Callable[[Path], None] = lambda path: None
        """Called with a file that is a segment of another stream: it has to go away."""
        self.scanned = 0
        # Segments of which an index lists more than their file holds, and what there is of it.
        self._short: list[tuple[StreamSegment, int]] = []
        # Last sequence before each part of which nothing tells what stood there; and the first
        # one behind it, once that is known.
        self._gaps: list[list[int]] = []

    def run(self, scarce: bool = False) -> Heads:
        """Enter everything; returns how far the stream had come. `scarce`: the device has no room
        for what a crash left unfinished."""
        if scarce and self.manifest_counts:
            self._cut_unfinished()
        directory = self.store.directory
        names = [path.name for path in directory.iterdir()] if directory.exists() else []
        there = numbers_of(names, ".seg")
        numbers = there | numbers_of(names, ".idx")
        newest = max([*numbers, self.manifest.segment])
        for number in range(min(numbers, default=newest) or 1, newest + 1):
            path = segment_path(self.store.directory, number)
            before = int(self.store.last_seq)
            open_gaps = [gap for gap in self._gaps if not gap[1]]
            if number in there:
                scanned = self.scanned
                self._load(path, number == newest)
                self.on_segment(self.scanned - scanned)
            elif not self.manifest.is_gone(number):
                self._load_missing(path)
            for gap in open_gaps:
                gap[1] = first_alive(self.store, before + 1)
        for segment in self.store.segments:
            for first, last in RUN.iter_unpack(segment.deletes):
                restore_removal(self.store, first, last)
                removed_before(self.store, first, last)
            for first, last in segment.lost:
                restore_removal(self.store, first, last)
                for sequence in range(first, last + 1):
                    self.store.lost[sequence] = LOST_BEFORE
        heads = self.heads
        restore_ends(self.store, heads.first_seq, heads.last_seq, heads.last_ts)
        self.store.advance_durable(heads.last_seq, heads.last_ts)
        return heads

    @property
    def has_gaps(self) -> bool:
        """Whether parts are missing of which nothing tells what stood there."""
        return bool(self._gaps) or self.manifest.oldest < self._oldest()

    def _oldest(self) -> int:
        return min((segment.number for segment in self.store.segments), default=0)

    def finish(self, first: int, removed: Iterable[tuple[int, int]] = ()) -> int:
        """After the log was read: name what stood in missing bytes. `first` is the first sequence
        that the stream still had, as far as the log knows, and `removed` are the runs that it says
        were taken out; returns the first sequence as far as anything knows."""
        store, manifest = self.store, self.manifest
        first = max(first, self.heads.first_seq)
        for segment, size in self._short:
            for sequence, counted in cut_off(store, segment, size):
                restore_removal(store, sequence, sequence)
                store.add_lost(sequence, f"{segment.path.name} has only {size} bytes")
                set_size(store, sequence, counted)
        oldest = self._oldest()
        if manifest.oldest < oldest and first <= manifest.oldest_last:
            text = (
                f" is missing, with messages up to {manifest.oldest_last}; "
                "everything else of the stream is kept"
            )
            path = segment_path(store.directory, manifest.oldest)
            self.problems.append(Problem.of(ProblemKind.LOST, path, text))
            self._gaps.append([first - 1, manifest.oldest_last + 1])
        for before, following in self._gaps:
            self._name_lost(max(before + 1, first), following - 1 if following else manifest.last)
        for begin, end in removed:
            removed_before(store, begin, end)
        if manifest.last > store.durable_last:
            store.advance_durable(manifest.last, 0)
        restore_ends(store, 0, manifest.last, 0)
        return first

    def _name_lost(self, first: int, last: int) -> None:
        """What is not there of a run of sequences, and was not removed as far as is known."""
        store = self.store
        rows = set(range(max(first, 1), min(last, first + LOST_MAX) + 1))
        for segment in store.segments:
            for begin, end in RUN.iter_unpack(segment.deletes):
                rows.difference_update(range(max(begin, first), min(end, last) + 1))
        for sequence in sorted(rows):
            if store.subject_at(sequence) is None and len(store.lost) < LOST_MAX:
                store.add_lost(sequence, "its part of the stream's segments is missing")

    def _load_missing(self, path: Path, state: str = "is missing") -> None:
        """A segment whose file is not there, or empty: its index may tell what stood in it."""
        segment = StreamSegment(segment_number(path) or 0, 0, path)
        segment.end = SEGMENT_START
        segment.sealed = segment.indexed = segment.avoided = True
        known = index_path(path)
        index = read_index(self.store, ports.read_file(known)[0]) if known.exists() else None
        fits = index is not None and (index.number, index.stream) == (
            segment.number,
            self.store.stream_id,
        )
        what = f" {state}"
        self.store.add_segment(segment)
        if index is not None and fits:
            segment.generation, segment.created = index.generation, index.created
            self._enter_index(segment, index)
            segment.indexed = True
            self._short.append((segment, 0))
        else:
            self._gaps.append([int(self.store.last_seq), 0])
        if segment.number == self.manifest.segment:
            what += f"; {self.manifest.end} bytes of it were there"
        self._damaged(path, f"{what}; everything else of the stream is kept")

    def _damaged(self, path: Path, text: str) -> None:
        """List damage of a file of the stream."""
        self.problems.append(Problem.of(ProblemKind.DAMAGED, path, text))

    def _is_short(self, segment: StreamSegment, size: int) -> bool:
        """Whether a file has less than the log knows of it."""
        manifest = self.manifest
        return (
            segment.number == manifest.segment
            and (not segment.created or segment.generation == manifest.generation)
            and size < manifest.end
        )

    def _unconfirmed(self, number: int, generation: int) -> int | None:
        """From where on nothing tells that a segment was synced; None when all of it was."""
        if not self.has_manifest or number < self.manifest.segment:
            return None
        if number > self.manifest.segment:
            return 0
        return self.manifest.end if generation == self.manifest.generation else None

    def _make_durable(self, path: Path, header: SegmentHeader | None) -> None:
        """Write again what may be in memory only, since its sync failed: the log gives its copy up
        once the segment counts. When that fails too, what the log still has is cut off. Raises
        OSError."""
        number = segment_number(path) or 0
        start = self._unconfirmed(number, header.generation if header else 0)
        size = path.stat().st_size
        if start is None or size <= start:
            return
        try:
            write_again(path, start, size)
        except OSError as error:
            if not self.manifest_counts:
                raise
            log.warning(
                "%s cannot be written again from byte %d on: %s; that is cut off, as the log has "
                "it",
                path,
                start,
                error,
            )
            cut_durably(path, start)

    def _cut_unfinished(self) -> None:
        """Cut off what a checkpoint wrote that a crash ended: the log still has it, and the next
        attempt needs the room. Raises OSError."""
        names = [path.name for path in self.store.directory.glob("*.seg")]
        for number in sorted(numbers_of(names, ".seg"), reverse=True):
            path = segment_path(self.store.directory, number)
            header = read_segment_header(path, self.store.seed)
            start = self._unconfirmed(number, header.generation if header else 0)
            if start is not None and start < path.stat().st_size:
                ports.remove(index_path(path), True)
                cut_segments([(path, start)])

    def _load(self, path: Path, is_last: bool) -> None:
        """Enter one segment: what its index says, then, record by record, what stands behind that.
        A segment without a usable index is read as a whole. Raises OSError."""
        seed = self.store.seed
        fd = ports.open_file(path, ports.READ_ONLY)
        try:
            head, _ = ports.read_parts(fd, SEGMENT_START, 0)
            header = decode_segment_header(head, seed)
            number = segment_number(path) or 0
            if header is not None and header.stream != self.store.stream_id:
                self._damaged(path, " is a segment of another stream")
                self.on_foreign(path)
                self._load_missing(path)
                return
            self._make_durable(path, header)
            size = path.stat().st_size
            if header is None and self._is_emptied(path, size, is_last):
                self._load_missing(path, f"has only {size} bytes")
                return
            if header is None and is_last and self._is_unlisted(number):
                # A power cut tore it, and the log has all of it. What is left of it may verify, but
                # nothing must be written behind that: no later start could tell what it is.
                ports.remove(path)
                return
            if header is None or header.number != number:
                torn = is_last and (len(head) < SEGMENT_START or self._is_unlisted(number))
                if not torn and size:
                    self._damaged(path, ": the file's header is damaged")
                segment = StreamSegment(number, 0, path)
            else:
                segment = StreamSegment(number, header.generation, path)
                segment.created = header.created
                if head[:256] != head[256:]:
                    self._damaged(path, ": a copy of the file's header is damaged")
            short = self._is_short(segment, size)
            segment.sealed = not is_last or short
            self.store.add_segment(segment)
            start = self._load_index(segment, size) if segment.created else SEGMENT_START
            if size > start:
                content, unreadable = ports.read_parts(fd, size, 0)
                for text in unreadable_texts(unreadable):
                    self._damaged(path, f": {text}")
                self.scanned += size - start
                if is_last and not short:
                    content = self._without_torn_tail(segment, content, start)
                sound = self._scan(segment, content, start, is_last and not short)
                if not short and self._is_short(segment, int(segment.end)):
                    short = True
                    self._scan(segment, content, start, False)
                if not is_last and not sound and not segment.indexed:
                    self._gaps.append([int(self.store.last_seq), 0])
        finally:
            ports.close(fd)
        if size < start > SEGMENT_START or short or (not is_last and size <= SEGMENT_START):
            self._report_short(segment, size, max(start, self.manifest.end if short else 0))
        elif is_last and segment.end <= SEGMENT_START:
            self._unfinished(segment, size)

    def _is_emptied(self, path: Path, size: int, is_last: bool) -> bool:
        """Whether nothing is left of a segment that had messages, and it has an index."""
        segment = StreamSegment(segment_number(path) or 0, 0, path)
        there = not is_last or self._is_short(segment, size)
        return there and size <= SEGMENT_START and index_path(path).exists()

    def _is_unlisted(self, number: int) -> bool:
        """Whether the log has everything that a segment with this number holds."""
        return self.manifest_counts and number > self.manifest.segment

    def _without_torn_tail(self, segment: StreamSegment, content: bytes, start: int) -> bytes:
        """What a power cut tore of the newest segment is in the log: leave it out."""
        if self._is_unlisted(segment.number):
            known = SEGMENT_START
        elif self.manifest_counts and segment.generation == self.manifest.generation:
            known = self.manifest.end
        else:
            return content
        if segment.generation and known == SEGMENT_START:
            return content
        at = max(start, known)
        return content[: whole_until(content, at, self.store.seed, segment.number)]

    def _unfinished(self, segment: StreamSegment, size: int) -> None:
        """A newest segment of which nothing counts: a crash came before its first batch was
        written, which the log still has. Its number is used again."""
        segment.sealed = True
        if size < SEGMENT_START or segment.created or self._is_unlisted(segment.number):
            ports.remove(segment.path)
            self.store.segments.remove(segment)

    def _report_short(self, segment: StreamSegment, size: int, expected: int) -> None:
        """A file has less than was durable."""
        kept = int(self.store.last_seq)
        if segment.indexed or size < segment.end:
            self._short.append((segment, size))
        if not segment.indexed or self._is_short(segment, int(segment.end)):
            self._gaps.append([kept, 0])
        segment.sealed = True
        text = (
            f" has {size} of at least {expected} bytes; what can be read of it and everything "
            "else of the stream is kept"
        )
        self._damaged(segment.path, text)

    def _load_index(self, segment: StreamSegment, size: int) -> int:
        """Enter a segment by its index, if that is sound and of this making of the segment. Returns
        the offset at which records begin that it does not cover."""
        path = index_path(segment.path)
        if not path.exists():
            return SEGMENT_START
        index = read_index(self.store, ports.read_file(path)[0])
        if index is None:
            text = " is damaged; its segment is read instead"
            self.problems.append(Problem.of(ProblemKind.REPAIRED, path, text))
            return SEGMENT_START
        if (index.number, index.generation, index.stream, index.created) != (
            segment.number,
            segment.generation,
            self.store.stream_id,
            segment.created,
        ):
            return SEGMENT_START
        self._enter_index(segment, index)
        segment.indexed = segment.sealed or size < index.data_end
        return index.data_end

    def _enter_index(self, segment: StreamSegment, index: IndexFile) -> None:
        load_index(self.store, segment, index)
        self.heads.raise_to(index.first_seq, index.last_seq, index.last_ts, index.log_segment)

    def _scan(self, segment: StreamSegment, content: bytes, start: int, is_last: bool) -> bool:
        """Enter what no index covers; whether nothing was wrong."""
        scan = SegmentScan(self.store, segment)
        scan.run(content, start, is_last)
        self.problems += scan.problems
        self._gaps += scan.gaps
        self.heads.raise_to(scan.first_seq, scan.last_seq, scan.last_ts, scan.log_segment)
        return not scan.problems


def read_segment_header(path: Path, seed: int) -> SegmentHeader | None:
    """The header of a stream's segment; None when neither copy is valid. Raises OSError."""
    fd = ports.open_file(path, ports.READ_ONLY)
    try:
        return decode_segment_header(ports.read_parts(fd, SEGMENT_START, 0)[0], seed)
    finally:
        ports.close(fd)


def numbers_of(names: list[str], suffix: str) -> set[int]:
    """Numbers of the files with this suffix, such as 1 of 000001.seg."""
    stems = [name.removesuffix(suffix) for name in names if name.endswith(suffix)]
    return {int(stem) for stem in stems if re.fullmatch(r"[0-9]{6,}", stem)} - {0}


def unreadable_texts(parts: list[tuple[int, int]]) -> list[str]:
    """For people: what of a file cannot be read."""
    return [f"bytes {start} to {end} cannot be read" for start, end in parts]


def remove_gone(store: FileStore, manifest: Manifest) -> None:
    """Remove segments of which others have the messages: a crash came before that was done."""
    store.gone_numbers = {n for first, last in manifest.gone for n in range(first, last + 1)}
    if not store.gone_numbers:
        return
    names = [path.name for path in store.directory.iterdir()] if store.directory.exists() else []
    numbers = (numbers_of(names, ".seg") | numbers_of(names, ".idx")) & store.gone_numbers
    if numbers:
        remove_segments([segment_path(store.directory, number) for number in sorted(numbers)])
