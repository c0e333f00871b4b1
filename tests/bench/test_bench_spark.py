"""The bench of Spark, tiny, against real servers."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.spark.rows import ROWS, Figure
from tests.jvms import quick_jvms
from tests.slow import one_in

FIGURES = (21, 22)
"""The second where the system lets a share of the cores be given."""
LIMIT_S = 400


@pytest.mark.timeout(LIMIT_S)
@pytest.mark.parametrize("rows", one_in(2, [["filter"], list(ROWS)]))
def test_every_row_gives_its_figures(tmp_path: Path, rows: list[str]) -> None:
    record = tmp_path / "figures.json"
    command = [sys.executable, "-m", "bench.spark", "--size", "tiny", "--json", str(record)]
    command += [f"--only={row}" for row in rows]
    done = subprocess.run(
        command, env=quick_jvms(), capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads(record.read_text())
    assert len(rows) < len(ROWS) or len(figures) in FIGURES
    assert len(figures) >= len(rows)
    assert all(one["value"] > 0 and one["title"] in done.stdout for one in figures)


@pytest.mark.parametrize(
    ("figure", "met"),
    [
        (Figure("share", 0.9, "", floor=0.85), True),
        (Figure("share", 0.8, "", floor=0.85), False),
        (Figure("time", 121.0, "ms", ceiling=120.0), False),
        (Figure("rate", 1.0, ""), True),
    ],
)
def test_a_missed_bound_is_told(figure: Figure, met: bool) -> None:
    assert figure.met is met
    assert ("MISSED" in figure.line()) is not met
