"""Which of many subject patterns overlap with one, or cover it, without a look at every pair.

For configurations and requests: it is interpreted, and grows with what is put in. `StepsExceeded`
bounds what one check may cost, since patterns can be chosen so that they share long ways.
"""

from collections.abc import Iterator
from typing import Any

STEPS_MAX = 500_000
"""Places that one check of many patterns may look at, a few tenths of a second."""


class StepsExceeded(Exception):
    """A check of patterns against each other would take too long."""


class Steps:
    """What is left of the steps of one check."""

    def __init__(self, left: int = STEPS_MAX) -> None:
        self.left = left

    def spend(self) -> None:
        """Go one step. Raises StepsExceeded."""
        self.left -= 1
        if self.left < 0:
            raise StepsExceeded


class Node:
    """A place in the tree, one token below its parent's."""

    __slots__ = ("below", "values")

    def __init__(self) -> None:
        self.below: dict[str, Node] = {}
        self.values: dict[Any, Any] = {}
        """By key: those of the pattern that ends here."""


class SubjectTree:
    """Values by pattern and key."""

    def __init__(self) -> None:
        self.root = Node()

    def put(self, pattern: str, key: Any, value: Any) -> None:
        """Keep a value."""
        node = self.root
        for token in pattern.split("."):
            found = node.below.get(token)
            if found is None:
                found = node.below[token] = Node()
            node = found
        node.values[key] = value

    def remove(self, pattern: str, key: Any) -> None:
        """Keep a value no longer; nothing happens when it is not there."""
        path = [self.root]
        tokens = pattern.split(".")
        for token in tokens:
            if token not in path[-1].below:
                return
            path.append(path[-1].below[token])
        path[-1].values.pop(key, None)
        while tokens and not path[-1].values and not path[-1].below:
            path.pop()
            del path[-1].below[tokens.pop()]

    def overlapping(self, pattern: str, steps: Steps | None = None) -> dict[Any, Any]:
        """Values by key of the patterns that match some subject which `pattern` matches."""
        tokens = pattern.split(".")
        found: dict[Any, Any] = {}
        waiting = [(self.root, 0)]
        while waiting:
            node, at = waiting.pop()
            if steps is not None:
                steps.spend()
            if at == len(tokens):
                found.update(node.values)
                continue
            token = tokens[at]
            if ">" in node.below:
                found.update(node.below[">"].values)
            if token == ">":
                for each in everything(node):
                    if steps is not None:
                        steps.spend()
                    found.update(each.values)
            elif token == "*":
                waiting += [(each, at + 1) for key, each in node.below.items() if key != ">"]
            else:
                waiting += [(node.below[key], at + 1) for key in (token, "*") if key in node.below]
        return found

    def covering(self, pattern: str, steps: Steps) -> dict[Any, Any]:
        """Values by key of the patterns that match every subject which `pattern` matches."""
        tokens = pattern.split(".")
        found: dict[Any, Any] = {}
        waiting = [(self.root, 0)]
        while waiting:
            node, at = waiting.pop()
            steps.spend()
            if at == len(tokens):
                found.update(node.values)
                continue
            token = tokens[at]
            if ">" in node.below:
                found.update(node.below[">"].values)
            if token != ">":
                keys = {token, "*"}
                waiting += [(node.below[key], at + 1) for key in keys if key in node.below]
        return found


def everything(node: Node) -> Iterator[Node]:
    """All places below one."""
    waiting = list(node.below.values())
    while waiting:
        each = waiting.pop()
        yield each
        waiting += each.below.values()
