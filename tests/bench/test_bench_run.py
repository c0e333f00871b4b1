"""`make bench` and the kill storm, tiny, against real processes, so that they never rot."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.all_patterns import PATTERNS
from bench.servers import Recipe, Server, ServerFailed, anchor

ROOT = Path(__file__).resolve().parents[2]


def real() -> Recipe:
    """The real server."""
    return anchor()


def bench(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run `python -m bench` in the checkout."""
    return subprocess.run(
        [sys.executable, "-m", "bench", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=110,
    )


def test_every_pattern_beside_the_real_server():
    real()
    done = bench("--size", "tiny", "--rounds", "1", "--timeout", "5", "--json")
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    assert [one["name"] for one in made["patterns"]] == [one.name for one in PATTERNS]
    assert all(one["ratio"] > 0 for one in made["patterns"])
    assert made["ours"]["startup_s"][0] > 0 and made["ours"]["startup_bare_s"][0] > 0


def test_floor_decides_the_exit_code():
    command = real().command[0]
    run = ("--size", "tiny", "--rounds", "1", "--only", "pub-16", "--ours", command)
    done = bench(*run, "--floor", "1000")
    assert done.returncode == 1
    assert "below the floor: pub-16" in done.stderr
    assert "pub-16: publish 16 B" in done.stdout
    assert bench(*run, "--floor", "pub-16=0").returncode == 0


def test_a_server_that_ends_is_reported():
    recipe = Recipe("broken", ("sh", "-c", "echo no such thing >&2; exit 3", "{port}"))
    with pytest.raises(ServerFailed, match="ended with 3") as caught:
        Server(recipe).__enter__()
    assert "no such thing" in str(caught.value)


def test_the_same_bytes_without_a_server():
    done = subprocess.run(
        [sys.executable, "-m", "bench.bare", "--scale", "0.002", "--rounds", "1"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    shares = [float(line.rpartition(" ")[2]) for line in done.stdout.splitlines()[:3]]
    assert all(share > 0 for share in shares)
    assert "there and back" in done.stdout
