"""The `nats` tool says the same at headwater and at nats-server.

`make clients` installs it from its registry; without it these tests are skipped.
"""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bench.servers import Recipe, anchor, headwater
from tests.clients.tool_desk import Said, found, play
from tests.slow import shared

TOOL = found("nats")
pytestmark = pytest.mark.skipif(
    TOOL is None, reason="the `nats` tool is not installed; run `make clients`"
)
TRANSCRIPTS = Path(__file__).parent / "transcripts"
AREAS = sorted(path.stem for path in TRANSCRIPTS.glob("*.txt") if path.stem != "setup")
FURTHER = [f"further/{path.stem}" for path in sorted((TRANSCRIPTS / "further").glob("*.txt"))]
"""More of everything, with refusals; `make slow` runs these."""

MISTAKES = ("unknown long flag", "unknown short flag", "Pass --help", "no answer in")
"""What no transcript holds: the test is wrong then, or a server is silent."""


def commands(area: str) -> list[str]:
    """The commands of a transcript, one a line.

    A line is a command of the app's user, or of the system's behind `sys`. `&` starts one that
    goes on and is read at the end; `{dir}` is the user's folder, `{url}` the server.
    """
    return (TRANSCRIPTS / f"{area}.txt").read_text().splitlines()


def said(given: list[str], folder: Path) -> tuple[list[Said], list[Said]]:
    """What both servers had the tool say, headwater first."""

    def at(recipe: Recipe) -> list[Said]:
        own = folder / recipe.name
        own.mkdir()
        return play(recipe, str(TOOL), own, given)

    with ThreadPoolExecutor(2) as both:
        ours, theirs = both.map(at, (headwater(), anchor()))
    return ours, theirs


@pytest.mark.parametrize("area", shared([*AREAS, *FURTHER], lambda area: area in AREAS))
def test_area(area: str, tmp_path: Path) -> None:
    ours, theirs = said(commands("setup") + commands(area), tmp_path)
    for one, other in zip(ours, theirs, strict=True):
        assert not any(word in other.text for word in MISTAKES), (other.line, other.text)
        assert (one.status, one.shape()) == (other.status, other.shape()), one.line
