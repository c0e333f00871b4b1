"""What one fault script found out about one server: a row of its table."""

import json
import statistics
from dataclasses import dataclass, field
from typing import Any

FINDINGS_MAX = 200
"""Kinds of faults on one occasion that are kept."""

LINE_MAX = 400


@dataclass
class Tally:
    """Counts of a run. `broken` of them must stay 0 for a server that keeps its promises."""

    script: str
    server: str
    rounds: int = 0
    acknowledged: int = 0
    told: int = 0
    """Acknowledged messages, removals and acks that are gone, and the server says so."""
    silent: int = 0
    """Acknowledged messages that are gone, and nothing says so."""
    wrong: int = 0
    """Messages that were served with bytes nobody published there, or twice."""
    reused: int = 0
    """Sequences that were given out for two messages."""
    back: int = 0
    """Messages that were removed, refused, or acknowledged by a consumer, and came back."""
    refused: int = 0
    """Starts after which the server did not serve."""
    stuck: int = 0
    """What was asked of a server that could do it, and failed or never was answered."""
    ready: list[float] = field(default_factory=list)
    """Seconds from each launch until every stream answered."""
    findings: dict[str, list[Any]] = field(default_factory=dict)
    """What went wrong on which occasion: how often, and the first of it."""
    occasion: str = ""
    """What is going on; goes into the findings."""

    @property
    def broken(self) -> int:
        """All faults but losses that were told."""
        return self.silent + self.wrong + self.reused + self.back + self.refused + self.stuck

    def count(self, kind: str, what: str) -> None:
        """Keep a sentence about the first fault of a kind on an occasion."""
        key = f"[{self.occasion}] {kind}"
        if key in self.findings:
            self.findings[key][0] += 1
        elif len(self.findings) < FINDINGS_MAX:
            self.findings[key] = [1, what]

    def told_findings(self) -> list[str]:
        """A line for every kind of fault on every occasion."""
        return [
            f"{self.script}, {self.server}: {key} x{count}: {first}"[:LINE_MAX]
            for key, (count, first) in self.findings.items()
        ]

    def add(self, other: "Tally") -> None:
        """Count what another run found, too."""
        for name, value in vars(other).items():
            if isinstance(value, int | list):
                setattr(self, name, getattr(self, name) + value)
        self.findings |= other.findings

    def lose(self, what: str) -> None:
        """An acknowledged message is missing in silence."""
        self.silent += 1
        self.count("missing in silence", what)

    def lose_and_tell(self, what: str) -> None:
        """An acknowledged message is missing, and the server says so."""
        self.told += 1

    def wrong_bytes(self, what: str) -> None:
        """A message was served that nobody published like that."""
        self.wrong += 1
        self.count("wrong bytes", what)

    def reuse(self, what: str) -> None:
        """A sequence stands for two messages."""
        self.reused += 1
        self.count("reused sequence", what)

    def come_back(self, what: str) -> None:
        """Something that was over came back."""
        self.back += 1
        self.count("back", what)

    def refuse(self, what: str) -> None:
        """A start failed."""
        self.refused += 1
        self.count("refused start", what)

    def stick(self, what: str) -> None:
        """Something did not work that should have."""
        self.stuck += 1
        self.count("did not work", what)

    def row(self) -> list[str]:
        """What `TITLES` name, as text."""
        ready = statistics.median(self.ready) if self.ready else 0.0
        worst = max(self.ready, default=0.0)
        counts = (
            self.rounds,
            self.acknowledged,
            self.told,
            self.silent,
            self.wrong,
            self.reused,
            self.back,
            self.refused,
            self.stuck,
        )
        texts = [f"{count:,}" for count in counts]
        return [self.script, self.server, *texts, f"{ready:.2f} / {worst:.2f}"]

    def as_json(self) -> str:
        """Everything but the single start-up times."""
        fields = {**vars(self), "ready": self.row()[-1]}
        return json.dumps(fields)


TITLES = (
    "script",
    "server",
    "rounds",
    "acknowledged",
    "missing, told",
    "missing in silence",
    "wrong bytes",
    "reused sequences",
    "gone and back",
    "refused starts",
    "did not work",
    "ready in s, median / worst",
)


def table(tallies: list[Tally]) -> str:
    """A Markdown table of them."""
    rows = [list(TITLES), ["---"] * len(TITLES), *(tally.row() for tally in tallies)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
