"""What a node finds when it starts: streams with their segments, and the log's tail.

Every stream is read by itself, so that one that cannot be opened takes nothing else down: it is
moved to quarantine. Then the log is replayed over all of them. Nothing is removed on doubt, and
what was found wrong is told in `problems`.
"""

import json
import logging
from dataclasses import dataclass, field
from pathlib import Path

from headwater.edge.storage.commit_log import CommitLog
from headwater.edge.storage.crc import checksum
from headwater.edge.storage.directory import StoreDirectory
from headwater.edge.storage.durable_file import TwoSlotFile
from headwater.edge.storage.file_store import FileStore
from headwater.edge.storage.log_files import DATA_START, LogHeader, Slot, decode_header
from headwater.edge.storage.log_segment import LogSegment
from headwater.edge.storage.replay import LogReplay, SegmentScan, Survey, load_index, survey
from headwater.edge.storage.segment_files import (
    DATA_START as SEGMENT_START,
)
from headwater.edge.storage.segment_files import (
    RUN,
    decode_index,
    decode_segment_header,
    segment_number,
)
from headwater.edge.storage.segment_jobs import index_path
from headwater.edge.storage.stream_segment import StreamSegment

log = logging.getLogger("headwater.storage")

META_SEPARATOR = b"\n"


@dataclass
class RecoveredStream:
    """A file-backed stream that was found. `meta` is what the stream layer stored last."""

    store: FileStore
    account: str
    name: str
    meta: bytes
    problems: list[str] = field(default_factory=list)

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


def encode_meta(identity: dict[str, object], meta: bytes) -> bytes:
    """Content of a stream's meta file: a line of JSON about storage, then the stream's own."""
    return json.dumps(identity).encode() + META_SEPARATOR + meta


def decode_meta(content: bytes) -> tuple[dict[str, str], bytes]:
    line, _, meta = content.partition(META_SEPARATOR)
    return json.loads(line), meta


class StreamRecovery:
    """Reads the segments of one stream into its store."""

    def __init__(self, store: FileStore, problems: list[str]) -> None:
        self.store = store
        self.problems = problems
        self.heads = Heads()

    def run(self) -> Heads:
        """Enter everything; returns how far the stream had come."""
        paths = sorted(
            (path for path in self.store.directory.glob("*.seg") if segment_number(path)),
            key=lambda path: segment_number(path) or 0,
        )
        numbers = [segment_number(path) or 0 for path in paths]
        for before, after in zip(numbers, numbers[1:], strict=False):
            if after != before + 1:
                self.problems.append(f"segments {before + 1} to {after - 1} are missing")
        for path in paths:
            self._load(path, path is paths[-1])
        for segment in self.store.segments:
            for first, last in RUN.iter_unpack(segment.deletes):
                self.store.drop_recovered(first, last)
            for first, last in segment.lost:
                self.store.drop_recovered(first, last)
                for sequence in range(first, last + 1):
                    self.store.lost[sequence] = "it was found damaged before the start"
        heads = self.heads
        self.store.settle_recovered(heads.first_seq, heads.last_seq, heads.last_ts)
        self.store.note_position(heads.last_seq, heads.last_ts)
        self.store.settle_position()
        return heads

    def _load(self, path: Path, is_last: bool) -> None:
        seed = self.store.seed
        with path.open("rb") as file:
            head = file.read(SEGMENT_START)
            header = decode_segment_header(head, seed)
            number = segment_number(path) or 0
            if header is None or header.number != number:
                torn = is_last and len(head) < SEGMENT_START
                if not torn:
                    self.problems.append(f"{path}: the file's header is damaged")
                segment = StreamSegment(number, 0, path)
            else:
                segment = StreamSegment(number, header.generation, path)
                segment.created = header.created
                if head[:256] != head[256:]:
                    self.problems.append(f"{path}: a copy of the file's header is damaged")
            segment.sealed = not is_last
            self.store.adopt(segment)
            start = self._load_index(segment) if segment.created else SEGMENT_START
            size = file.seek(0, 2)
            if size > start:
                file.seek(0)
                self._scan(segment, file.read(), start, is_last)
        if is_last and (not segment.created or segment.end <= SEGMENT_START):
            segment.sealed = True

    def _load_index(self, segment: StreamSegment) -> int:
        path = index_path(segment.path)
        if not path.exists():
            return SEGMENT_START
        index = decode_index(path.read_bytes(), self.store.seed)
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
        load_index(self.store, segment, index)
        segment.indexed = segment.sealed
        self.heads.raise_to(index.first_seq, index.last_seq, index.last_ts, index.log_segment)
        return index.data_end

    def _scan(self, segment: StreamSegment, content: bytes, start: int, is_last: bool) -> None:
        scan = SegmentScan(self.store, segment)
        scan.run(content, start, is_last)
        self.problems += scan.problems
        self.heads.raise_to(scan.first_seq, scan.last_seq, scan.last_ts, scan.log_segment)


class LogRecovery:
    """Finds the segments of the log that count, and replays them."""

    def __init__(self, commit_log: CommitLog, directory: StoreDirectory) -> None:
        self.log = commit_log
        self.directory = directory
        self.problems: list[str] = []
        self.firsts: dict[int, int] = {}
        self.last_times: dict[int, int] = {}
        self._slots: dict[int, tuple[LogHeader, Slot]] = {}
        self._unnumbered: list[Slot] = []

    def run(self, clean: dict[str, int] | None) -> None:
        """Replay; leaves the log ready to be started (see `batch`, `chain`, `number`, `end`)."""
        self._find_slots()
        path, surveys = self._follow()
        self.batch, self.chain, self.number, self.end, self.next_number = 1, 0, 0, 0, 1
        if path:
            self.batch = max(item.batch for item in surveys) + 1
            self.next_number = path[-1].number + 1
            self._cut_part(path, surveys)
        if path:
            last = surveys[-1]
            self.chain, self.number, self.end = last.chain, path[-1].number, last.end
        if clean is not None and (self.number, self.end) < (clean["segment"], clean["end"]):
            self.problems.append(
                f"the log ends at {self.number}:{self.end}, but was closed at "
                f"{clean['segment']}:{clean['end']}"
            )
        replay = LogReplay(self.log)
        for item in surveys:
            replay.deleted.update(item.deleted)
        self.deleted = replay.deleted
        for segment, item in zip(path, surveys, strict=True):
            segment.end = item.end
            segment.shrink()
            replay.gap_is_lost = replay.gap_is_lost or segment.number in self._after_gap
            replay.run(segment)
            if replay.orphans:
                self._keep_orphans(segment, replay.orphans)
                replay.orphans = {}
        self.problems += replay.problems
        self.firsts, self.last_times = replay.firsts, replay.last_times
        self.log.live = path
        for slot in self._unnumbered:
            self.log.files.give_back(slot)

    def _find_slots(self) -> None:
        for path in self.log.files.existing():
            slot = self.log.files.open(path)
            with path.open("rb") as file:
                head = file.read(DATA_START)
            header = decode_header(head, self.log.seed)
            if header is not None and head[:256] != head[256:]:
                self.problems.append(f"{path}: a copy of the header is damaged")
            if header is None:
                self._unnumbered.append(slot)
            elif header.number in self._slots:
                self.problems.append(f"{path}: log segment {header.number} is there twice")
                self._unnumbered.append(slot)
            else:
                self._slots[header.number] = (header, slot)

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
            segment.read_file()
            found = survey(segment, self.log.seed, min(limit, segment.capacity))
            if limit and (found.damaged or limit > segment.capacity):
                self.problems.append(f"{slot.path}: log segment {number} is damaged at its end")
                if path and limit > segment.capacity:
                    self._after_gap.add(path[0].number)
            oldest = max(oldest, header.oldest, found.oldest)
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
            found = surveys[depth]
            found.end, found.chain = found.part_start, found.part_chain
            found.part_start = 0
            for segment in path[depth + 1 :]:
                self._unnumbered.append(segment.slot)
            del path[depth + 1 :], surveys[depth + 1 :]
            if found.end > DATA_START or depth == 0:
                break
            depth -= 1

    def _keep_orphans(self, segment: LogSegment, orphans: dict[int, int]) -> None:
        """Records of streams that nobody knows: keep a copy of the segment before it is reused."""
        names = ", ".join(f"{stream:x} ({count} records)" for stream, count in orphans.items())
        reason = f"log segment {segment.number} holds records of unknown streams: {names}"
        self.problems.append(reason)
        self.directory.keep_copy(
            segment.slot.path, f"log-{segment.number}.log", reason
        )


def read_meta(path: Path) -> tuple[dict[str, str], bytes] | None:
    """Identity and meta of a stream's directory; None when both copies are bad."""
    content = TwoSlotFile(path / "meta").read()
    if content is None:
        return None
    try:
        identity, meta = decode_meta(content)
    except ValueError:
        return None
    return (identity, meta) if {"id", "incarnation", "account", "name"} <= set(identity) else None


def seed_of(node_id: bytes) -> int:
    """Where the checksums of headers begin, so that records of another node never verify."""
    return int(checksum(node_id))
