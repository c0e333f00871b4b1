"""The search for an order that explains a history: hand-made histories, right and wrong."""

from random import Random

import pytest

from tests.sim.checks.checker import Violation
from tests.sim.checks.history import NEVER, Call, History, operations
from tests.sim.checks.linear import Operation, is_linearizable


def write(begin: int, end: int, value: int, expected: int | None = None, done: bool = True):
    return Operation(begin, end, "write", value, expected, done)


def read(begin: int, end: int, value: int):
    return Operation(begin, end, "read", value)


RIGHT = {
    "one after the other": [write(1, 2, 1), read(3, 4, 1), write(5, 6, 2), read(7, 8, 2)],
    "nothing was written": [read(1, 2, 0)],
    "beside a write, before it": [write(1, 2, 1), write(3, 9, 2), read(4, 5, 1), read(6, 7, 2)],
    "two writes at once, either last": [write(1, 5, 1), write(2, 6, 2), read(7, 8, 1)],
    "unfinished, and it happened": [write(1, NEVER, 1), read(5, 6, 1)],
    "unfinished, and it did not": [write(1, NEVER, 1), read(5, 6, 0)],
    "unfinished, and it happened late": [write(1, NEVER, 1), read(5, 6, 0), read(7, 8, 1)],
    "expected and found": [write(1, 2, 1), write(3, 4, 2, expected=1), read(5, 6, 2)],
    "refused": [write(1, 2, 1), write(3, 4, 2, expected=0, done=False), read(5, 6, 1)],
    "refused because of an unfinished one": [
        write(1, NEVER, 1),
        write(3, 4, 2, expected=0, done=False),
        read(5, 6, 1),
    ],
    "an unfinished one that expects": [write(1, 2, 1), write(3, NEVER, 2, 1), read(5, 6, 2)],
    "of two that expect the same, one wins": [
        write(1, 9, 1, expected=0),
        write(2, 8, 2, expected=0, done=False),
        read(10, 11, 1),
    ],
}
WRONG = {
    "a stale read": [write(1, 2, 1), write(3, 4, 2), read(5, 6, 1)],
    "a lost write": [write(1, 2, 1), read(3, 4, 0)],
    "a read from the future": [read(1, 2, 1), write(3, 4, 1)],
    "reads go back": [write(1, 2, 1), write(3, 20, 2), read(4, 6, 2), read(7, 8, 1)],
    "reads disagree about two writes": [
        write(1, 20, 1),
        write(1, 20, 2),
        read(2, 3, 1),
        read(4, 5, 2),
        read(6, 7, 1),
    ],
    "a value nobody wrote": [write(1, 2, 1), read(3, 4, 7)],
    "an unfinished write came and went": [write(1, NEVER, 1), read(3, 4, 1), read(5, 6, 0)],
    "a refused write is seen": [
        write(1, 2, 1),
        write(3, 4, 2, expected=0, done=False),
        read(5, 6, 2),
    ],
    "refused without reason": [write(1, 2, 1), write(3, 4, 2, expected=1, done=False)],
    "two that expect the same both win": [write(1, 9, 1, expected=0), write(2, 8, 2, expected=0)],
    "applied twice": [write(1, 2, 1), write(3, 4, 2), read(5, 6, 2), read(7, 8, 1)],
    "an unfinished one that cannot have been": [
        write(1, 2, 1),
        write(3, NEVER, 2, expected=0),
        read(5, 6, 2),
    ],
}


@pytest.mark.parametrize("name", RIGHT)
def test_an_order_is_found(name: str) -> None:
    assert is_linearizable(RIGHT[name]) is True


@pytest.mark.parametrize("name", WRONG)
def test_no_order_is_found(name: str) -> None:
    assert is_linearizable(WRONG[name]) is False


def real(chance: Random, count: int) -> list[Operation]:
    """A history that has an order: each operation happens at a moment within its call."""
    moments = sorted(
        (at, at - 1 - chance.randrange(400), at + 1 + chance.randrange(400), at)
        for at in chance.sample(range(1000, 11000, 10), count)
    )
    state = 0
    made = []
    for _, begin, end, number in moments:
        dice = chance.randrange(4)
        if dice == 0:
            made.append(read(begin, end, state))
            continue
        expected = (None, state, number + 1)[chance.randrange(3)]
        done = expected in (None, state)
        if done:
            state = number
        made.append(write(begin, NEVER if done and dice == 1 else end, number, expected, done))
    return made


@pytest.mark.parametrize("seed", range(40))
def test_what_really_happened_is_explained(seed: int) -> None:
    assert is_linearizable(real(Random(seed), 40)) is not False


def test_a_history_with_too_many_orders_is_left_undecided() -> None:
    crowd = [write(1, NEVER, n) for n in range(1, 30)] + [read(2, 3, 0), read(4, 5, 99)]
    assert is_linearizable(crowd) is None


def test_calls_become_operations() -> None:
    """Expectations are of sequences; a failed call never happened; what nobody knows may have."""
    calls = [
        Call(1, 1, "a", "write", 1, 2, sequence=7),
        Call(2, 1, "a", "write", 3, 4, sequence=0, expected=7),
        Call(3, 1, "a", "failed", 5),
        Call(4, 1, "a", "write", 6),
        Call(5, 1, "a", "read", 7, 8, sequence=9, seen=4),
        Call(6, 1, "a", "read", 9),
    ]
    assert operations(calls) == [
        write(1, 2, 1),
        write(3, 4, 2, expected=1, done=False),
        write(6, NEVER, 4),
        read(7, 8, 4),
    ]


def test_a_refusal_without_reason_is_a_violation() -> None:
    """The order of sequences says nothing about it."""
    calls = [
        Call(1, 1, "a", "write", 1, 2, sequence=7),
        Call(2, 1, "a", "write", 3, 4, sequence=0, expected=7),
    ]
    with pytest.raises(Violation, match="no order"):
        History(calls).check()
