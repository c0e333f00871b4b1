"""What a server promised about one stream, and what became of it."""

import zlib
from dataclasses import dataclass, field

from bench.faults.tally import Tally


def make_payload(subject: str, ident: str, size: int) -> bytes:
    """`size` bytes or a little more that prove by themselves which message they are."""
    filler = (f"{ident}." * (size // (len(ident) + 1) + 1))[: max(size - len(ident) - 10, 0)]
    return f"{ident} {_checksum(subject, ident, filler):08x} {filler}".encode()


def proven(subject: str, payload: bytes) -> str | None:
    """Which message a payload is; None when it is not what was once published there."""
    try:
        ident, checksum, filler = payload.decode().split(" ")
    except ValueError:
        return None
    return ident if f"{_checksum(subject, ident, filler):08x}" == checksum else None


def _checksum(subject: str, ident: str, filler: str) -> int:
    return zlib.crc32(f"{subject} {ident} {filler}".encode())


@dataclass(frozen=True)
class Stored:
    """A message as it was read back."""

    subject: str
    payload: bytes


@dataclass
class PromiseBook:
    """The acknowledgements of one stream. What is wrong is counted in `tally`, once each.

    `last_only` is set for streams that keep one message of every subject.
    """

    stream: str
    tally: Tally
    last_only: bool = False
    acked: dict[int, tuple[str, str]] = field(default_factory=dict)
    """Sequence to subject and message, of everything acknowledged or once seen."""
    maybe_removed: set[int] = field(default_factory=set)
    """Sequences whose removal was asked for, and not answered."""
    removed: set[int] = field(default_factory=set)
    """Sequences whose removal was answered."""
    refused: set[str] = field(default_factory=set)
    """Messages whose publish was answered with an error."""
    counted: set[int] = field(default_factory=set)
    """Sequences whose loss was counted already."""

    def ack(self, subject: str, ident: str, sequence: int) -> None:
        """Note an acknowledgement; two messages for one sequence are a fault."""
        self.tally.acknowledged += 1
        self._know(subject, ident, sequence)

    def _know(self, subject: str, ident: str, sequence: int) -> None:
        known = self.acked.setdefault(sequence, (subject, ident))
        if known != (subject, ident):
            self.tally.reuse(f"{self.stream} {sequence}: {known[1]} and {ident}")
            self.acked[sequence] = (subject, ident)

    def remove(self, sequences: set[int]) -> None:
        """Note that the removal of messages was answered."""
        self.removed |= sequences
        self.maybe_removed -= sequences

    def known_on(self, subject: str) -> set[int]:
        """Sequences of a subject that nothing removed so far."""
        gone = self.removed | self.maybe_removed
        return {
            sequence
            for sequence, (where, _) in self.acked.items()
            if where == subject and sequence not in gone
        }

    def due(self) -> set[int]:
        """Sequences that have to be there."""
        due = self.acked.keys() - self.removed - self.maybe_removed - self.counted
        if self.last_only:
            newest: dict[str, int] = {}
            for sequence in sorted(self.acked):
                newest[self.acked[sequence][0]] = sequence
            due &= set(newest.values())
        return due

    def check(self, found: dict[int, Stored], told: set[int], named: bool) -> None:
        """Compare all that a stream has with what was promised.

        `told` are sequences that the server itself calls lost; `named` that it complained of the
        stream as a whole.
        """
        places: dict[str, int] = {}
        for sequence, stored in sorted(found.items()):
            ident = proven(stored.subject, stored.payload)
            if ident is None:
                self.tally.wrong_bytes(f"{self.stream} {sequence}: {stored.payload[:60]!r}")
                continue
            if ident in places:
                self.tally.wrong_bytes(
                    f"{self.stream}: {ident} is there as {places[ident]} and {sequence}"
                )
            places[ident] = sequence
            self._know(stored.subject, ident, sequence)
            if ident in self.refused:
                self.tally.come_back(f"{self.stream} {sequence} {ident} was refused")
                self.refused.discard(ident)
            if sequence in self.removed:
                count = self.tally.lose_and_tell if named else self.tally.come_back
                count(f"{self.stream} {sequence} was removed")
                self.removed.discard(sequence)
        for sequence in sorted(self.due() - found.keys()):
            self.counted.add(sequence)
            what = f"{self.stream} {sequence} {self.acked[sequence][1]}"
            if named or sequence in told:
                self.tally.lose_and_tell(what)
            else:
                self.tally.lose(what)
