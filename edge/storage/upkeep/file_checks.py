"""What the scrubber verifies, a step at a time; each step runs in the background.

A check only reads. What it finds is looked at again, by the check and then on the loop, before
anything is done about it: files change while they are read.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from headwater.edge.storage.device.durable_file import TwoCopyFile
from headwater.edge.storage.format.errors import FormatError
from headwater.edge.storage.segments.segment_files import DATA_START
from headwater.edge.storage.upkeep.scrub_check import RecordCheck


class Finding(NamedTuple):
    """A place that does not verify."""

    start: int
    end: int
    kind: int
    """Of the record, when its header verifies; else 0."""
    sequence: int


class FileCheck(ABC):
    """One file. `step` verifies up to `limit` bytes more and returns how many it read; `done` is
    set at the end, when `findings` tells what is wrong. Raises OSError."""

    def __init__(self, path: Path, found: Callable[["FileCheck"], None]) -> None:
        self.path = path
        self.found = found
        """Called on the loop when there are findings."""
        self.findings: list[Finding] = []
        self.done = False
        self.looks = 1

    def look_again(self) -> None:
        """Begin at the start once more."""
        self.findings = []
        self.done = False
        self.looks += 1

    @abstractmethod
    def step(self, limit: int) -> int:
        """Verify the next part."""


class TwoCopyCheck(FileCheck):
    """A small file in two copies; a finding for each bad one."""

    def step(self, limit: int) -> int:
        self.done = True
        file = TwoCopyFile(self.path)
        try:
            content = file.read()
        except FormatError:
            return 0
        self.findings = [Finding(0, 0, 0, 0)] * file.damaged
        return 0 if content is None else 2 * len(content)


class WholeFileCheck(FileCheck):
    """A file that is read whole and verified by `check(bytes)`."""

    def __init__(
        self, path: Path, found: Callable[[FileCheck], None], check: Callable[[bytes], bool]
    ) -> None:
        super().__init__(path, found)
        self._check = check

    def step(self, limit: int) -> int:
        self.done = True
        data = self.path.read_bytes()
        if not self._check(data):
            self.findings = [Finding(0, len(data), 0, 0)]
        return len(data)


class RecordsCheck(FileCheck):
    """The records of a segment or log slot, up to `end`. `headed`: the file begins with a header
    in two copies that must agree."""

    def __init__(
        self,
        path: Path,
        found: Callable[[FileCheck], None],
        seed: int,
        number: int,
        end: int,
        headed: bool,
    ) -> None:
        super().__init__(path, found)
        self._identity = (seed, number)
        self._check = RecordCheck(seed, number)
        self._end = end
        self._headed = headed
        self._at = 0
        self._need = 0

    def look_again(self) -> None:
        super().look_again()
        self._check = RecordCheck(*self._identity)
        self._at = 0
        self._need = 0

    def step(self, limit: int) -> int:
        with self.path.open("rb") as file:
            if self._at == 0:
                self._check_header(file.read(DATA_START))
            file.seek(self._at)
            data = file.read(min(max(limit, self._need), self._end - self._at))
        last = self._at + len(data) >= self._end or not data
        taken = int(self._check.part(data, self._at, last)) if data else 0
        self._at += taken
        # A record that is longer than what was read: read more of it the next time.
        self._need = 0 if taken else 2 * max(len(data), limit)
        if last:
            self.done = True
            if self._at < self._end:
                self.findings.append(Finding(self._at, self._end, 0, 0))
            self.findings += [Finding(*row) for row in self._check.found()]
        return len(data)

    def _check_header(self, head: bytes) -> None:
        self._at = DATA_START
        if self._headed and (len(head) < DATA_START or head[:256] != head[256:]):
            self.findings.append(Finding(0, DATA_START, 0, 0))


def overlaps(findings: list[Finding], rows: list[Any]) -> list[int]:
    """Sequences of `rows`, (sequence, offset), that begin in one of the places found."""
    return [
        sequence
        for sequence, offset in rows
        if any(found.start <= offset < found.end for found in findings)
    ]
