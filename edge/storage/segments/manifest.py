"""What the log knows of a stream's segments, so that a missing or shortened file shows.

A manifest is a state of the commit log, one per stream: written when the stream is made and with
every checkpoint that wrote to it, after its segments were synced. So it is never ahead of the
files, and files that are behind it were damaged from outside.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field

# Owner of the states; their keys are incarnations.
MANIFESTS_OWNER = b"\0segments"


@dataclass
class Manifest:
    """How far the segments of a stream had come."""

    account: str
    name: str
    segment: int = 0
    """Number of the newest segment; 0 when there was none."""
    generation: int = 0
    end: int = 0
    """Bytes of the newest segment that count."""
    last: int = 0
    """Sequence up to which segments and their footers know everything."""
    oldest: int = 0
    """Number of the oldest segment."""
    oldest_last: int = 0
    """The last sequence in it."""
    first_log_segment: int = 0
    """Log segment in which it came back from quarantine: older ones have nothing to say of it."""

    gone: list[list[int]] = field(default_factory=list)
    """Runs of numbers between `oldest` and `segment` whose messages other segments took over."""

    @property
    def label(self) -> str:
        """Account and name of the stream, for people."""
        return f"{self.account} > {self.name}"

    def is_gone(self, number: int) -> bool:
        """Whether a segment is not expected to be there."""
        return any(first <= number <= last for first, last in self.gone)

    def encode(self) -> bytes:
        """As the log has it: JSON, in which `first_log_segment` is called `born`."""
        fields = asdict(self)
        fields["born"] = fields.pop("first_log_segment")
        return json.dumps(fields).encode()


def decode_manifest(value: bytes) -> Manifest:
    """What `Manifest.encode` gave. Raises ValueError."""
    fields = json.loads(value)
    return Manifest(first_log_segment=fields.pop("born", 0), **fields)


def number_runs(numbers: Iterable[int]) -> list[list[int]]:
    """Numbers as runs [first, last]."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][1] + 1 == number:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return runs


def runs_text(sequences: list[int], limit: int = 8) -> str:
    """Sequences for people, as runs: "1-5, 9"; those after `limit` runs as dots."""
    runs = number_runs(sequences)
    texts = [str(a) if a == b else f"{a}-{b}" for a, b in runs[:limit]]
    return ", ".join(texts + (["..."] if len(runs) > limit else []))
