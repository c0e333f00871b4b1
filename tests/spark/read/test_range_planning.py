"""Ranges cover every sequence once, whatever the numbers."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from headwater.spark.read.partition import packed
from headwater.spark.read.planning import (
    MAX_PARTITIONS,
    SequenceRange,
    StreamPlan,
    cut_ranges,
)


def plan(start: int, end: int, held: int | None = None, mean_bytes: int = 100) -> StreamPlan:
    return StreamPlan("S", "then", start, end, start, end, held, False, mean_bytes)


def test_ranges_share_partitions_when_there_are_many() -> None:
    def shares(works: list[SequenceRange], most: int | None) -> list[list[int]]:
        return [[work.start for work in part.works] for part in packed(works, most)]

    small = [SequenceRange("S", "", n, n, planned=1) for n in range(200)]
    assert [len(share) for share in shares(small, 8)] == [25] * 8
    assert len(shares(small, None)) == 64 and len(shares(small[:64], None)) == 64
    assert [n for share in shares(small, 7) for n in share] == list(range(200))
    large = [replace(work, planned=1_000_000, mean_bytes=10) for work in small]
    assert len(shares(large, None)) == 200
    mixed = [*small[:100], replace(small[100], planned=2_000_000), *small[101:]]
    assert [100] in [share[-1:] for share in shares(mixed, 4)]
    assert shares([], None) == []


@given(st.integers(1, 2**53), st.integers(0, 10**7), st.integers(1, 300))
def test_ranges_are_adjacent_and_even(start: int, span: int, partitions: int) -> None:
    ranges = list(cut_ranges(plan(start, start + span), partitions))
    assert len(ranges) == min(partitions, span + 1)
    assert ranges[0].start == start and ranges[-1].end == start + span
    for left, right in zip(ranges, ranges[1:], strict=False):
        assert right.start == left.end + 1
    lengths = [part.end - part.start + 1 for part in ranges]
    assert max(lengths) - min(lengths) <= 1


def test_an_empty_plan_has_no_ranges() -> None:
    assert list(cut_ranges(plan(1, 0), None)) == []
    assert list(cut_ranges(plan(5, 4), 7)) == []


def test_without_a_hint_size_decides() -> None:
    assert len(list(cut_ranges(plan(1, 1000), None))) == 1
    assert len(list(cut_ranges(plan(1, 4_500_000), None))) == 5
    assert len(list(cut_ranges(plan(1, 1000, mean_bytes=1 << 20), None))) == 8
    # Holes cost nothing: a range of a million sequences that holds ten messages is one task.
    assert len(list(cut_ranges(plan(1, 1_000_000, held=10), None))) == 1
    assert len(list(cut_ranges(plan(1, 2**50), None))) == MAX_PARTITIONS
