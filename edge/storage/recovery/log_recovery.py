"""What a node finds of its log when it starts: the segments that count, replayed over all streams.

Nothing is removed on doubt, and what was found wrong is told in `problems`.
"""

import logging
from pathlib import Path

from headwater.edge.ports import files as ports
from headwater.edge.storage.directory.directory import StoreDirectory
from headwater.edge.storage.erase.erase_jobs import decode_locations, redo_in_log
from headwater.edge.storage.format.crc import checksum
from headwater.edge.storage.format.problem import Problem, ProblemKind
from headwater.edge.storage.log.commit_log import CommitLog
from headwater.edge.storage.log.log_files import DATA_START, LogHeader, LogSlot, decode_header
from headwater.edge.storage.log.log_segment import LogSegment
from headwater.edge.storage.recovery.own_states import collect_own_states
from headwater.edge.storage.recovery.replay import (
    LogReplay,
    Survey,
    survey,
)
from headwater.edge.storage.recovery.state_copy import BEHIND_MAX
from headwater.edge.storage.recovery.stream_recovery import unreadable_texts
from headwater.edge.storage.recovery.torn_tail import (
    newest_number,
    torn_at,
    unconfirmed,
    was_synced,
)

log = logging.getLogger("headwater.storage")

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


class LogRecovery:
    """Finds the segments of the log that count, and replays them.

    `find` looks at the log, `replay` applies it once the stores are there. `skip` is how many
    messages may have stood in bytes of the log that are missing: streams go on that far ahead.
    """

    def __init__(self, commit_log: CommitLog, directory: StoreDirectory) -> None:
        self.log = commit_log
        self.directory = directory
        self.problems: list[Problem] = []
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
        self._slots: dict[int, tuple[LogHeader, LogSlot]] = {}
        self._unnumbered: list[LogSlot] = []
        self._missing_slots = 0

    def find(self, clean: dict[str, int] | None, expected: bool) -> None:
        """Look at all slots; leaves the position the log goes on from (see `batch`, `chain`,
        `number`, `end`) and the streams' manifests. `expected`: a log must have been there."""
        self.exact = clean is not None or self.directory.same_boot
        self.acknowledged = self.log.progress.watermarks.position(self.exact)
        wrong = self.log.files.load_list(expected)
        if wrong and not self.log.files.listed:
            self._miss(LOG_SEGMENTS_MAX * self.log.segment_bytes)
        self.problems += wrong
        self._find_slots()
        path, surveys = self._follow()
        self.chain, self.number, self.end = 0, 0, 0
        self.next_number = self.copied[0] + NUMBER_STEP if self.copied[0] else 1
        if self.copied[0] > (path[-1].number if path else 0):
            self.next_number += BEHIND_MAX
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
            text = (
                f"the log ends at {self.number}:{self.end}, but was closed at "
                f"{clean['segment']}:{clean['end']}"
            )
            self.problems.append(Problem(ProblemKind.LOST, text))
        elif clean is not None:
            self.skip = 0
        elif self._is_behind(self.number, self.end):
            text = (
                f"the log ends at {self.number}:{self.end}, but what was acknowledged went up to "
                f"{self.acknowledged[0]}:{self.acknowledged[1]}"
            )
            self.problems.append(Problem(ProblemKind.LOST, text))
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

    def _damaged(self, path: Path, text: str) -> None:
        """List damage of a file of the log."""
        self.problems.append(Problem.of(ProblemKind.DAMAGED, path, text))

    def _miss(self, bytes_: int) -> None:
        """So many bytes of the log are gone, and nothing tells what stood there."""
        if bytes_ > 0:
            self.skip += bytes_ // MESSAGE_BYTES_MIN + 1

    def _find_slots(self) -> None:
        files = self.log.files
        missing = dict(files.listed)
        headless: list[tuple[int, LogSlot]] = []
        for path in files.existing():
            missing.pop(path.name, None)
            slot = files.open(path)
            head, _ = ports.read_parts(slot.fd, 2 * DATA_START, 0)
            header = decode_header(head, self.log.seed)
            copies_differ = head[:256] != head[256:DATA_START]
            if header is not None and copies_differ and any(head[DATA_START:]):
                self._damaged(path, ": a copy of the header is damaged")
            if header is None:
                self._without_header(slot, head, headless)
            elif header.number in self._slots:
                self._damaged(path, f": log segment {header.number} is there twice")
                self._unnumbered.append(slot)
            else:
                self._slots[header.number] = (header, slot)
        for number, slot in headless:
            self._add_headless(number, slot)
        for name, capacity in missing.items():
            text = (
                f" ({capacity} bytes) is missing; messages that stood only there are gone, "
                "everything else is kept"
            )
            self.problems.append(Problem.of(ProblemKind.LOST, files.directory / name, text))
            self._missing_slots += 1
            self._miss(capacity)

    def _add_headless(self, number: int, slot: LogSlot) -> None:
        """A slot without a header whose records tell what it is."""
        what = "has a damaged header, in both copies"
        if number in self._slots:
            self._put_aside(slot, what, slot.capacity)
            return
        if any(number < known for known in self._slots):
            # The damaged part may be the beginning of a newer segment.
            self._miss(PAGE_BYTES)
        self._damaged(slot.path, f" {what}; its records are of log segment {number}")
        # A newer segment of which no record was written may have begun in it.
        self._missing_slots += 1
        previous = max((n for n in self._slots if n < number), default=0)
        header = LogHeader(number, previous, 0, 0, 0, slot.capacity, 0, 0)
        self._slots[number] = (header, slot)

    def _without_header(
        self, slot: LogSlot, head: bytes, headless: list[tuple[int, LogSlot]]
    ) -> None:
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

    def _put_aside(self, slot: LogSlot, what: str, bytes_: int) -> None:
        """Nothing of a slot can be used."""
        slot.close()
        kept = self.directory.put_aside(slot.path, f"log slot {what}")
        text = f" {what}; it was moved to {kept}"
        self.problems.append(Problem.of(ProblemKind.UNSERVED, slot.path, text))
        self._missing_slots += 1
        self._miss(bytes_)

    def _is_blank(self, slot: LogSlot, head: bytes) -> bool:
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

    def _expected(self, header: LogHeader, slot: LogSlot) -> int:
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
            text = (
                f" has {found} of {expected} bytes: log segment {segment.number} is kept up to "
                f"byte {kept}, {missing}"
            )
            kind = ProblemKind.LOST if short else ProblemKind.DAMAGED
            self.problems.append(Problem.of(kind, segment.slot.path, text))
        elif limit and (item.damaged or short):
            text = f": log segment {segment.number} is damaged at its end"
            self._damaged(segment.slot.path, text)
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
            text = f": messages cannot be erased: {error}"
            self.problems.append(Problem.of(ProblemKind.FAILED, segment.slot.path, text))
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
                text = f"log segment {number} is missing"
                self.problems.append(Problem(ProblemKind.LOST, text))
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
            for text in unreadable_texts(unreadable):
                self._damaged(slot.path, f": {text}")
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
        self.problems.append(Problem(ProblemKind.UNSERVED, reason, file=str(segment.slot.path)))
        self.directory.keep_copy(segment.slot.path, f"log-{segment.number}.log", reason)


def seed_of(node_id: bytes) -> int:
    """Where the checksums of headers begin, so that records of another node never verify."""
    return int(checksum(node_id))
