"""Overlaps found by the tree of subjects are those that a look at every pair finds."""

import random
from types import SimpleNamespace
from typing import Any

from headwater.edge.jetstream.stream.subject_index import SubjectIndex
from headwater.edge.subjects.tokens import overlap

TOKENS = ["a", "b", "c", "*", "*"]


def some_subject(chance: random.Random) -> str:
    tokens = [chance.choice(TOKENS) for _ in range(chance.randint(1, 4))]
    return ".".join([*tokens, ">"] if chance.random() < 0.2 else tokens)


def streams(chance: random.Random, count: int) -> list[Any]:
    return [
        SimpleNamespace(
            name=f"S{n}",
            config=SimpleNamespace(
                subjects=[some_subject(chance) for _ in range(chance.randint(0, 3))]
            ),
        )
        for n in range(count)
    ]


def wanted(there: list[Any], subject: str) -> set[str]:
    return {
        stream.name
        for stream in there
        if any(overlap(subject.encode(), own.encode()) for own in stream.config.subjects)
    }


def test_what_overlaps() -> None:
    chance = random.Random(5)
    index, there = SubjectIndex(), streams(chance, 60)
    for stream in there:
        index.enter(stream)
    seen = 0
    while there:
        for _ in range(20):
            subject = some_subject(chance)
            found = index.overlapping(subject)
            assert set(found) == wanted(there, subject), subject
            seen += len(found)
        index.leave(there.pop(chance.randrange(len(there))))
    assert seen > 1000
    assert index.tree.empty, "nothing is left of streams that are gone"


def test_tokens_without_end() -> None:
    index = SubjectIndex()
    deep = SimpleNamespace(name="D", config=SimpleNamespace(subjects=[".".join(["a"] * 3000)]))
    index.enter(deep)
    assert set(index.overlapping(">")) == {"D"}
    assert not index.overlapping("a.a")
    index.leave(deep)
    assert index.tree.empty
