"""What a purge takes out, decided when it is asked for."""

from dataclasses import dataclass
from typing import Any


@dataclass
class PurgePlan:
    """Messages that `chosen` (a Filter) matches, from sequence `at` to `end`, `left` at most."""

    chosen: Any
    at: int
    end: int
    left: int

    @property
    def done(self) -> bool:
        """Whether nothing is left to take out."""
        return self.left <= 0 or self.at > self.end
