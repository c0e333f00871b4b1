"""The bench of links, tiny, against real processes."""

import subprocess
import sys

import pytest

from bench.links.__main__ import SIZES, tell
from bench.links.rows import ROWS

FIGURES = {
    "mirror": 2, "source": 2, "sources": 1, "slow": 3, "telemetry": 2, "fast": 1, "heal": 2,
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
async def test_each_row_gives_its_figures(name: str) -> None:
    found = await ROWS[name]("ours", "ours", SIZES["tiny"])
    assert len(found) == FIGURES[name]
    assert all(value >= 0 for value in found.values())


def test_the_command_runs_both_servers() -> None:
    command = [sys.executable, "-m", "bench.links", "--size", "tiny", "--rounds", "1"]
    done = subprocess.run(
        [*command, "--only", "mirror"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "hub theirs, edge ours" in done.stdout


def test_a_figure_is_told_with_its_ratio(capsys: pytest.CaptureFixture[str]) -> None:
    tell("speed", {("ours", "ours"): 30.0, ("theirs", "theirs"): 10.0, ("ours", "theirs"): 20.0})
    told = capsys.readouterr().out
    assert "ours 30.00 (3.00)   theirs 10.00   hub ours, edge theirs 20.00 (2.00)" in told
