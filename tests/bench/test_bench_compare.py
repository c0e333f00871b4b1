"""Medians, ratios, floors and reports of a comparison."""

import json

import pytest

from bench import report as reports
from bench.all_patterns import PATTERNS
from bench.compare import Outcome, Report, Side
from bench.machine import look
from bench.patterns import Figure, Pattern, percentiles
from bench.servers import Recipe


def unused(server, load):
    raise AssertionError


RATE = Pattern("one", "1 -> 1", 10, unused)
WAIT = Pattern("ask", "request", 10, unused, latency=True)


def rates(*values: float) -> list[Figure]:
    return [Figure(value, 10, 1.0) for value in values]


def waits(*values: float) -> list[Figure]:
    return [Figure(1, 10, 1.0, {"p50": value, "p99": 2 * value}) for value in values]


@pytest.fixture
def found() -> Report:
    ours = Side(Recipe("ours", ("a",)), "1", [0.1], [40.0], [50.0])
    theirs = Side(Recipe("theirs", ("b",)), "2", [0.2], [20.0], [50.0])
    fast = Outcome(RATE, rates(30, 20, 1), rates(10, 10, 40))
    slow = Outcome(WAIT, waits(100), waits(50))
    return Report(look(), ours, theirs, [fast, slow])


def test_ratio_is_of_medians_and_better_is_more(found):
    assert found.outcomes[0].ratio() == 2.0
    assert found.outcomes[0].spread() == (1 / 40, 3.0)
    assert found.outcomes[1].ratio() == 0.5


def test_floors(found):
    assert found.below({}) == []
    assert found.below({"": 1.0}) == ["ask"]
    assert found.below({"": 1.0, "ask": 0.4, "one": 2.5}) == ["one"]


def test_an_unmeasured_pattern_is_below_every_floor(found):
    found.outcomes[0].ours.clear()
    assert found.below({"": 0.0}) == ["one"]
    assert "failed" in reports.plain(found)


def test_reports(found):
    lines = reports.plain(found).splitlines()
    assert lines[1].split()[-2:] == ["2.00", "0.03..3.00"]
    made = json.loads(reports.document(found))
    assert [one["ratio"] for one in made["patterns"]] == [2.0, 0.5]


def test_percentiles():
    figure = percentiles(list(range(1000, 101000, 1000)), 10**9)
    assert figure.latency["p50"] == pytest.approx(51)
    assert figure.latency["max"] == 100
    assert figure.rate == 100


def test_pattern_names_are_unique():
    names = [pattern.name for pattern in PATTERNS]
    assert len(set(names)) == len(names)
