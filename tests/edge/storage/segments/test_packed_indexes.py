"""Index files as a gateway writes them, and as earlier versions of it wrote them."""

import random
import struct
import zlib
from types import SimpleNamespace

import pytest

from headwater.edge.storage.format.crc import checksum
from headwater.edge.storage.segments.index_bytes import index_bytes, read_index
from headwater.edge.storage.segments.segment_files import INDEX_ENTRY, RUN, IndexFile

SEED = 77


class Plain:
    """The packer of a stream that is not sealed."""

    def seal_blob(self, data: bytes, purpose: bytes) -> bytes:
        return data

    def open_blob(self, data: bytes, purpose: bytes) -> bytes:
        return data


STORE = SimpleNamespace(seed=SEED, packer=Plain(), packs_index=True)
Row = tuple[int, int, int, int, int, int]


def index_of(rows: list[Row], *, lengths: bool = False) -> IndexFile:
    """An index with these rows."""
    used = sorted({row[5] for row in rows}, reverse=True)
    return IndexFile(
        3, 1, 5, 1_764_000_000_123_456_789, 1 << 20, 7, 1 << 40, 1_764_000_000_000_000_001, 9,
        deletes=RUN.pack(9, 12) + RUN.pack(20, 20),
        lost=[(30, 31)],
        subjects=[(number, b"press.%05d" % number) for number in used],
        entries=b"".join(INDEX_ENTRY.pack(*row) for row in rows),
        packed=b"".join(struct.pack("<I", row[2] % 90) for row in rows) if lengths else b"",
    )  # fmt: skip


def content(index: IndexFile | None) -> tuple[object, ...]:
    """All that an index says; the order of its subjects says nothing."""
    assert index is not None
    small = (index.number, index.generation, index.stream, index.created, index.data_end)
    ends = (index.first_seq, index.last_seq, index.last_ts, index.log_segment)
    removals = (bytes(index.deletes), index.lost, sorted(index.subjects))
    return (*small, *ends, *removals, bytes(index.entries), bytes(index.packed))


def steady(count: int, chance: random.Random, subjects: int) -> list[Row]:
    """Messages of one size that come every 10 ms, and not quite."""
    at, rows = 1_764_000_000_000_000_000, []
    for number in range(count):
        at += 10_000_000 + chance.randint(-300, 300) * 1000
        subject = chance.randrange(subjects) + 1
        rows.append((70_000 + number, at, 512 + 272 * number, 200, 0, subject))
    return rows


def odd(count: int, chance: random.Random) -> list[Row]:
    """Rows whose numbers may be anything, and come back smaller."""
    return [
        (
            chance.getrandbits(64), chance.getrandbits(64) - (1 << 63),
            *(chance.choice((0, 1, chance.getrandbits(32))) for _ in range(3)),
            chance.randrange(5) + 1,
        )
        for _ in range(count)
    ]  # fmt: skip


@pytest.mark.parametrize("lengths", [False, True])
@pytest.mark.parametrize("count", [0, 1, 2, 850])
def test_a_packed_index_says_the_same(count: int, lengths: bool) -> None:
    chance = random.Random(count)
    for rows in (steady(count, chance, 40), odd(count, chance)):
        index = index_of(rows, lengths=lengths)
        assert content(read_index(STORE, index_bytes(STORE, index))) == content(index)


@pytest.mark.parametrize(("subjects", "bytes_max"), [(1, 2.5), (20, 3.5), (1000, 7.0)])
def test_what_comes_at_a_steady_pace_takes_few_bytes(subjects: int, bytes_max: float) -> None:
    """Before there were differences it was 5, 6 and 11."""
    index = index_of(steady(850, random.Random(1), subjects))
    assert len(index_bytes(STORE, index)) / 850 <= bytes_max


def test_a_damaged_one_is_not_used() -> None:
    data = index_bytes(STORE, index_of(steady(30, random.Random(2), 4)))
    for at in range(len(data)):
        changed = data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :]
        assert read_index(STORE, changed) is None
        assert read_index(STORE, data[:at]) is None


def test_one_of_an_earlier_version_is_read() -> None:
    index = index_of(steady(300, random.Random(3), 20), lengths=True)
    plain = index.encode(SEED)
    planes = b"".join(plain[first::32] for first in range(32))
    data = struct.pack("<4sI", b"HWIZ", len(plain)) + zlib.compress(planes)
    data += struct.pack("<I", checksum(data, SEED))
    assert content(read_index(STORE, data)) == content(index)
