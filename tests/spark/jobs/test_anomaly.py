"""Strange values: planted ones are found, exactly, by a batch and by a query that follows."""

import json
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headwater.spark.errors import OptionError
from headwater.spark.jobs.anomaly import Strange, run_anomaly
from headwater.spark.jobs.detector import THRESHOLD, Detector
from headwater.spark.jobs.events import EventKind, event_options
from headwater.spark.jobs.following.anomaly import AnomalyStep, anomaly_notebook
from headwater.spark.jobs.following.follower import Follower

KIND = EventKind("token:2", value="temperature")
STRANGE = {("a", 300): 95.0, ("b", 450): 20.0}
"""The device and the number of its message: what it measures then."""
COUNT = 500


def measured(device: str, number: int) -> float:
    noise = random.Random(f"{device} {number}").uniform(-1, 1)
    return STRANGE.get((device, number), 60 + noise + (device == "b") * 5)


def rows(first: int, last: int) -> list[tuple[str, bytes, None]]:
    return [
        (f"HEAT.{device}.t", json.dumps({"temperature": measured(device, n)}).encode(), None)
        for n in range(first, last)
        for device in ("a", "b")
    ]


def test_a_detector_tells_an_episode_once_and_goes_on_from_its_state() -> None:
    values = [math.sin(n / 5) for n in range(400)] + [5.0, 5.1, 5.0] + [0.0] * 300 + [-60.0]
    whole = Detector()
    told = [whole.feed(value) for value in values]
    alarms = [number for number, found in enumerate(told) if found >= THRESHOLD]
    assert alarms == [400, 703]
    first = Detector()
    found = [first.feed(value) for value in values[:401]]
    second = Detector()
    second.restore(json.loads(json.dumps(first.state())))
    assert found + [second.feed(value) for value in values[401:]] == told
    assert len(json.dumps(second.state())) < 20_000


def test_what_is_no_number_is_passed_over() -> None:
    detector = Detector()
    assert [detector.feed(value) for value in (1.0, math.nan, math.inf, 2.0)] == [0.0] * 4
    assert detector.state()["number"] == 2


@pytest.mark.parametrize("broken", [1e308, -1e308, 1.7e308, 3.4028235e38, 1e12])
def test_a_broken_reading_does_not_hide_what_comes_after_it(broken: float) -> None:
    """One number as large as numbers get made every later value usual, for ever."""
    values = [60 + math.sin(n) for n in range(12_000)]
    values[300], values[301], values[11_000] = broken, -broken, 95.0
    detector = Detector()
    told = [detector.feed(value) for value in values]
    alarms = [number for number, found in enumerate(told) if found >= THRESHOLD]
    assert alarms == [300, 11_000]
    assert all(map(math.isfinite, told))
    assert math.isfinite(sum(detector.state()["value"]))


@pytest.mark.parametrize(
    "wrong", [{"threshold": 0.0}, {"memory": 0}, {"quiet": 0}, {"kind": EventKind()}]
)
def test_what_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        Strange(**{"kind": KIND, **wrong})


@pytest.mark.usefixtures("one_server")
def test_planted_values_are_found_exactly(
    spark: Any, server: Any, fill: Callable, run: Callable, tmp_path: Path
) -> None:
    fill("HEAT", [*rows(0, COUNT), ("HEAT.a.t", b"{}", None)])
    source = server.options("HEAT", partitions="2")
    found = run_anomaly(source, Strange(KIND, 10.0), spark=spark)
    assert [(each["key"], each["value"]) for each in found.findings] == [("a", 95.0), ("b", 20.0)]
    assert (found.anomalies, found.keys, found.unknown) == (2, 2, 1)
    assert (found.read, found.planned, found.judged) == (1001, 1001, 1000)
    out = str(tmp_path / "strange")
    words = ("anomaly", "-s", server.url, "--stream", "HEAT", "--by", "token:2")
    done = run(*words, "--value", "temperature", "--threshold", "10", "--out", out)
    assert done.exit_code == 0, done.output
    assert "2 strange values among 1,000 of 2 keys; unknown 1" in done.stdout
    assert spark.read.parquet(out).count() == 2
    wrong = run(*words, "--value", "temperature", "--checkpoint", "x")
    assert wrong.exit_code == 2 and "--follow" in wrong.stderr


@pytest.mark.usefixtures("one_server")
def test_a_query_that_follows_goes_on_where_it_was(
    spark: Any, server: Any, fill: Callable, tmp_path: Path
) -> None:
    source = server.options("HEAT")
    told: list[dict[str, Any]] = []

    def follow() -> list[tuple[str, float]]:
        told.clear()
        strange = Strange(KIND, 10.0)
        notebook = anomaly_notebook(source, strange, str(tmp_path / "at"))
        follower = Follower(notebook, AnomalyStep(strange), told.append, spark)
        query = follower.start({**source, **event_options(KIND)}, until_now=True)
        assert query.awaitTermination(120)
        assert query.exception() is None
        return [(row["key"], row["value"]) for row in told]

    fill("HEAT", rows(0, 400))
    assert follow() == [("a", 95.0)]

    async def more(connection: Any, js: Any) -> None:
        for subject, payload, _ in rows(400, COUNT):
            await js.publish(subject, payload)

    server.run(more)
    assert follow() == [("b", 20.0)]
    assert follow() == []


def test_the_score_on_labelled_series_is_as_the_page_says() -> None:
    from bench.nab import data, load, score, strangeness

    if not data().exists():
        pytest.skip(f"no series in {data()}: set HEADWATER_DATA")
    series = load(data())
    reached, threshold = score(strangeness(series, Detector), series)
    assert reached > 45
    assert threshold == pytest.approx(THRESHOLD, abs=0.2)
    assert score({name: [0.0] * len(one[0]) for name, one in series.items()}, series)[0] == 0
