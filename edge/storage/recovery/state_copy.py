"""A second home for consumers: their states, as the log had them a while ago, in a file.

The log is the only place where consumers are kept, so a slot of it that is gone could take all of
them along. The file is written when the node stops in order, and in the background soon after a
consumer was made, changed or removed and whenever a log segment was checkpointed; if it would say
the same, only when the log has gone on by some segments. A start reads it, and uses it only when
something is missing of the log: then what the file has counts, with what the log said later.
"""

import logging
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headwater.edge.storage.device.background import Background
from headwater.edge.storage.device.durable_file import TwoCopyFile
from headwater.edge.storage.format.crc import checksum_parts
from headwater.edge.storage.format.errors import StoreError
from headwater.edge.storage.format.problem import Problem, ProblemKind

NAME = "consumers"
CONSUMER = b"consumer/"
KEYS = (CONSUMER, b"stream/epochs")
# A replicated stream: other replicas have its consumers, and an old copy would not agree with them.
REPLICATED = b"raft"
HEAD = struct.Struct("<II")
ROW = struct.Struct("<IIII")
PIECE = struct.Struct("<I")
# How long changes wait for company, and the bytes that are written per second at most, about.
REST_SECONDS = 1.0
RATE = 64 << 10
# States that are taken in one turn.
SLICE = 100
BEHIND_MAX = 8
"""Log segments that may be checkpointed before a file is written that says the same again."""

log = logging.getLogger("headwater.storage")

LogPosition = tuple[int, int]
Row = tuple[bytes, bytes, bytes | None, list[bytes]]


class StateCopy:
    """The file of one node's store; see the module."""

    def __init__(self, root: Path) -> None:
        self.position: LogPosition = (0, 0)
        """Log segment, and offset in it, up to which the log is in the file; (0, 0): no file."""
        self.stopped = False
        """Set to have no more written."""
        self._file = TwoCopyFile(root / NAME)
        self._rows: list[Row] = []
        self._log: Any = None
        self._background: Background | None = None
        self._waiting = self._again = False
        self._kept: tuple[int, int] | None = None
        """Checksum of the rows that were written last, and the log segment then."""

    # At a start.

    def read(self, problems: list[Problem]) -> LogPosition:
        """Read the file; returns `position`. Raises OSError."""
        content = self._file.read()
        if self._file.damaged:
            copies = "a copy" if content is not None else "both copies"
            text = f": {copies} damaged; it is written again"
            problems.append(Problem.of(ProblemKind.REPAIRED, self._file.path, text))
        if content is not None:
            self.position = HEAD.unpack_from(content)
            self._rows = list(decode_rows(content))
        return self.position

    def start(
        self, commit_log: Any, background: Background, touched: set[tuple[bytes, bytes]] | None
    ) -> list[Problem]:
        """The log takes records: write the file from now on. `touched`: the log lacks some that it
        had, and what it still has put or deleted these states from `position` on; put others back.
        Returns what is to be told."""
        self._log, self._background = commit_log, background
        rows, self._rows = self._rows, []
        found: list[Problem | None] = []
        try:
            if touched is not None:
                stores = {item.incarnation.encode(): item for item in commit_log.stores.values()}
                found = [self._put_back(row, touched, stores.get(row[0])) for row in rows]
        except StoreError as error:
            text = f"not all consumers could be put back from {self._file.path}: {error}"
            found.append(Problem(ProblemKind.LOST, text, file=str(self._file.path)))
        commit_log.table.on_change = self._changed
        if any(found) or self._file.damaged or self._file.begun >= 0:
            self.wake()
        return [problem for problem in found if problem is not None]

    def _put_back(self, row: Row, touched: set[tuple[bytes, bytes]], store: Any) -> Problem | None:
        """Put a state that the log lacks, or has without something that was added to it, with what
        the log has. Returns what is to be told. Raises StoreError."""
        owner, key, stored, deltas = row
        table = self._log.table
        found = self._log.states(owner)
        value = table.opened(owner, key, stored)
        if store is None or (owner, key) in touched or REPLICATED in found or value is None:
            return None
        known, later = found.get(key, (None, []))
        if known == value and len(later) >= len(deltas):
            return None
        before = [table.opened(owner, key, delta) for delta in deltas]
        self._log.put_state(owner, key, value)
        for delta in [*(delta for delta in before if delta is not None), *later]:
            self._log.add_delta(owner, key, delta)
        if known is not None or not key.startswith(CONSUMER):
            return None
        name = key[len(CONSUMER) :].decode("utf-8", "replace")
        text = (
            f"consumer '{name}' of the stream in {store.directory} was put back from "
            f"{self._file.path}; it may get messages again"
        )
        return Problem(ProblemKind.REPAIRED, text, file=str(self._file.path))

    # While the node runs.

    def _changed(self, owner: bytes, key: bytes) -> None:
        if key.startswith(KEYS) and not owner.startswith(b"\0"):
            self.wake()

    def write_again(self) -> None:
        """The file is not as it was written: write it soon, whatever it says."""
        self._kept = None
        self.wake()

    def wake(self) -> None:
        """Write the file soon, if there is anything new to write."""
        if self._background is None:
            return
        self._again = True
        if not self._waiting:
            self._waiting = True
            self._log.kernel.loop.call_later(REST_SECONDS, self._begin)

    @property
    def idle(self) -> bool:
        """Whether nothing is to be written, as far as is known."""
        return not self._waiting

    def _begin(self) -> None:
        if self.stopped or self._log.closed:
            return
        self._again = False
        position, lsn = self._here()
        steps = encode_rows(self._log.table)
        self._encode(steps, [HEAD.pack(*position)], lsn)

    def _here(self) -> tuple[LogPosition, int]:
        """Where the next record will stand, or before that; and what comes before."""
        lsn = self._log.hand_over()
        active = self._log.active
        return (active.number, active.end), lsn

    def _encode(self, steps: Iterator[bytes], parts: list[bytes], lsn: int) -> None:
        """Go on with what is to be written, a few states per turn: what changes meanwhile is in the
        log behind `position`."""
        if self.stopped or self._log.closed:
            return
        for _ in range(SLICE):
            part = next(steps, None)
            if part is None and len(parts) == 1 and not self._file.path.exists():
                self._waiting = False
                return
            if part is None:
                self._keep(parts, lsn)
                return
            parts.append(part)
        self._log.kernel.loop.call_soon(self._encode, steps, parts, lsn)

    def _keep(self, parts: list[bytes], lsn: int) -> None:
        """Write these parts of a file once they are durable in the log, if they say anything new
        or the last one is old."""
        rows = checksum_parts(parts[1:], 0)
        segment = HEAD.unpack(parts[0])[0]
        kept = self._kept
        same = kept is not None and kept[0] == rows and segment < kept[1] + BEHIND_MAX
        if same and self._file.path.exists():
            self._rested()
            return
        self._kept = None
        lsn = max(lsn, self._log.hand_over())
        self._log.when_durable(lsn, lambda: self._write(b"".join(parts), (rows, segment)))

    def _write(self, content: bytes, kept: tuple[int, int]) -> None:
        """Everything in it is durable in the log."""
        if self.stopped or self._log.closed or self._background is None:
            return

        def written(result: object, error: BaseException | None) -> None:
            self._kept = None if error is not None else kept
            self._written(result, error)

        self._background.submit(lambda: self._file.write(content), written)

    def _written(self, result: object, error: BaseException | None) -> None:
        if error is not None:
            log.warning(
                "%s cannot be written: %s; the next start reads states from the log alone",
                self._file.path,
                error,
            )
        size = self._file.path.stat().st_size if self._file.path.exists() else 0
        if not self._log.closed:
            pause = max(REST_SECONDS, size / RATE)
            self._log.kernel.loop.call_later(pause, self._rested)

    def _rested(self) -> None:
        self._waiting = False
        if self._again:
            self._again = False
            self.wake()

    def write_last(self, position: LogPosition) -> None:
        """The node stops in order and its log ends at `position`."""
        rows = list(encode_rows(self._log.table)) if self._log is not None else []
        try:
            if rows or self._file.path.exists():
                self._file.write(HEAD.pack(*position) + b"".join(rows))
        except OSError as error:
            log.warning(
                "%s cannot be written: %s; the next start reads states from the log alone",
                self._file.path,
                error,
            )


def encode_rows(table: Any) -> Iterator[bytes]:
    """Rows of the file, one per state."""
    for owner in table.owners():
        keys = table.keys(owner)
        if owner.startswith(b"\0") or REPLICATED in keys:
            continue
        for key in keys:
            found = table.stored(owner, key) if key.startswith(KEYS) else None
            if found is not None:
                value, deltas = found
                yield b"".join(
                    [
                        ROW.pack(len(owner), len(key), len(value), len(deltas)),
                        owner,
                        key,
                        value,
                        *(PIECE.pack(len(delta)) + delta for delta in deltas),
                    ]
                )


def decode_rows(content: bytes) -> Iterator[Row]:
    """What `encode_rows` made, behind the head."""
    at = HEAD.size
    while at < len(content):
        a, b, c, count = ROW.unpack_from(content, at)
        at += ROW.size
        owner, key = content[at : at + a], content[at + a : at + a + b]
        at += a + b
        value = content[at : at + c]
        at += c
        deltas = []
        for _ in range(count):
            (size,) = PIECE.unpack_from(content, at)
            deltas.append(content[at + PIECE.size : at + PIECE.size + size])
            at += PIECE.size + size
        yield owner, key, value, deltas


def position_of(position: dict[str, int]) -> LogPosition:
    """Where the log ends, by `CommitLog.position`."""
    return position["segment"], position["end"]
