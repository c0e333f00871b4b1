"""Tours of the official clients: what they print is the same with headwater and nats-server.

`make clients` installs what they need; without it they are skipped.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bench.servers import Server, anchor, headwater
from tests.slow import shared

HERE = Path(__file__).parent
TOUR_S = 60.0
DENO = "javascript/node_modules/.bin/deno"
TOURS = {
    "javascript": (["node", "javascript/tour.mjs"], "javascript/node_modules"),
    "deno": (
        [DENO, "run", "--quiet", "--no-lock", "--allow-all", "javascript/tour.mjs"],
        DENO,
    ),
    "go": (["go/tour"], "go/tour"),
    "orbit": (["orbit/tour"], "orbit/tour"),
    "c": (["c/tour"], "c/tour"),
    "rust": (["rust/target/debug/tour"], "rust/target/debug/tour"),
    "old-go": (["go/old/tour"], "go/old/tour"),
    "old-go-buckets": (["go/old/buckets"], "go/old/buckets"),
    "old-javascript": (["node", "javascript/old.mjs"], "javascript/node_modules/nats"),
    "old-python": ([sys.executable, "python/old.py"], "../../build/old-nats-py"),
    "python-orbit": (
        ["../../build/orbit-py/bin/python", "python/orbit.py"], "../../build/orbit-py"
    ),
    "java": (["java", "-cp", "java/classes:java/lib/*", "Tour"], "java/classes/Tour.class"),
}
"""Each language's command, and what is there once `make clients` has installed its client."""

OLD = "old-"
"""Releases of years ago; `make slow` runs them."""


def prints(command: list[str]) -> list[list[str]]:
    """The lines of a tour with each server, headwater's first."""
    found = []
    for recipe in (headwater(), anchor()):
        with Server(recipe) as server:
            done = subprocess.run(
                [*command, f"nats://127.0.0.1:{server.port}"],
                capture_output=True, text=True, timeout=TOUR_S, check=False, cwd=HERE,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
            found.append(done.stdout.splitlines())
    return found


@pytest.mark.parametrize("language", shared(TOURS, lambda name: not name.startswith(OLD)))
def test_tour(language: str) -> None:
    (program, *words), needed = TOURS[language]
    if not (HERE / needed).exists() or not ("/" in program or shutil.which(program)):
        pytest.skip(f"the client of {language} is not installed; run `make clients`")
    ours, theirs = prints([program, *words])
    assert ours == theirs
    assert len(ours) > (10 if language.startswith(OLD) else 20)
