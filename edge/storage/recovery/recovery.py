"""What a node finds when it starts: streams with their segments, and the log's tail.

Every stream is read by itself, so that one that cannot be opened takes nothing else down: it is
moved to quarantine. Then the log is replayed over all of them. Nothing is removed on doubt, and
what was found wrong is told in `problems`.
"""

import logging
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from headwater.edge.ports import files as ports
from headwater.edge.storage.directory.directory import StoreDirectory
from headwater.edge.storage.erase.erase_jobs import decode_locations, redo_in_log
from headwater.edge.storage.format.crc import checksum
from headwater.edge.storage.log.commit_log import CommitLog
from headwater.edge.storage.log.log_files import DATA_START, LogHeader, Slot, decode_header
from headwater.edge.storage.log.log_segment import LogSegment
from headwater.edge.storage.recovery.own_states import collect_own_states
from headwater.edge.storage.recovery.replay import (
    LOST_MAX,
    LogReplay,
    SegmentScan,
    Survey,
    cut_off,
    first_alive,
    survey,
)
from headwater.edge.storage.recovery.torn_tail import (
    newest_number,
    torn_at,
    unconfirmed,
    was_synced,
    whole_until,
)
from headwater.edge.storage.segments.file_store import FileStore
from headwater.edge.storage.segments.index_bytes import read_index
from headwater.edge.storage.segments.index_load import load_index
from headwater.edge.storage.segments.loss import LOST_BEFORE, removed_before, set_size
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

META_SEPARATOR = b"\n"
# The least that a message takes in the log: a header, and a subject of one byte.
MESSAGE_BYTES_MIN = 72
# A power cut may leave records of one further segment whose header it lost: the number after the
# newest one is not used again, or they would verify.
NUMBER_STEP = 2
# A slot that begins with so many zeros was never used; a damaged page is smaller.
BLANK_BYTES = 64 << 10
PAGE_BYTES = 4096
# Segments that the log has at most (see CommitLog), for when nothing of it is left.
LOG_SEGMENTS_MAX = 12


@dataclass
class RecoveredStream:
    """A file-backed stream that was found. `meta` is what the stream layer stored last."""

    store: FileStore
    account: str
    name: str
    meta: bytes
    problems: list[str] = field(default_factory=list)
    recovery: "StreamRecovery | None" = None
    """What is to be finished once the log was read; None afterwards."""

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
        problems: list[str],
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
                self.store.drop_recovered(first, last)
                removed_before(self.store, first, last)
            for first, last in segment.lost:
                self.store.drop_recovered(first, last)
                for sequence in range(first, last + 1):
                    self.store.lost[sequence] = LOST_BEFORE
        heads = self.heads
        self.store.advance_recovered(heads.first_seq, heads.last_seq, heads.last_ts)
        self.store.move_copied(heads.last_seq, heads.last_ts)
        self.store.advance_durable()
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
                store.drop_recovered(sequence, sequence)
                store.add_lost(sequence, f"{segment.path.name} has only {size} bytes")
                set_size(store, sequence, counted)
        oldest = self._oldest()
        if manifest.oldest < oldest and first <= manifest.oldest_last:
            self.problems.append(
                f"{segment_path(store.directory, manifest.oldest)} is missing, with messages up to "
                f"{manifest.oldest_last}; everything else of the stream is kept"
            )
            self._gaps.append([first - 1, manifest.oldest_last + 1])
        for before, following in self._gaps:
            self._name_lost(max(before + 1, first), following - 1 if following else manifest.last)
        for begin, end in removed:
            removed_before(store, begin, end)
        if manifest.last > store.durable_last:
            store.move_copied(manifest.last, 0)
            store.advance_durable()
        store.advance_recovered(0, manifest.last, 0)
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
        what = f"{path} {state}"
        self.store.adopt(segment)
        if index is not None and fits:
            segment.generation, segment.created = index.generation, index.created
            self._enter_index(segment, index)
            segment.indexed = True
            self._short.append((segment, 0))
        else:
            self._gaps.append([int(self.store.last_seq), 0])
        if segment.number == self.manifest.segment:
            what += f"; {self.manifest.end} bytes of it were there"
        self.problems.append(f"{what}; everything else of the stream is kept")

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
            log.warning("%s cannot be written again from byte %d on: %s", path, start, error)
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
        seed = self.store.seed
        fd = ports.open_file(path, ports.READ_ONLY)
        try:
            head, _ = ports.read_parts(fd, SEGMENT_START, 0)
            header = decode_segment_header(head, seed)
            number = segment_number(path) or 0
            if header is not None and header.stream != self.store.stream_id:
                self.problems.append(f"{path} is a segment of another stream")
                self.on_foreign(path)
                self._load_missing(path)
                return
            self._make_durable(path, header)
            size = path.stat().st_size
            if header is None and self._is_emptied(path, size, is_last):
                self._load_missing(path, f"has only {size} bytes")
                return
            if header is None or header.number != number:
                torn = is_last and (len(head) < SEGMENT_START or self._is_unlisted(number))
                if not torn and size:
                    self.problems.append(f"{path}: the file's header is damaged")
                segment = StreamSegment(number, 0, path)
            else:
                segment = StreamSegment(number, header.generation, path)
                segment.created = header.created
                if head[:256] != head[256:]:
                    self.problems.append(f"{path}: a copy of the file's header is damaged")
            short = self._is_short(segment, size)
            segment.sealed = not is_last or short
            self.store.adopt(segment)
            start = self._load_index(segment, size) if segment.created else SEGMENT_START
            if size > start:
                content, unreadable = ports.read_parts(fd, size, 0)
                self.problems += [f"{path}: {text}" for text in unreadable_texts(unreadable)]
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
        self.problems.append(
            f"{segment.path} has {size} of at least {expected} bytes; what can be read of it and "
            "everything else of the stream is kept"
        )

    def _load_index(self, segment: StreamSegment, size: int) -> int:
        path = index_path(segment.path)
        if not path.exists():
            return SEGMENT_START
        index = read_index(self.store, ports.read_file(path)[0])
        if index is None:
            self.problems.append(f"{path} is damaged; its segment is read instead")
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


class LogRecovery:
    """Finds the segments of the log that count, and replays them.

    `find` looks at the log, `replay` applies it once the stores are there. `skip` is how many
    messages may have stood in bytes of the log that are missing: streams go on that far ahead.
    """

    def __init__(self, commit_log: CommitLog, directory: StoreDirectory) -> None:
        self.log = commit_log
        self.directory = directory
        self.problems: list[str] = []
        self.firsts: dict[int, int] = {}
        self.last_times: dict[int, int] = {}
        self.watched: dict[int, list[tuple[int, int]]] = {}
        """By stream id: runs that the log takes out, of streams that ask for it."""
        self.manifests: dict[bytes, bytes] = {}
        self.metas: dict[bytes, tuple[bytes, bool]] = {}
        """Value, and whether something was added to it, by incarnation."""
        self.copied = (0, 0)
        """See StateCopy.position; and what was put or deleted from there on, if the log lacks
        any."""
        self.touched: set[tuple[bytes, bytes]] | None = None
        self.skip = 0
        self.exact = False
        """Whether watermarks tell exactly what was acknowledged."""
        self.acknowledged = (0, 0, 0)
        """Segment, end and number of the last batch that is known to have been acknowledged."""
        self.erases: list[tuple[int, int, bytes]] = []
        self.erase_done = 0
        self._slots: dict[int, tuple[LogHeader, Slot]] = {}
        self._unnumbered: list[Slot] = []
        self._missing_slots = 0

    def find(self, clean: dict[str, int] | None, expected: bool) -> None:
        """Look at all slots; leaves the position the log goes on from (see `batch`, `chain`,
        `number`, `end`) and the streams' manifests. `expected`: a log must have been there."""
        self.exact = clean is not None or self.directory.same_boot
        self.acknowledged = self.log.watermarks.position(self.exact)
        wrong = self.log.files.load_list(expected)
        if wrong and not self.log.files.listed:
            self._miss(LOG_SEGMENTS_MAX * self.log.segment_bytes)
        self.problems += wrong
        self._find_slots()
        path, surveys = self._follow()
        self.chain, self.number, self.end = 0, 0, 0
        self.next_number = self.copied[0] + NUMBER_STEP if self.copied[0] else 1
        self.batch = max([self.acknowledged[2], *[item.batch for item in surveys]]) + 1
        if path:
            number = path[-1].number + NUMBER_STEP + self._missing_slots
            self.next_number = max(self.next_number, number)
            if not self.skip and not self._is_behind(path[-1].number, surveys[-1].end):
                self._cut_part(path, surveys)
            if self.log.files.scarce and not self.problems:
                self._drop_empty(path, surveys)
        for item in surveys:
            collect_own_states(item, self.manifests, self.metas)
            self.erase_done = max(self.erase_done, int(item.erase_done))
            self.erases += [row[1:] for row in item.erases if row[0] <= item.end]
        if path:
            last = surveys[-1]
            self.chain, self.number, self.end = last.chain, path[-1].number, last.end
        if clean is not None and (self.number, self.end) < (clean["segment"], clean["end"]):
            self.problems.append(
                f"the log ends at {self.number}:{self.end}, but was closed at "
                f"{clean['segment']}:{clean['end']}"
            )
        elif clean is not None:
            self.skip = 0
        elif self._is_behind(self.number, self.end):
            self.problems.append(
                f"the log ends at {self.number}:{self.end}, but what was acknowledged went up to "
                f"{self.acknowledged[0]}:{self.acknowledged[1]}"
            )
            self.next_number = max(self.next_number, self.acknowledged[0] + NUMBER_STEP)
        self._path, self._surveys = path, surveys
        if path and self.end:
            self._write_again(path[-1])

    def _is_behind(self, number: int, end: int) -> bool:
        """Whether something acknowledged stood behind this position of the log."""
        return (number, end) < self.acknowledged[:2]

    def _write_again(self, segment: LogSegment) -> None:
        """Write what no footer calls durable once more, and sync it: after a failed sync it can be
        read until the power is cut, but is not on the device. Raises OSError."""
        start = unconfirmed(segment, self.log.seed, self.end, not self.exact)
        if start <= DATA_START:
            start = 0
        end = min(self.end, int(segment.capacity))
        if start < end:
            ports.write_all(segment.fd, segment.bytes_at(start, end - start), start)
            ports.sync_data(segment.fd)

    def replay(self) -> None:
        """Apply the log to the stores."""
        path, surveys = self._path, self._surveys
        replay = LogReplay(self.log)
        replay.watched = self.watched
        replay.copied = self.copied
        for item in surveys:
            replay.deleted.update(row[1] for row in item.deleted if row[0] <= item.end)
        self.deleted = replay.deleted
        for segment, item in zip(path, surveys, strict=True):
            segment.end = item.end
            segment.shrink()
            replay.gap_is_lost = replay.gap_is_lost or segment.number in self._after_gap
            replay.run(segment)
            if replay.orphans:
                self._keep_orphans(segment, replay.orphans)
                replay.orphans = {}
        self._miss(replay.unknown_bytes)
        self.problems += replay.problems
        self.firsts, self.last_times = replay.firsts, replay.last_times
        self.touched = replay.touched if self.problems else None
        self.log.live = path
        for slot in self._unnumbered:
            self.log.files.free_slot(slot)

    def _miss(self, bytes_: int) -> None:
        """So many bytes of the log are gone, and nothing tells what stood there."""
        if bytes_ > 0:
            self.skip += bytes_ // MESSAGE_BYTES_MIN + 1

    def _find_slots(self) -> None:
        files = self.log.files
        missing = dict(files.listed)
        headless: list[tuple[int, Slot]] = []
        for path in files.existing():
            missing.pop(path.name, None)
            slot = files.open(path)
            head, _ = ports.read_parts(slot.fd, 2 * DATA_START, 0)
            header = decode_header(head, self.log.seed)
            copies_differ = head[:256] != head[256:DATA_START]
            if header is not None and copies_differ and any(head[DATA_START:]):
                self.problems.append(f"{path}: a copy of the header is damaged")
            if header is None:
                self._without_header(slot, head, headless)
            elif header.number in self._slots:
                self.problems.append(f"{path}: log segment {header.number} is there twice")
                self._unnumbered.append(slot)
            else:
                self._slots[header.number] = (header, slot)
        for number, slot in headless:
            self._add_headless(number, slot)
        for name, capacity in missing.items():
            self.problems.append(
                f"{files.directory / name} ({capacity} bytes) is missing; messages that stood "
                "only there are gone, everything else is kept"
            )
            self._missing_slots += 1
            self._miss(capacity)

    def _add_headless(self, number: int, slot: Slot) -> None:
        """A slot without a header whose records tell what it is."""
        what = "has a damaged header, in both copies"
        if number in self._slots:
            self._put_aside(slot, what, slot.capacity)
            return
        if any(number < known for known in self._slots):
            # The damaged part may be the beginning of a newer segment.
            self._miss(PAGE_BYTES)
        self.problems.append(f"{slot.path} {what}; its records are of log segment {number}")
        # A newer segment of which no record was written may have begun in it.
        self._missing_slots += 1
        previous = max((n for n in self._slots if n < number), default=0)
        header = LogHeader(number, previous, 0, 0, 0, slot.capacity, 0, 0)
        self._slots[number] = (header, slot)

    def _without_header(self, slot: Slot, head: bytes, headless: list[tuple[int, Slot]]) -> None:
        """A slot that was never used, or of which the beginning is gone. A crash during the very
        first write leaves a part of the first copy and nothing behind it."""
        expected = self.log.files.listed.get(slot.path.name, slot.capacity)
        whole = slot.capacity >= expected
        if whole and self._is_blank(slot, head):
            self._unnumbered.append(slot)
            return
        what = (
            "has a damaged header, in both copies"
            if whole
            else f"has {slot.capacity} of {expected} bytes and no header"
        )
        segment = LogSegment(0, slot)
        unreadable = segment.read_file()
        number = newest_number(segment, self.log.seed)
        if number and whole:
            headless.append((number, slot))
            return
        # No record can be read: what cannot be read is all that there may have been.
        missing = sum(end - start for start, end in unreadable)
        self._put_aside(slot, what, missing or max(expected, slot.capacity))

    def _put_aside(self, slot: Slot, what: str, bytes_: int) -> None:
        """Nothing of a slot can be used."""
        slot.close()
        kept = self.directory.put_aside(slot.path, f"log slot {what}")
        self.problems.append(f"{slot.path} {what}; it was moved to {kept}")
        self._missing_slots += 1
        self._miss(bytes_)

    def _is_blank(self, slot: Slot, head: bytes) -> bool:
        """Whether a slot was never used: nothing that was durable stands in it."""
        if any(head[256:DATA_START]):
            return False
        begin, _ = ports.read_parts(slot.fd, BLANK_BYTES, 0)
        if begin.count(0, 256) == max(len(begin) - 256, 0):
            return True
        # A power cut may lose the header of a fresh slot and keep some of what is behind.
        segment = LogSegment(0, slot)
        segment.read_file()
        return not was_synced(segment, self.log.seed)

    def _expected(self, header: LogHeader, slot: Slot) -> int:
        """Bytes that a slot was made with."""
        return int(self.log.files.listed.get(slot.path.name, header.capacity))

    def _survey(
        self,
        segment: LogSegment,
        expected: int,
        limit: int,
        newest: bool,
        unreadable: list[tuple[int, int]],
    ) -> tuple[Survey, Survey]:
        """Look at one segment, and tell what is wrong with its file; `limit` is where it ended,
        0 when it is the newest and nothing tells. Returns all that is there, and what counts for
        certain: a last batch that goes on in a `newest` segment, where nothing is, may not."""
        found = segment.capacity
        short = max(found, DATA_START) < (limit or expected)
        limit_here = min(limit, segment.capacity)
        item = survey(segment, self.log.seed, limit_here, short and not limit)
        if unreadable and not limit and unreadable[-1][1] > item.end:
            # What made the last records count may have stood there.
            self._miss(sum(max(end - max(start, item.end), 0) for start, end in unreadable))
            item = survey(segment, self.log.seed, 0, True)
        elif not limit and not short and not unreadable:
            same_boot = self.directory.same_boot
            end = torn_at(segment, self.log.seed, item.end, same_boot, self.acknowledged[2])
            end = end or item.end
            item = survey(segment, self.log.seed, end)
        sure = item
        if newest and item.part_start:
            sure = survey(segment, self.log.seed, item.part_start)
        if self._erase_again(segment, sure):
            item = survey(segment, self.log.seed, limit_here or item.end, short and not limit)
        if found < expected:
            kept = min(item.end, found)
            gone = "messages and states of consumers behind are gone"
            missing = gone if short else "nothing of it is missing"
            self.problems.append(
                f"{segment.slot.path} has {found} of {expected} bytes: log segment "
                f"{segment.number} is kept up to byte {kept}, {missing}"
            )
        elif limit and (item.damaged or short):
            self.problems.append(
                f"{segment.slot.path}: log segment {segment.number} is damaged at its end"
            )
        if short:
            self._miss((limit or expected) - found)
        return item, sure

    def _erase_again(self, segment: LogSegment, item: Survey) -> bool:
        """Finish overwriting messages in a log segment; those that shall be are named in it or in
        newer ones. Whether a crash had left one half overwritten."""
        self.erase_done = max(self.erase_done, int(item.erase_done))
        self.erases += [row[1:] for row in item.erases if row[0] <= item.end]
        rows = [
            (stream, location)
            for number, stream, body in self.erases
            if number > self.erase_done
            for location in decode_locations(body)
        ]
        try:
            return redo_in_log(segment, int(item.end), rows, self.log.seed)
        except OSError as error:
            self.problems.append(f"{segment.slot.path}: messages cannot be erased: {error}")
            return False

    def erases_left(self) -> list[tuple[int, int, bytes]]:
        """(number, stream id, locations) of messages whose overwriting is not known to be done."""
        rows = {row[0]: row for row in self.erases if row[0] > self.erase_done}
        return [rows[number] for number in sorted(rows)]

    def _follow(self) -> tuple[list[LogSegment], list[Survey]]:
        """From the newest segment back to the oldest one that is needed."""
        path: list[LogSegment] = []
        surveys: list[Survey] = []
        self._after_gap: set[int] = set()
        number = max(self._slots, default=0)
        oldest, limit = 1, 0
        while number >= oldest and number > 0:
            if number not in self._slots:
                self.problems.append(f"log segment {number} is missing")
                if path:
                    self._after_gap.add(path[0].number)
                number, limit = max((n for n in self._slots if n < number), default=0), 0
                continue
            header, slot = self._slots.pop(number)
            segment = LogSegment(number, slot)
            segment.previous = header.previous
            segment.previous_end = header.previous_end
            segment.previous_chain = header.previous_chain
            unreadable = segment.read_file()
            segment.suspect = bool(unreadable)
            self.problems += [f"{slot.path}: {text}" for text in unreadable_texts(unreadable)]
            newest = all(item.end == DATA_START for item in surveys)
            expected = self._expected(header, slot)
            found, sure = self._survey(segment, expected, limit, newest, unreadable)
            if path and limit > max(segment.capacity, DATA_START):
                self._after_gap.add(path[0].number)
            oldest = max(oldest, header.oldest, sure.oldest)
            path.insert(0, segment)
            surveys.insert(0, found)
            number, limit = header.previous, header.previous_end
        while path and path[0].number < oldest:
            self._unnumbered.append(path.pop(0).slot)
            surveys.pop(0)
        self._unnumbered += [slot for _, slot in self._slots.values()]
        return path, surveys

    def _cut_part(self, path: list[LogSegment], surveys: list[Survey]) -> None:
        """Take back a last batch that was to go on in a segment where it never ended."""
        depth = len(path) - 1
        if surveys[depth].end == DATA_START and depth:
            depth -= 1
        while surveys[depth].part_start:
            found = survey(path[depth], self.log.seed, surveys[depth].part_start)
            found.part_start = 0
            surveys[depth] = found
            for segment in path[depth + 1 :]:
                self._unnumbered.append(segment.slot)
            del path[depth + 1 :], surveys[depth + 1 :]
            if found.end > DATA_START or depth == 0:
                break
            depth -= 1

    def _drop_empty(self, path: list[LogSegment], surveys: list[Survey]) -> None:
        """Leave out newest segments in which nothing counts: starts that soon ended began them."""
        while len(path) > 1 and surveys[-1].end == DATA_START:
            self._unnumbered.append(path.pop().slot)
            surveys.pop()

    def _keep_orphans(self, segment: LogSegment, orphans: dict[int, int]) -> None:
        """Records of streams that nobody knows: keep a copy of the segment before it is reused."""
        names = ", ".join(f"{stream:x} ({count} records)" for stream, count in orphans.items())
        reason = f"log segment {segment.number} holds records of unknown streams: {names}"
        self.problems.append(reason)
        self.directory.keep_copy(segment.slot.path, f"log-{segment.number}.log", reason)


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


def seed_of(node_id: bytes) -> int:
    """Where the checksums of headers begin, so that records of another node never verify."""
    return int(checksum(node_id))
