"""What is wrong with what a node stores: typed, so that it can be counted, shown and looked up."""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any


class ProblemKind(StrEnum):
    """What follows from a problem."""

    REPAIRED = "repaired"
    """Something was damaged or missing and was made again from a copy. Nothing is lost."""
    DAMAGED = "damaged"
    """Something is damaged or missing. The text says what is kept; messages that are known to be
    lost are named by a problem of their stream."""
    LOST = "lost"
    """Messages, or the progress of a consumer, are gone: fetch them from a mirror or a backup."""
    UNSERVED = "unserved"
    """A stream, or a part of the log, is kept and not served."""
    FAILED = "failed"
    """Something could not be done, for want of room, keys or a working device."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that a start, or work at run time, found wrong."""

    kind: ProblemKind
    text: str
    """A sentence for people: what is wrong, where, what follows."""
    stream: str = ""
    """`account > name`, when the problem is that of one stream."""
    file: str = ""
    """The path, when the problem is that of one file."""
    since: int = 0
    """When it was found, ns since the Unix epoch; 0 until the node's store lists it."""

    @classmethod
    def of(cls, kind: ProblemKind, path: object, text: str, stream: str = "") -> "Problem":
        """The problem of a file. `text` follows upon its path: " is missing", ": a copy ..."."""
        return cls(kind, f"{path}{text}", stream, str(path))

    def __str__(self) -> str:
        return self.text

    def found(self, now_ns: int, stream: str = "") -> "Problem":
        """The same with the moment and the stream, where these are not known yet."""
        return replace(self, since=self.since or now_ns, stream=self.stream or stream)

    def fields(self) -> dict[str, Any]:
        """For JSON: what is known of it; `since` in ns."""
        known = (self.kind.value, self.stream, self.file, self.text, self.since)
        names = ("kind", "stream", "file", "text", "since")
        return {name: value for name, value in zip(names, known, strict=True) if value}
