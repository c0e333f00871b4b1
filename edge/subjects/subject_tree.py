"""Which of many subject patterns overlap with one, or cover it, without a look at every pair.

For configurations and requests. What it costs grows with what is put in. `StepsExceeded` bounds
what one check may cost, since patterns can be chosen so that they share long ways.
"""

from typing import Any

import cython

from headwater.security.errors import StepsExceeded

STEPS_MAX = 500_000
"""Nodes that one check of many patterns may look at: some hundredths of a second."""

EVERY_STEP = 1 << 62
"""More than any check takes."""


@cython.cclass
class Steps:
    """What is left of the steps of one check."""

    left: cython.longlong

    def __init__(self, left: int = STEPS_MAX) -> None:
        self.left = left

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def spend(self) -> cython.int:
        """Go one step. Raises StepsExceeded."""
        self.left -= 1
        if self.left < 0:
            raise StepsExceeded
        return 0


@cython.final
@cython.cclass
class Node:
    """A node in the tree, one token below its parent's."""

    below: dict
    values: dict
    """By key: those of the pattern that ends here; None for none."""

    def __init__(self) -> None:
        self.below = {}
        self.values = None


@cython.cclass
class SubjectTree:
    """Values by pattern and key."""

    root: Node

    def __init__(self) -> None:
        self.root = Node()

    def put(self, pattern: str, key: Any, value: Any) -> None:
        """Keep a value."""
        node: Node = self.root
        found: Node
        for token in pattern.split("."):
            found = node.below.get(token)
            if found is None:
                found = Node()
                node.below[token] = found
            node = found
        if node.values is None:
            node.values = {}
        node.values[key] = value

    def remove(self, pattern: str, key: Any) -> None:
        """Keep a value no longer; nothing happens when it is not there."""
        path: list = [self.root]
        tokens: list = pattern.split(".")
        node: Node = self.root
        for token in tokens:
            node = node.below.get(token)
            if node is None:
                return
            path.append(node)
        if node.values is not None:
            node.values.pop(key, None)
            if not node.values:
                node.values = None
        while tokens and node.values is None and not node.below:
            path.pop()
            node = path[len(path) - 1]
            del node.below[tokens.pop()]

    @property
    def empty(self) -> bool:
        """Whether nothing is kept, not even a node on the way to a value."""
        return not self.root.below and self.root.values is None

    def overlapping(self, pattern: str, steps: Steps | None = None) -> dict[Any, Any]:
        """Values by key of the patterns that match some subject which `pattern` matches."""
        found: dict = {}
        self.collect(pattern, steps, found, False)
        return found

    def overlaps_others(self, pattern: str, key: Any, steps: Steps) -> bool:
        """Whether `overlapping` finds a value under another key."""
        found: dict = {}
        self.collect(pattern, steps, found, False)
        return len(found) > 1 or (len(found) == 1 and key not in found)

    def covering(self, pattern: str, steps: Steps) -> dict[Any, Any]:
        """Values by key of the patterns that match every subject which `pattern` matches."""
        found: dict = {}
        self.collect(pattern, steps, found, True)
        return found

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def collect(
        self, pattern: str, steps: Steps | None, found: dict, covering: cython.bint
    ) -> cython.int:
        """Put the values of patterns that overlap with one, or cover it, into `found`."""
        tokens: list = pattern.split(".")
        size: cython.Py_ssize_t = len(tokens)
        at: cython.Py_ssize_t = 0
        node: Node
        each: Node
        waiting: list = [self.root]
        beyond: list
        token: str
        while waiting and at <= size:
            # All nodes that are `at` tokens deep, then those below them.
            beyond = []
            for node in waiting:
                if steps is not None:
                    steps.spend()
                if at == size:
                    add(found, node)
                    continue
                token = tokens[at]
                each = node.below.get(">")
                if each is not None:
                    add(found, each)
                if token == ">":
                    if not covering:
                        everything(node, steps, found)
                elif token == "*" and not covering:
                    for key, each in node.below.items():
                        if key != ">":
                            beyond.append(each)
                else:
                    each = node.below.get(token)
                    if each is not None:
                        beyond.append(each)
                    if token != "*":
                        each = node.below.get("*")
                        if each is not None:
                            beyond.append(each)
            waiting = beyond
            at += 1
        return 0


@cython.cfunc
@cython.inline
@cython.exceptval(-1, check=False)
def add(found: dict, node: Node) -> cython.int:
    if node.values is not None:
        found.update(node.values)
    return 0


@cython.cfunc
@cython.exceptval(-1, check=False)
def everything(node: Node, steps: Steps | None, found: dict) -> cython.int:
    """Put the values of all nodes below one into `found`."""
    waiting: list = list(node.below.values())
    each: Node
    while waiting:
        each = waiting.pop()
        if steps is not None:
            steps.spend()
        add(found, each)
        waiting.extend(each.below.values())
    return 0
