"""`python -m bench.storage`, tiny, against real processes, and how its rows are judged."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.storage import Found, Row, rows

ROOT = Path(__file__).resolve().parents[2]


def test_every_row_beside_the_real_server():
    run = ("--size", "tiny", "--rounds", "1", "--timeout", "10", "--json")
    done = subprocess.run(
        [sys.executable, "-m", "bench.storage", *run],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)["rows"]
    assert [one["name"] for one in made] == [row.name for row in rows()]
    assert all(one["ratio"] > 0 for one in made)


@pytest.mark.parametrize(("less", "ratio"), [(False, 0.5), (True, 2.0)])
def test_a_ratio_above_one_means_that_ours_is_better(less, ratio):
    first = rows()[0]
    row = Row("row", "row", 1.0, first.ours, first.theirs, 1, first.measure, less=less)
    found = Found(row, [100, 1, 1], [2, 2, 0.1])
    assert found.ratio() == ratio
    assert found.met() is less
