"""`python -m bench.access`, tiny, against real processes."""

import subprocess
import sys
from pathlib import Path

from bench.access import REQUIRED, Found

ROOT = Path(__file__).resolve().parents[2]


def test_both_rows_beside_the_real_server() -> None:
    run = ("--scale", "0.02", "--rounds", "1")
    done = subprocess.run(
        [sys.executable, "-m", "bench.access", *run],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == list(REQUIRED)
    assert all(float(line.split(" ratio ")[1].split()[0]) > 0 for line in lines)


def test_a_row_is_judged_by_its_ratio() -> None:
    assert Found("logins", 7.0, 10.0, 0.7).met() and not Found("logins", 6.0, 10.0, 0.6).met()
    assert not Found("permissions", 0.89, 1.0, 0.89).met()
