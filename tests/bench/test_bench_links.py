"""The bench of links, tiny, against real processes."""

import subprocess
import sys

import pytest

from bench.links.__main__ import SIZES, tell
from bench.links.required import REQUIRED, required
from bench.links.rows import ROWS
from tests.slow import shared

FIGURES = {
    "mirror": 2, "source": 2, "sources": 1, "slow": 3, "telemetry": 2, "fast": 1, "heal": 2,
}  # fmt: skip


@pytest.mark.parametrize("name", shared(ROWS, lambda name: name != "slow"))
async def test_each_row_gives_its_figures(name: str) -> None:
    found = await ROWS[name]("ours", "ours", SIZES["tiny"])
    assert len(found) == FIGURES[name]
    assert all(value >= 0 for value in found.values())
    # The longest heal and the share of the payloads are told beside what is asked.
    unasked = {"heal, longest s", "JSON, % of the payloads"}
    assert {title for title in found if required(title) is None} == unasked & found.keys()


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


def test_what_is_required_stands_beside_a_figure(capsys: pytest.CaptureFixture[str]) -> None:
    theirs = {("theirs", "theirs"): 10.0}
    tell("mirror, messages/s", {("ours", "ours"): 29.0, **theirs, ("ours", "theirs"): 12.5})
    tell("mirror, messages/s", {("ours", "ours"): 31.0, **theirs, ("ours", "theirs"): 11.0})
    tell("mirror, CPU us a message", {("ours", "ours"): 3.4, **theirs})
    tell("64 kbit/s, echo, p99 s", {("ours", "ours"): 8.5, ("theirs", "theirs"): 70.0})
    tell("JSON on a fast network, % of the rate without", {("ours", "ours"): 95.0})
    told = capsys.readouterr().out.splitlines()
    assert "ours 29.00 (2.90) !" in told[0] and "(1.25) !" not in told[0]
    assert told[0].endswith("required: ratio >= 3, mixed ratio >= 1.2")
    assert "(3.10) !" not in told[1] and "(1.10) !" in told[1]
    assert "(0.34) !" in told[2] and "required: ratio <= 0.333" in told[2]
    assert "8.50 (0.12) !" in told[3] and "70.00 !" not in told[3]
    assert told[4].endswith("ours 95.00   required: >= 95")


def test_every_requirement_is_of_a_figure() -> None:
    assert all(required(title) is asked for title, asked in REQUIRED.items())
    assert required("100 sources, messages/s") is REQUIRED["sources, messages/s"]
