"""What clients saw, and whether one order explains it.

Every successful write returns the sequence it got, and every read the sequence it saw. So the
order of writes is known, and a history of a key is linearizable if and only if no operation sees
less than what was certain before it began, and none sees what began after it ended.
"""

from dataclasses import dataclass, field

from tests.sim.checker import Violation

NEVER = 1 << 62


@dataclass
class Call:
    """One operation. `end` stays NEVER when nobody knows what became of it."""

    number: int
    group: int
    key: str
    kind: str
    begin: int
    end: int = NEVER
    sequence: int = -1
    """Write: what it got (0: refused by its expectation). Read: what it saw."""
    seen: int = 0
    expected: int = -1


@dataclass
class History:
    """All calls of a run."""

    calls: list[Call] = field(default_factory=list)

    def begin(self, group: int, key: str, kind: str, now: int, expected: int = -1) -> Call:
        call = Call(len(self.calls) + 1, group, key, kind, now, expected=expected)
        self.calls.append(call)
        return call

    def check(self) -> int:
        """Raises `Violation`; returns how many finished calls were judged."""
        keys: dict[tuple[int, str], list[Call]] = {}
        for call in self.calls:
            keys.setdefault((call.group, call.key), []).append(call)
        return sum(check_key(calls) for calls in keys.values())


def check_key(calls: list[Call]) -> int:
    """One key."""
    numbers = {call.number: call for call in calls}
    done = [call for call in calls if call.end < NEVER and call.sequence >= 0]
    events = sorted(
        [(call.begin, 1, call) for call in done] + [(call.end, 0, call) for call in done],
        key=lambda event: event[:2] + (event[2].number,),
    )
    certain = 0
    floors: dict[int, int] = {}
    for _, begins, call in events:
        if begins:
            floors[call.number] = certain
            continue
        floor = floors[call.number]
        if call.kind == "read":
            if call.sequence < floor:
                raise Violation(f"stale read of {call.key}: saw {call.sequence}, {floor} was acked")
            writer = numbers.get(call.seen)
            if call.sequence and (writer is None or writer.begin > call.end):
                raise Violation(f"read of {call.key} saw a write from the future")
            certain = max(certain, call.sequence)
        elif call.sequence:
            if call.sequence <= floor:
                raise Violation(f"write {call.number} got {call.sequence}, {floor} was known")
            if 0 <= call.expected < floor:
                raise Violation(f"write {call.number} expected {call.expected} after {floor}")
            certain = max(certain, call.sequence)
    return len(done)
