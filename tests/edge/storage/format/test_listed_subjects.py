"""Subjects as an index file lists them."""

import random
import struct

import pytest

from headwater.edge.storage.format.listed_subjects import listed_subjects


def listed(rows: list[tuple[int, bytes]]) -> bytes:
    """As they lie in a file."""
    return b"".join(struct.pack("<II", number, len(text)) + text for number, text in rows)


@pytest.mark.parametrize("count", [0, 1, 300])
def test_subjects_are_read_as_they_were_written(count: int) -> None:
    chance = random.Random(count)
    rows = [(chance.getrandbits(32), chance.randbytes(chance.randrange(40))) for _ in range(count)]
    data = b"head" + listed(rows)
    assert listed_subjects(data + b"tail", 4, count) == (rows, len(data))


@pytest.mark.parametrize("length", [5, 2**31, 2**32 - 1])
def test_what_ends_too_early_is_refused(length: int) -> None:
    data = listed([(1, b"a.b")]) + struct.pack("<II", 2, length) + b"abcd"
    with pytest.raises(ValueError, match="ends within a subject"):
        listed_subjects(data, 0, 2)
    for end in range(11, 18):
        with pytest.raises(ValueError, match="ends within its subjects"):
            listed_subjects(data[:end], 0, 2)
