"""Which streams have subjects that overlap with a subject, without asking every stream."""

from collections.abc import Iterator
from typing import Any


class Node:
    """A place in the tree of subjects, one token below its parent's."""

    __slots__ = ("below", "streams")

    def __init__(self) -> None:
        self.below: dict[str, Node] = {}
        self.streams: dict[str, Any] = {}
        """By name: those with the subject that ends here."""


class SubjectIndex:
    """Subjects of the streams of one account. Grows with them."""

    def __init__(self) -> None:
        self._root = Node()

    def enter(self, stream: Any) -> None:
        """A stream has the subjects of its configuration from now on."""
        for subject in stream.config.subjects:
            node = self._root
            for token in subject.split("."):
                node = node.below.setdefault(token, Node())
            node.streams[stream.name] = stream

    def leave(self, stream: Any) -> None:
        """A stream's configuration does not count any more."""
        for subject in stream.config.subjects:
            path = [self._root]
            tokens = subject.split(".")
            for token in tokens:
                path.append(path[-1].below.setdefault(token, Node()))
            path[-1].streams.pop(stream.name, None)
            while tokens and not path[-1].streams and not path[-1].below:
                path.pop()
                del path[-1].below[tokens.pop()]

    def overlapping(self, subject: str) -> dict[str, Any]:
        """Streams by name that may get some message which `subject` matches."""
        tokens = subject.split(".")
        found: dict[str, Any] = {}
        waiting = [(self._root, 0)]
        while waiting:
            node, at = waiting.pop()
            if at == len(tokens):
                found.update(node.streams)
                continue
            token = tokens[at]
            if ">" in node.below:
                found.update(node.below[">"].streams)
            if token == ">":
                for each in everything(node):
                    found.update(each.streams)
            elif token == "*":
                waiting += [(each, at + 1) for key, each in node.below.items() if key != ">"]
            else:
                waiting += [
                    (node.below[key], at + 1) for key in (token, "*") if key in node.below
                ]
        return found


def everything(node: Node) -> Iterator[Node]:
    """All places below one."""
    waiting = list(node.below.values())
    while waiting:
        each = waiting.pop()
        yield each
        waiting += each.below.values()
