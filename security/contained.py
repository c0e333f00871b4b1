"""Whether one of many subjects is part of another one, without a look at every pair.

Whoever writes an account's token chooses its subjects, so the steps of one look are bounded.
"""

from collections.abc import Sequence
from typing import Any

from headwater.security.errors import StepsExceeded

STEPS_MAX = 500_000
"""Levels that one look may visit: about half a second."""


def is_part(subject: str, of: str) -> bool:
    """Whether `of` names all that `subject` names (jwt/v2 `Subject.IsContainedIn`).

    A `>` counts as one token that `*` takes.
    """
    own, other = subject.split("."), of.split(".")
    if len(own) < len(other) or (len(own) > len(other) and other[-1] != ">"):
        return False
    for index, token in enumerate(other):
        if token == ">" and index == len(other) - 1:
            return True
        if token not in (own[index], "*"):
            return False
    return True


def contained(subjects: Sequence[str]) -> str | None:
    """The first subject that an entry in another place names too; None when there is none.

    A `>` counts as one token that `*` takes, as in tokens of NATS. Raises StepsExceeded.
    """
    split = [subject.split(".") for subject in subjects]
    levels: dict[str | None, Any] = {}
    for tokens in split:
        level = levels
        for token in tokens:
            level = level.setdefault(token, {})
        level[None] = level.get(None, 0) + 1
    left = STEPS_MAX
    for subject, tokens in zip(subjects, split, strict=True):
        found, steps = _names(levels, tokens, left)
        if found > 1:
            return subject
        left -= steps
    return None


def _names(levels: dict[str | None, Any], tokens: list[str], left: int) -> tuple[int, int]:
    """How many entries name a subject, itself included, and the steps to know it."""
    found, steps = 0, 0
    last = len(tokens) - 1
    here = [levels]
    for index, token in enumerate(tokens):
        steps += len(here)
        if steps > left:
            raise StepsExceeded
        if not (token == ">" and index == last):
            found += sum(level[">"].get(None, 0) for level in here if ">" in level)
        ways = ("*",) if token == "*" else (token, "*")
        here = [level[way] for level in here for way in ways if way in level]
    return found + sum(level.get(None, 0) for level in here), steps
