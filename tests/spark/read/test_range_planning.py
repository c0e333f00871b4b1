"""Ranges cover every sequence once, whatever the numbers."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.spark.options import parse_options
from headwater.spark.read.cores import configured_cores
from headwater.spark.read.partition import packed
from headwater.spark.read.planning import (
    MAX_PARTITIONS,
    SequenceRange,
    StreamPlan,
    cut_ranges,
)


def plan(start: int, end: int, held: int | None = None, mean_bytes: int = 100) -> StreamPlan:
    return StreamPlan("S", "then", start, end, start, end, held, False, mean_bytes)


WITHOUT = parse_options({"stream": "S"})


def test_ranges_share_partitions_when_there_are_many() -> None:
    def shares(works: list[SequenceRange], most: int | None) -> list[list[int]]:
        options = replace(WITHOUT, max_partitions=most)
        return [[work.start for work in part.works] for part in packed(works, options)]

    small = [SequenceRange("S", "", n, n, planned=1) for n in range(200)]
    assert [len(share) for share in shares(small, 8)] == [25] * 8
    assert len(shares(small, None)) == 64 and len(shares(small[:64], None)) == 64
    assert [n for share in shares(small, 7) for n in share] == list(range(200))
    large = [replace(work, planned=1_000_000, mean_bytes=10) for work in small]
    assert len(shares(large, None)) == 200
    mixed = [*small[:100], replace(small[100], planned=2_000_000), *small[101:]]
    assert [100] in [share[-1:] for share in shares(mixed, 4)]
    assert shares([], None) == []


def test_there_are_no_more_tasks_than_the_cores_have_use_for() -> None:
    def tasks(count: int, rows: int, **more: int) -> int:
        works = [SequenceRange("S", "", n, n, planned=rows, mean_bytes=10) for n in range(count)]
        options = replace(WITHOUT, **more)
        parts = packed(works, options)
        assert [work for part in parts for work in part.works] == works
        return len(parts)

    million = 1_000_000
    assert tasks(200, 1, cores=2) == 8 and tasks(5, 1, cores=2) == 5
    assert tasks(200, 1, cores=100) == 200 and tasks(1000, 1, cores=100) == 400
    assert tasks(50, million, cores=2) == 50 and tasks(500, million, cores=2) == 64
    # Whoever says a number means it.
    assert tasks(200, 1, cores=2, max_partitions=100) == 100
    assert tasks(50, 1, cores=2, partitions=50) == 50
    long = plan(1, 1_000_000_000)
    assert len(list(cut_ranges(long, None, 2))) == 64
    assert len(list(cut_ranges(long, None, 20))) == 640
    assert len(list(cut_ranges(long, 100, 2))) == 100
    assert len(list(cut_ranges(plan(1, 3_000_000), None, 2))) == 4


@pytest.mark.parametrize(
    ("settings", "cores"),
    [
        ({}, None),
        ({"spark.cores.max": "6", "spark.executor.cores": "2"}, 6),
        ({"spark.executor.instances": "3", "spark.executor.cores": "4"}, 12),
        ({"spark.executor.instances": "3"}, 3),
        ({"spark.executor.cores": "4"}, None),
        ({"spark.cores.max": "6", "spark.dynamicAllocation.enabled": "true"}, None),
    ],
)
def test_settings_say_how_many_cores_a_cluster_has(
    settings: dict[str, str], cores: int | None
) -> None:
    assert configured_cores(settings) == cores


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
