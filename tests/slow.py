"""Slow tests: `make test` runs a small share of their cases, and `make slow` the others.

A case is slow where it takes seconds and another case, or a quicker test, shows the same. Whoever
runs a file by itself runs all of it.
"""

from collections.abc import Callable, Iterable
from typing import Any

import pytest

slow = pytest.mark.slow


def shared(cases: Iterable[Any], kept: Callable[[Any], bool]) -> list[Any]:
    """Cases of `parametrize`: those of which `kept` is true stay in `make test`."""
    return [case if kept(case) else _slow(case) for case in cases]


def one_in(step: int, cases: Iterable[Any]) -> list[Any]:
    """Cases of `parametrize`: the first of each `step` stays in `make test`."""
    return [_slow(case) if at % step else case for at, case in enumerate(cases)]


def _slow(case: Any) -> Any:
    """A tuple is several arguments."""
    return pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=slow)
