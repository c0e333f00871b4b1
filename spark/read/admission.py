"""How much of each stream one microbatch takes: the limits of a trigger, shared out."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Backlog:
    """The sequences behind `begin` up to `end`, which a query has not read yet.

    `mean_bytes` is the mean size of the stream's messages.
    """

    begin: int
    end: int
    mean_bytes: int

    @property
    def length(self) -> int:
        """Sequences to read."""
        return max(0, self.end - self.begin)


class Admission:
    """Shares limits out evenly: what a short backlog leaves goes to the longer ones.

    When a limit has fewer messages than there are streams, those go first that waited longest.
    """

    def __init__(self) -> None:
        self._turn = 0
        self._served: dict[str, int] = {}

    def share(
        self, backlogs: Mapping[str, Backlog], rows: int | None, size: int | None
    ) -> dict[str, int]:
        """Sequences to take of each stream: at most `rows` in sum, and about `size` bytes.

        Of a limit of bytes, each stream may take one message. None is no limit.
        """
        taken = {name: one.length for name, one in backlogs.items() if one.length}
        if rows is not None:
            first = sorted(taken, key=lambda name: self._served.get(name, 0))[:rows]
            taken = _even_shares({name: taken[name] for name in first}, rows)
        if size is not None:
            means = {name: backlogs[name].mean_bytes for name in taken}
            shares = _even_shares({name: taken[name] * means[name] for name in taken}, size)
            taken = {name: max(1, share // means[name]) for name, share in shares.items()}
        self._turn += 1
        self._served.update(dict.fromkeys(taken, self._turn))
        return taken


def _even_shares(wanted: Mapping[str, int], limit: int) -> dict[str, int]:
    """Divide `limit`: nobody gets more than wanted, and what one leaves is for the others."""
    shares: dict[str, int] = {}
    for name in sorted(wanted, key=lambda name: wanted[name]):
        shares[name] = min(wanted[name], limit // (len(wanted) - len(shares)))
        limit -= shares[name]
    return shares
