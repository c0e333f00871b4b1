"""Subjects that are part of another one: found as a look at every pair finds them, and soon."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.security.claim_checks import account_problem
from headwater.security.claims import AccountBody, AccountClaims, AccountLimits, Export, Import
from headwater.security.contained import contained, is_part
from headwater.security.errors import StepsExceeded
from tests.measuring import no_garbage

TOKENS = st.sampled_from(["a", "b", "*", ">"])
SUBJECTS = st.lists(st.lists(TOKENS, min_size=1, max_size=4).map(".".join), max_size=7)


@pytest.mark.parametrize(
    ("subject", "of", "wanted"),
    [
        ("a.b", "a.b", True), ("a.b", "a.c", False), ("a.b", "a.*", True), ("a.*", "a.b", False),
        ("a.b", "a", False), ("a", "a.b", False), ("a.b.c", "a.>", True), ("a", "a.>", False),
        ("a.>", "a.*", True), ("a.b.c", "a.*", False), ("a.>.c", "a.>.c", True),
    ],
)  # fmt: skip
def test_the_rule_for_one_pair(subject: str, of: str, wanted: bool) -> None:
    assert is_part(subject, of) is wanted


@given(SUBJECTS)
def test_what_is_part_of_another_one(subjects: list[str]) -> None:
    pairs = [
        subject
        for place, subject in enumerate(subjects)
        if any(
            is_part(subject, other)
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
    with no_garbage():
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
