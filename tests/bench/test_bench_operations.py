"""`python -m bench.operations`, tiny, against real processes."""

import subprocess
import sys
from pathlib import Path

import pytest

from bench.operations import KINDS

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("nodes", ["1", "3"])
def test_every_kind_is_answered(nodes: str) -> None:
    words = ["--nodes", nodes, "--count", "40", "--rounds", "1"]
    done = subprocess.run(
        [sys.executable, "-m", "bench.operations", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows = done.stdout.splitlines()[1:]
    assert [line[:36].strip() for line in rows] == [kind.name for kind in KINDS]
    assert all(float(line.split()[-4]) > 0 for line in rows)
