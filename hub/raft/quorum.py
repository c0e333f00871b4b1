"""Majorities."""

from collections.abc import Iterable, Mapping


def quorum_size(voters: int) -> int:
    """How many of `voters` make a majority."""
    return voters // 2 + 1


def majority_value(values: Iterable[int]) -> int:
    """The greatest value that a majority has reached; 0 when there are no voters."""
    ranked = sorted(values, reverse=True)
    return ranked[len(ranked) // 2] if ranked else 0


def vote_result(voters: Mapping[int, int], votes: Mapping[int, bool]) -> bool | None:
    """True when won, False when lost, None while open. Votes of others than voters are ignored."""
    need = quorum_size(len(voters))
    yes = sum(1 for node in voters if votes.get(node) is True)
    no = sum(1 for node in voters if votes.get(node) is False)
    if yes >= need:
        return True
    return False if len(voters) - no < need else None
