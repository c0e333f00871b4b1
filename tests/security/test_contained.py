"""Subjects that are part of another one: found as a look at every pair finds them, and soon."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.security.claim_checks import account_problem
from headwater.security.claims import AccountBody, AccountClaims, AccountLimits, Export, Import
from headwater.security.contained import StepsExceeded, contained

TOKENS = st.sampled_from(["a", "b", "*", ">"])
SUBJECTS = st.lists(st.lists(TOKENS, min_size=1, max_size=4).map(".".join), max_size=7)


def within(own: list[str], other: list[str]) -> bool:
    """The rule of jwt/v2 `Subject.IsContainedIn`, on one pair."""
    if len(own) < len(other) or (len(own) > len(other) and other[-1] != ">"):
        return False
    for index, token in enumerate(other):
        if token == ">" and index == len(other) - 1:
            return True
        if token not in (own[index], "*"):
            return False
    return True


@given(SUBJECTS)
def test_what_is_part_of_another_one(subjects: list[str]) -> None:
    pairs = [
        subject
        for place, subject in enumerate(subjects)
        if any(
            within(subject.split("."), other.split("."))
            for index, other in enumerate(subjects)
            if index != place
        )
    ]
    assert contained(subjects) == next(iter(pairs), None)


def seconds(count: int) -> float:
    """Processor time to check a token of so many exports and imports."""
    exports = [Export(subject=f"x.{n}.>", type="service") for n in range(count)]
    imports = [Import(subject=f"y.{n}", account="B", type="service") for n in range(count)]
    body = AccountBody(exports=exports, imports=imports, limits=AccountLimits.unlimited())
    began = time.process_time()
    assert account_problem(AccountClaims(sub="A", nats=body)) == ""
    return time.process_time() - began


def test_many_exports_and_imports_cost_no_more_than_their_number() -> None:
    few = min(seconds(250) for _ in range(3))
    assert seconds(4000) < 48 * few


def test_subjects_that_share_long_ways_are_refused() -> None:
    ways = [
        ".".join("*" if n >> bit & 1 else "a" for bit in range(12)) + ".end" for n in range(4096)
    ]
    asked = [".".join("a" * 12) + f".{n}" for n in range(4096)]
    with pytest.raises(StepsExceeded):
        contained(asked + ways)
    exports = [Export(subject=each, type="stream") for each in asked + ways]
    body = AccountBody(exports=exports, limits=AccountLimits.unlimited())
    problem = account_problem(AccountClaims(sub="A", nats=body))
    assert problem == "stream exports would take too long to compare"
