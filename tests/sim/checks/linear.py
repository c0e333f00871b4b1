"""Whether some order explains a history of one register (Wing and Gong; just-in-time, as Lowe's).

Nothing is assumed about the order of writes. A call whose end nobody knows may have happened at
any time after its begin, or never.
"""

from collections.abc import Sequence
from dataclasses import dataclass

NEVER = 1 << 62
CONFIGURATIONS_MAX = 20_000
"""Possible states looked at after one event; beyond that the history is left undecided."""


@dataclass(frozen=True)
class Operation:
    """`write`: value becomes `value`, if it was `expected` (None: whatever it was) and `done`;
    a write that is not `done` was refused. `read`: `value` was seen."""

    begin: int
    end: int
    kind: str
    value: int
    expected: int | None = None
    done: bool = True

    def outcomes(self, state: int) -> list[int]:
        """The states it may leave behind; none when its answer does not fit."""
        if self.kind == "read":
            return [state] if state == self.value else []
        fits = self.expected is None or self.expected == state
        if self.end == NEVER:
            return [self.value] if fits else []
        if fits != self.done:
            return []
        return [self.value] if self.done else [state]


def is_linearizable(operations: Sequence[Operation], first: int = 0) -> bool | None:
    """True, False, or None when the bound was reached. `first` is the value at the beginning."""
    events = sorted(
        [(op.begin, 1, number) for number, op in enumerate(operations)]
        + [(op.end, 0, number) for number, op in enumerate(operations) if op.end < NEVER]
    )
    pending: set[int] = set()
    found: set[tuple[int, frozenset[int]]] = {(first, frozenset())}
    for _, begins, number in events:
        if begins:
            if operations[number].end < NEVER or operations[number].kind == "write":
                pending.add(number)
            continue
        reached = _linearize(operations, pending, found, number)
        if reached is None:
            return None
        found = {(state, taken - {number}) for state, taken in reached}
        if not found:
            return False
        pending.discard(number)
    return True


def _linearize(
    operations: Sequence[Operation],
    pending: set[int],
    found: set[tuple[int, frozenset[int]]],
    number: int,
) -> set[tuple[int, frozenset[int]]] | None:
    """All ways to have `number` happen by now, together with calls that are still open."""
    done: set[tuple[int, frozenset[int]]] = set()
    seen = set(found)
    left = list(found)
    while left:
        state, taken = left.pop()
        if number in taken:
            done.add((state, taken))
            continue
        for other in pending - taken:
            for after in operations[other].outcomes(state):
                configuration = (after, taken | {other})
                if configuration not in seen:
                    seen.add(configuration)
                    left.append(configuration)
        if len(seen) > CONFIGURATIONS_MAX:
            return None
    return done
