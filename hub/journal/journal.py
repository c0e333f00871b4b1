"""The disk of a node's groups, behind the disk port.

    raft-NNNNNNNN.log   entries of all groups, in batches that are synced together
    raft.hard           hard state, two copies for each group; group 0 holds the number of the boot
    snap-G-I-T          snapshot of group G at index I, term T
    clean               the last stop was orderly; where the log ended then, and a digest of
                        the hard state, so that a disk that lost only one of them is found out

One sync makes a batch of all groups durable. A file is begun at every start, and none that was
there is written again.
"""

import struct
from dataclasses import dataclass, field

from headwater.edge.ports.ports import Disk
from headwater.edge.storage.format.crc import checksum
from headwater.hub.journal.hard_state_file import NAME as HARD_NAME
from headwater.hub.journal.hard_state_file import HardStateFile
from headwater.hub.journal.record import RecordKind, encode_record
from headwater.hub.journal.scan import Scan, scan, segment_name, segment_numbers
from headwater.hub.raft.codec import encode_entries
from headwater.hub.raft.config import Config, decode_config
from headwater.hub.raft.hard_state import HardState
from headwater.hub.raft.ready import Ready, Restored
from headwater.hub.raft.snapshot import Snapshot

SEGMENT_BYTES = 8 << 20
"""A segment is ended when it is greater; small, so that compacted entries free room soon."""
CLEAN = "clean"
CLEAN_STOP = struct.Struct("<QQQ8sI")
SNAPSHOT_HEAD = struct.Struct("<4sQQQII")
SNAPSHOT_MAGIC = b"HWSN"
BOOT_GROUP = 0
GONE = 1 << 63
"""What is known of a group that is not here: everything may go."""


@dataclass
class JournalStart:
    """What a start found."""

    boot: int
    clean: bool
    groups: dict[int, Restored] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def encode_snapshot(group: int, snapshot: Snapshot) -> bytes:
    """The file of a snapshot."""
    config = snapshot.config.encode()
    head = SNAPSHOT_HEAD.pack(
        SNAPSHOT_MAGIC,
        group,
        snapshot.index,
        snapshot.term,
        len(config),
        int(checksum(snapshot.data, int(checksum(config)))),
    )
    return head + struct.pack("<I", int(checksum(head))) + config + snapshot.data


def decode_snapshot(data: bytes) -> tuple[int, Snapshot] | None:
    """Group and snapshot; None when the file is damaged."""
    head = data[: SNAPSHOT_HEAD.size]
    start = SNAPSHOT_HEAD.size + 4
    if len(data) < start or struct.unpack_from("<I", data, start - 4)[0] != int(checksum(head)):
        return None
    magic, group, index, term, size, crc = SNAPSHOT_HEAD.unpack(head)
    config, content = data[start : start + size], data[start + size :]
    if magic != SNAPSHOT_MAGIC or int(checksum(content, int(checksum(config)))) != crc:
        return None
    return group, Snapshot(index, term, decode_config(config), content)


class Journal:
    """Not thread-safe; one sync at a time. After an OSError of a write or sync it must not be
    used again: close the node and start it anew, unclean."""

    def __init__(self, disk: Disk, boot_floor: int) -> None:
        """Read what is there. `boot_floor`: the wall clock in ns, or any number that grows, so
        that a node whose disk was replaced does not take an old boot's number."""
        self.disk = disk
        self.dirty: set[str] = set()
        self.hard_states = HardStateFile(disk)
        found = scan(disk)
        clean = self._consume_clean(found)
        self.boot = 1 + max(boot_floor, self._boot_before())
        self.start = JournalStart(
            self.boot, clean and not self.hard_states.suspect and not found.problems
        )
        self.start.problems = found.problems
        self.tops = found.tops
        self.bases: dict[int, int] = {}
        """Group -> index of its newest snapshot."""
        self._snapshots: dict[int, str] = {}
        snapshots = self._load_snapshots()
        for group in {*self.hard_states.found, *snapshots} - {BOOT_GROUP}:
            self.start.groups[group] = self._restored(group, found, snapshots)
        if not self.start.clean:
            self._rewrite_tail(found)
            self._rewrite(HARD_NAME)
        self._begin_segment(found.last + 1, found.last, found.end)
        self._log_snapshots(found, snapshots)
        self._write_hard(BOOT_GROUP, HardState(term=self.boot))
        self.sync()
        disk.sync_names()

    # -- the start ------------------------------------------------------------

    def _log_snapshots(self, found: Scan, snapshots: dict[int, Snapshot]) -> None:
        """A power cut came when a snapshot had its name, and before the log said so: what is
        written now does not follow what the log has."""
        for group, each in snapshots.items():
            log = found.groups.get(group)
            if log is None or not log.reaches(each.index, each.term):
                self._add(RecordKind.BASE, group, each.index, each.term, b"")

    def _rewrite_tail(self, found: Scan) -> None:
        """The segment written last, and those behind it that starts began which failed in turn."""
        for number in reversed(segment_numbers(self.disk)):
            self._rewrite(segment_name(number))
            if found.tops.get(number):
                return

    def _rewrite(self, name: str) -> None:
        """After a sync that failed, what was read may be in memory only, and no later sync would
        write it: write it again."""
        if name in self.disk.names():
            self.disk.write(name, 0, self.disk.read(name))
            self.dirty.add(name)

    def _boot_before(self) -> int:
        hard = self.hard_states.found.get(BOOT_GROUP)
        return hard.term if hard else 0

    def _consume_clean(self, found: Scan) -> bool:
        """Whether the record of a clean stop is there and fits; it is taken away before anything
        else happens."""
        if CLEAN not in self.disk.names():
            return False
        data = self.disk.read(CLEAN)
        self.disk.remove(CLEAN)
        self.disk.sync_names()
        if len(data) != CLEAN_STOP.size:
            return False
        boot, segment, end, hard, crc = CLEAN_STOP.unpack(data)
        if crc != int(checksum(data[:-4])):
            return False
        here = (self._boot_before(), found.last, found.end, self.hard_states.digest())
        return (boot, segment, end, hard) == here

    def _load_snapshots(self) -> dict[int, Snapshot]:
        """The newest good one of each group."""
        newest: dict[int, Snapshot] = {}
        for name in self.disk.names():
            if name.startswith("snap-") and not name.endswith(".tmp"):
                found = decode_snapshot(self.disk.read(name))
                if found is None:
                    self.start.clean = False
                    self.start.problems.append(f"{name} is damaged")
                elif found[0] not in newest or newest[found[0]].index < found[1].index:
                    newest[found[0]] = found[1]
                    self._snapshots[found[0]] = name
        return newest

    def _restored(self, group: int, found: Scan, snapshots: dict[int, Snapshot]) -> Restored:
        snapshot = snapshots.get(group) or Snapshot(0, 0, Config())
        self.bases[group] = snapshot.index
        log = found.groups.get(group)
        entries = log.behind(snapshot.index, snapshot.term) if log else []
        hard = self.hard_states.found.get(group)
        clean = self.start.clean and hard is not None and snapshot.index > 0
        return Restored(snapshot, entries, hard, clean)

    def _begin_segment(self, number: int, before: int, before_end: int) -> None:
        self.number = number
        self.offset = 0
        self.batch_start = 0
        self._add(RecordKind.SEGMENT, 0, before, before_end, b"")
        self._footer()

    # -- writing --------------------------------------------------------------

    def _add(self, kind: RecordKind, group: int, a: int, b: int, body: bytes) -> None:
        record = encode_record(kind, self.number, self.offset, group, a, b, body)
        self.disk.write(segment_name(self.number), self.offset, record)
        self.dirty.add(segment_name(self.number))
        self.offset += len(record)
        if group:
            tops = self.tops.setdefault(self.number, {})
            tops[group] = max(tops.get(group, 0), a)

    def _footer(self) -> None:
        self._add(RecordKind.FOOTER, 0, self.batch_start, 0, b"")
        self.batch_start = self.offset

    def create(self, group: int, restored: Restored) -> None:
        """Make a group durable that is begun with `bootstrap`. Raises OSError."""
        self.save_snapshot(group, restored.snapshot)
        self._add(RecordKind.BASE, group, restored.snapshot.index, restored.snapshot.term, b"")
        if restored.hard_state is not None:
            self._write_hard(group, restored.hard_state)
        self.sync()

    def write(self, groups: list[tuple[int, Ready]]) -> None:
        """Write one batch; it is durable after `sync`. Raises OSError."""
        for group, ready in groups:
            if ready.snapshot is not None:
                self.save_snapshot(group, ready.snapshot)
                base = ready.snapshot
                self._add(RecordKind.BASE, group, base.index, base.term, b"")
            if ready.entries:
                body = encode_entries(ready.entries)
                last = ready.entries[-1].index
                self._add(RecordKind.ENTRIES, group, last, ready.before_term, body)
            if ready.hard_state is not None:
                self._write_hard(group, ready.hard_state)

    def _write_hard(self, group: int, hard: HardState) -> None:
        self.hard_states.write(group, hard)
        self.dirty.add(HARD_NAME)

    def sync(self) -> None:
        """Make everything written so far durable, as one batch. Raises OSError."""
        if self.offset > self.batch_start:
            self._footer()
        for name in sorted(self.dirty):
            self.disk.sync(name)
        self.dirty.clear()
        if self.offset > SEGMENT_BYTES:
            self._begin_segment(self.number + 1, self.number, self.offset)
            self.disk.sync(segment_name(self.number))
            self.disk.sync_names()
            self.dirty.clear()

    def save_snapshot(self, group: int, snapshot: Snapshot) -> None:
        """Make a snapshot durable and drop the one before; then entries up to it may go."""
        name = f"snap-{group}-{snapshot.index}-{snapshot.term}"
        temporary = name + ".tmp"
        self.disk.write(temporary, 0, encode_snapshot(group, snapshot))
        self.disk.sync(temporary)
        self.disk.rename(temporary, name)
        self.disk.sync_names()
        old = self._snapshots.get(group)
        self._snapshots[group] = name
        self.bases[group] = snapshot.index
        if old is not None and old != name:
            self.disk.remove(old)

    def reclaim(self) -> int:
        """Remove segments, from the oldest, that say nothing behind a snapshot. The entry at a
        snapshot's index stays: it proves that what follows belongs to it. Returns how many."""
        removed = 0
        for number in segment_numbers(self.disk):
            tops = self.tops.get(number, {})
            if number == self.number or any(
                top >= self.bases.get(group, GONE) for group, top in tops.items()
            ):
                break
            self.disk.remove(segment_name(number))
            self.tops.pop(number, None)
            removed += 1
        return removed

    def erase(self, group: int) -> None:
        """Forget a group for good: it was removed by an order that is committed."""
        name = self._snapshots.pop(group, None)
        if name is not None:
            self.disk.remove(name)
        self.bases.pop(group, None)
        self.hard_states.erase(group)
        self.dirty.add(HARD_NAME)

    def record_clean_stop(self) -> None:
        """The node stops, and everything it said is here. Nothing may be written afterwards."""
        self.sync()
        record = struct.pack(
            "<QQQ8s", self.boot, self.number, self.offset, self.hard_states.digest()
        )
        self.disk.write(CLEAN, 0, record + struct.pack("<I", int(checksum(record))))
        self.disk.sync(CLEAN)
        self.disk.sync_names()
