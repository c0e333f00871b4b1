"""The bench of clusters, tiny, against real processes, and what it says of figures."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from bench.cluster.rows import ALL_CORES
from bench.cluster.speed import METRICS, SIZES, Plan, Report, main, measure
from tests.slow import one_in, shared

ROWS = ["window-128", "waiting", "consumer", "gap-kill", "idle"]


def tiny(path: Path) -> Plan:
    """Few messages, few streams."""
    return Plan((), (), 1, SIZES["tiny"], 2, path)


@pytest.mark.parametrize("row", shared(ROWS, lambda row: row != "gap-kill"))
async def test_a_row_gives_its_figures(tmp_path: Path, row: str) -> None:
    figures = await measure(row, "headwater", tiny(tmp_path))
    assert figures and figures.keys() <= METRICS.keys()
    assert all(value > 0 for name, value in figures.items() if name != "idle-cpu"), figures


@pytest.mark.parametrize("row", one_in(3, ["remade", "behind", "gap-rolling"]))
async def test_a_follower_is_made_again_and_nodes_leave(tmp_path: Path, row: str) -> None:
    assert (await measure(row, "headwater", tiny(tmp_path)))[row] > 0


@pytest.mark.parametrize("row", list(ALL_CORES))
async def test_several_nodes_beside_one_server(tmp_path: Path, row: str) -> None:
    for server in ("headwater", "real"):
        assert (await measure(row, server, tiny(tmp_path)))[row] > 0


@pytest.mark.parametrize("row", ["window-1024", "gap-step-down"])
async def test_the_same_rows_drive_the_real_server(tmp_path: Path, row: str) -> None:
    assert (await measure(row, "real", tiny(tmp_path)))[row] > 0


def test_ratios_floors_and_limits() -> None:
    report = Report()
    for server, rate, gap in (("headwater", 50.0, 3.0), ("real", 100.0, 9.0)):
        report.add(server, {"window-128": rate, "gap-kill": gap})
    report.add("headwater", {"window-128": 150.0})
    assert report.median("window-128", "headwater") == 100
    assert report.ratio("window-128", "real") == 1
    assert report.ratio("gap-kill", "real") == 3
    assert report.ratio("window-128", "real-synced") is None
    assert [line.split(":")[0] for line in report.missed()] == [
        "R3 window 1000, 128 B, messages/s",
        "gap in acks, leader killed, s",
    ]
    assert "| R3 window 1000, 128 B, messages/s | 100 | 100 | 1.00 |  |  |" in report.table()


def test_every_row_and_figure_has_its_place() -> None:
    steps = list(Plan(("idle", "pairs"), ("headwater", "real-synced"), 2, SIZES["tiny"]).steps())
    assert steps == [("idle", "headwater"), ("idle", "real-synced"), ("pairs", "headwater")] * 2


def test_a_row_that_is_not_there_is_refused() -> None:
    answer = CliRunner().invoke(main, ["nothing"])
    assert answer.exit_code == 2 and "window-128" in answer.output
