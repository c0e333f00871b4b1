"""Tours of the official clients: what they print is the same with headwater and nats-server.

`make clients` installs what they need; without it they are skipped.
"""

import shutil
import subprocess
from pathlib import Path

import pytest

from bench.servers import Server, anchor, headwater

HERE = Path(__file__).parent
TOUR_S = 60.0
TOURS = {
    "javascript": ("node", HERE / "javascript" / "tour.mjs", HERE / "javascript" / "node_modules"),
    "go": (str(HERE / "go" / "tour"), "", HERE / "go" / "tour"),
}


def prints(command: list[str]) -> list[list[str]]:
    """The lines of a tour with each server, headwater's first."""
    found = []
    for recipe in (headwater(), anchor()):
        with Server(recipe) as server:
            done = subprocess.run(
                [*command, f"nats://127.0.0.1:{server.port}"],
                capture_output=True, text=True, timeout=TOUR_S, check=False,
            )
            assert done.returncode == 0, done.stderr
            found.append(done.stdout.splitlines())
    return found


@pytest.mark.parametrize("language", TOURS)
def test_tour(language: str) -> None:
    program, script, needed = TOURS[language]
    if not needed.exists() or shutil.which(program) is None:
        pytest.skip(f"the client of {language} is not installed; run `make clients`")
    ours, theirs = prints([str(word) for word in (program, script) if word])
    assert ours == theirs
    assert len(ours) > 20
