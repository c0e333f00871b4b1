"""A share of the generated input that `make differ` sends to both servers, with a fixed seed."""

import os

import pytest

from tests.differ.runs import run
from tests.differ.shrink import shrunk

SEED = int(os.environ.get("HEADWATER_SEED", "1"))
RUNS = {
    "lines-plain": 150, "lines-users": 100, "histories": 24, "configurations": 300, "starts": 12,
    "requests": 40, "accounts": 8, "reloads": 6, "clusters": 6,
}  # fmt: skip
STEPS_MIN = {
    "lines-plain": 900, "lines-users": 600, "histories": 350, "configurations": 299, "starts": 11,
    "requests": 600, "accounts": 400, "reloads": 5, "clusters": 110,
}  # fmt: skip


@pytest.mark.parametrize("kind", RUNS)
def test_the_same_answers(kind: str) -> None:
    found, tried = run(kind, range(SEED, SEED + RUNS[kind]), 1)
    assert not found, found[0]
    assert tried > STEPS_MIN[kind]


def test_what_differs_is_made_small() -> None:
    assert shrunk(list(range(100)), lambda left: {17, 83} <= set(left)) == [17, 83]
