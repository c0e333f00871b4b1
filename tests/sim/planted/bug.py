"""A planted bug: a way in which consensus was broken somewhere, behind a switch.

It replaces functions or methods while it is planted; the product has no code for it.
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Bug:
    """`patches`: (owner, name, make), where make(original) gives what takes its place."""

    name: str
    what: str
    patches: tuple[tuple[Any, str, Callable[[Any], Any]], ...]
    seeds: int = 60
    """It is found within this many seeds of `STEPS` steps."""


BUGS: dict[str, Bug] = {}


def bug(
    name: str,
    what: str,
    *patches: tuple[Any, str, Callable[[Any], Any]],
    seeds: int = 60,
) -> None:
    """Put it into the list."""
    BUGS[name] = Bug(name, what, patches, seeds)


@contextlib.contextmanager
def planted(bug: Bug) -> Iterator[None]:
    """The product with one bug."""
    saved = [(owner, attribute, getattr(owner, attribute)) for owner, attribute, _ in bug.patches]
    try:
        for (owner, attribute, original), patch in zip(saved, bug.patches, strict=True):
            setattr(owner, attribute, patch[2](original))
        yield
    finally:
        for owner, attribute, original in saved:
            setattr(owner, attribute, original)
