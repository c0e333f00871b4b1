"""What clients saw, and whether one order explains it: judged in two ways.

Every successful write returns the sequence it got, and every read the sequence it saw. If these
tell the order of writes, a history of a key is linearizable if and only if no operation sees less
than what was certain before it began, and none sees what began after it ended. `linear` does not
believe the sequences and looks for any order of the values.
"""

from dataclasses import dataclass, field

from tests.sim.checks.checker import Violation
from tests.sim.checks.linear import NEVER, Operation, is_linearizable


@dataclass
class Call:
    """One operation. `end` stays NEVER when nobody knows what became of it; `kind` becomes
    "failed" when it surely never happened."""

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
    undecided: int = 0
    """Keys whose history has too many possible orders to look at."""

    def begin(self, group: int, key: str, kind: str, now: int, expected: int = -1) -> Call:
        call = Call(len(self.calls) + 1, group, key, kind, now, expected=expected)
        self.calls.append(call)
        return call

    def check(self) -> int:
        """Raises `Violation`; returns how many finished calls were judged."""
        keys: dict[tuple[int, str], list[Call]] = {}
        for call in self.calls:
            keys.setdefault((call.group, call.key), []).append(call)
        judged = sum(check_key(calls) for calls in keys.values())
        for key, calls in keys.items():
            answer = is_linearizable(operations(calls))
            if answer is False:
                raise Violation(f"no order explains what clients saw of {key}")
            self.undecided += answer is None
        return judged


def operations(calls: list[Call]) -> list[Operation]:
    """The calls of a key as operations on a register: its value is the number of the last write.
    An expectation of a sequence that nobody is known to have got is not judged."""
    owner = {0: 0}
    for call in calls:
        if call.end < NEVER and call.sequence > 0:
            owner[call.sequence] = call.seen if call.kind == "read" else call.number
    found = []
    for call in calls:
        expected = owner.get(call.expected) if call.expected >= 0 else None
        if call.kind == "read" and call.end < NEVER:
            found.append(Operation(call.begin, call.end, "read", call.seen))
        elif call.kind == "write" and (call.sequence or expected is not None):
            done = call.sequence != 0
            found.append(Operation(call.begin, call.end, "write", call.number, expected, done))
    return _without_unseen(found)


def _without_unseen(found: list[Operation]) -> list[Operation]:
    """An unfinished write that nobody saw need not have happened, unless a refusal calls for it."""
    if any(not each.done for each in found):
        return found
    seen = {each.value for each in found if each.kind == "read"}
    seen |= {each.expected for each in found if each.expected is not None}
    return [each for each in found if each.end < NEVER or each.value in seen]


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
