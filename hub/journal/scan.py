"""What a start finds in the files of the log.

Only the last batch of the newest file can be torn. Anything else that does not verify is damage:
the rest is kept, and the node knows that something may be missing.
"""

from dataclasses import dataclass, field

from headwater.edge.ports.ports import Disk
from headwater.hub.journal.record import ALIGN, Record, RecordKind, decode_record
from headwater.hub.raft.codec import decode_entries
from headwater.hub.raft.entry import Entry

PREFIX = "raft-"
SUFFIX = ".log"


def segment_name(number: int) -> str:
    """File of a segment."""
    return f"{PREFIX}{number:08d}{SUFFIX}"


def segment_numbers(disk: Disk) -> list[int]:
    """Segments that are there, oldest first."""
    names = (name for name in disk.names() if name.startswith(PREFIX) and name.endswith(SUFFIX))
    return sorted(int(name[len(PREFIX) : -len(SUFFIX)]) for name in names)


@dataclass
class GroupScan:
    """Entries of a group, by index; there may be holes. `bases` are snapshots it began behind."""

    entries: dict[int, Entry] = field(default_factory=dict)
    bases: dict[int, int] = field(default_factory=dict)

    def put(self, entries: list[Entry], term_before: int) -> bool:
        """A run takes the place of everything from its first index on. False, and nothing is
        changed, when it follows another entry than the one that is here: a run between the two
        is lost, and what is here is the log of an earlier moment."""
        first = entries[0].index
        known = self.entries.get(first - 1)
        before = known.term if known else self.bases.get(first - 1)
        if before not in (None, term_before):
            return False
        for index in [index for index in self.entries if index >= first]:
            del self.entries[index]
        self.entries.update((entry.index, entry) for entry in entries)
        return True

    def rebase(self, index: int, term: int) -> None:
        """The log begins anew."""
        self.entries.clear()
        self.bases = {index: term}

    def reaches(self, index: int, term: int) -> bool:
        """Whether the log knew the last entry of a snapshot, in that term."""
        known = self.entries.get(index)
        return (known.term if known else self.bases.get(index)) == term

    def behind(self, index: int, term: int) -> list[Entry]:
        """Entries that surely follow a snapshot: the log reaches it."""
        if not self.reaches(index, term):
            return []
        found = []
        while (entry := self.entries.get(index + 1)) is not None:
            found.append(entry)
            index += 1
        return found


@dataclass
class Scan:
    """The whole log."""

    groups: dict[int, GroupScan] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    tops: dict[int, dict[int, int]] = field(default_factory=dict)
    """Segment -> group -> greatest index it says something about."""
    last: int = 0
    end: int = 0
    """Where the newest segment's last good batch ended."""


def scan(disk: Disk) -> Scan:
    """Read every segment. Raises OSError."""
    result = Scan()
    numbers = segment_numbers(disk)
    contents = {number: disk.read(segment_name(number)) for number in numbers}
    ends = _ends(contents, result)
    for before, number in zip([0, *numbers], numbers, strict=False):
        if before and number != before + 1:
            result.problems.append(f"segments between {before} and {number} are missing")
        newest = number == numbers[-1]
        _read(contents[number], number, ends.get(number), newest, result)
    return result


def _ends(contents: dict[int, bytes], result: Scan) -> dict[int, int]:
    """Where each segment ended, as its successor says."""
    ends = {}
    for number, data in contents.items():
        head = decode_record(data, 0, number)
        if head is not None and head.kind == RecordKind.SEGMENT:
            ends[head.a] = head.b
        elif number != max(contents) or data.strip(b"\0"):
            result.problems.append(f"segment {number} has no beginning")
    return ends


def _read(data: bytes, number: int, end: int | None, newest: bool, result: Scan) -> None:
    """One segment, batch by batch."""
    limit = len(data) if end is None else end
    if limit > len(data):
        result.problems.append(f"segment {number} ends before {limit}")
        limit = len(data)
    batch: list[Record] = []
    doubtful: list[Record] | None = None
    good_end = at = 0
    skipped = False
    while at < limit:
        record = decode_record(data, at, number)
        if record is None or record.end > limit:
            skipped = True
            at += ALIGN
            continue
        at = record.end
        if record.kind != RecordKind.FOOTER:
            batch.append(record)
            continue
        if doubtful is not None:
            _damaged(doubtful, number, record.offset, result)
            doubtful = None
        bad = any(each.body is None for each in batch)
        if skipped or bad or record.a != (batch[0].offset if batch else record.offset):
            doubtful = batch
        else:
            _apply(batch, number, result)
            good_end = at
        skipped = False
        batch = []
    if not newest and (doubtful is not None or batch or skipped):
        _damaged((doubtful or []) + batch, number, limit, result)
    result.last = number
    result.end = good_end


def _damaged(batch: list[Record], number: int, before: int, result: Scan) -> None:
    """A batch that was synced is not whole: keep what verifies."""
    result.problems.append(f"segment {number}: damage before {before}")
    _apply(batch, number, result)


def _apply(batch: list[Record], number: int, result: Scan) -> None:
    tops = result.tops.setdefault(number, {})
    for record in batch:
        if record.kind == RecordKind.SEGMENT:
            continue
        group = result.groups.setdefault(record.group, GroupScan())
        if record.body is None:
            continue
        if record.kind == RecordKind.BASE:
            group.rebase(record.a, record.b)
        elif record.kind == RecordKind.ENTRIES:
            try:
                fits = group.put(decode_entries(record.body), record.b)
                if not fits:
                    result.problems.append(f"segment {number}: entries before {record.a} are lost")
            except (ValueError, IndexError):
                result.problems.append(f"segment {number}: entries at {record.offset} are bad")
        tops[record.group] = max(tops.get(record.group, 0), record.a)
