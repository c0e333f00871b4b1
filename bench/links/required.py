"""What is required of each figure: of the ratio to nats-server at both ends, or of itself."""

from dataclasses import dataclass

BOTH_OURS = ("ours", "ours")


@dataclass(frozen=True)
class Requirement:
    """A bound of one figure with Headwater at both ends."""

    bound: float
    ratio: bool = False
    """Whether it bounds the ratio, else the figure."""
    most: bool = False
    """Whether it is an upper bound."""
    mixed: float = 0.0
    """The least ratio with a server of each kind; 0 where nothing is asked."""

    def met(self, pair: tuple[str, str], value: float, theirs: float) -> bool | None:
        """Whether a figure of this pair is as required; None if nothing is asked of it, or if what
        it is compared with is missing."""
        if pair != BOTH_OURS:
            asked = self.mixed and theirs and pair != ("theirs", "theirs")
            return value / theirs >= self.mixed if asked else None
        if self.ratio and not theirs:
            return None
        found = value / theirs if self.ratio else value
        return found <= self.bound if self.most else found >= self.bound

    def told(self) -> str:
        """In words."""
        words = f"{'ratio ' if self.ratio else ''}{'<=' if self.most else '>='} {self.bound:.3g}"
        return f"{words}, mixed ratio >= {self.mixed:g}" if self.mixed else words


_RATE = Requirement(3.0, ratio=True, mixed=1.2)
_CPU = Requirement(1 / 3, ratio=True, most=True)
_ANSWER = Requirement(8.0, most=True)

REQUIRED = {
    "mirror, messages/s": _RATE,
    "mirror, CPU us a message": _CPU,
    "source, messages/s": _RATE,
    "source, CPU us a message": _CPU,
    "sources, messages/s": Requirement(2.5, ratio=True),
    "64 kbit/s, echo, p99 s": _ANSWER,
    "64 kbit/s, API, p99 s": _ANSWER,
    "64 kbit/s, % of the line for bulk": Requirement(90.0),
    "JSON, % of the bytes without compression": Requirement(40.0, most=True),
    "JSON on a fast network, % of the rate without": Requirement(95.0),
    "heal, median s": Requirement(3.0, most=True),
}
"""By title; a number of sources before it does not count."""


def required(title: str) -> Requirement | None:
    """What is asked of a figure, if anything is."""
    return REQUIRED.get(title.lstrip("0123456789 ") if "sources" in title else title)
