"""Pictures of results: they are drawn, and what cannot be drawn is told at once."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from headwater.spark import cli_running
from headwater.spark.errors import OptionError
from headwater.spark.jobs.anomaly import AnomalyResult
from headwater.spark.jobs.audit import AuditResult
from headwater.spark.jobs.backfill import BackfillResult, joined_parts
from headwater.spark.jobs.export import MANIFEST, ExportResult
from headwater.spark.jobs.following import picture
from headwater.spark.jobs.following.picture import Picture, uptime_numbers
from headwater.spark.jobs.gaps import GapsResult
from headwater.spark.jobs.plots import (
    check_plot,
    plot_anomaly,
    plot_audit,
    plot_backfill,
    plot_export,
    plot_gaps,
    plot_uptime,
)
from headwater.spark.jobs.uptime import UptimeResult

COUNTS = {"read": 9, "planned": 9, "expired": 0, "lost": 0, "seconds": 1.0}
T = 1_795_230_000_000_000


def gaps(findings: list[dict[str, Any]]) -> GapsResult:
    sums = {"gaps": len(findings), "missing": 5, "restarts": 0, "repeats": 0, "unknown": 0}
    return GapsResult(**sums, keys=2, **COUNTS, findings=findings)


def uptime(findings: list[dict[str, Any]]) -> UptimeResult:
    devices = [{"key": "a", "first_us": T, "last_us": T + 10**8, "uptime": 0.5}]
    return UptimeResult(
        keys=1, intervals=1, offline_now=0, offline_us=10**7, silence_us=10**6,
        until_us=T + 10**8, unknown=0, **COUNTS, findings=findings, devices=devices,
    )  # fmt: skip


def anomaly(findings: list[dict[str, Any]]) -> AnomalyResult:
    return AnomalyResult(
        anomalies=1, judged=9, keys=1, unknown=0, **COUNTS, findings=findings
    )


def audit(findings: list[dict[str, Any]]) -> AuditResult:
    names = ("missing", "extra", "different", "expired", "kept", "behind", "ranges",
             "ranges_differing", "origin_planned", "origin_read", "mirror_planned",
             "mirror_read")  # fmt: skip
    return AuditResult(**dict.fromkeys(names, 1), end=100, findings=findings, seconds=1.0)


def backfill(parts: list[dict[str, Any]]) -> BackfillResult:
    counts = dict.fromkeys(("rows", "already", "earlier", "planned", "steps"), 9)
    return BackfillResult(**counts, stream="HISTORY", seconds=1.0, parts=parts)


SILENT = {"key": "a", "from_us": T + 10**7, "until_us": T + 2 * 10**7, "open": False}
DRAWN = [
    (plot_gaps, gaps, {"key": "a", "first": 3, "last": 7, "missing": 5}),
    (plot_gaps, gaps, {**SILENT, "missing": 5}),
    (plot_uptime, uptime, SILENT),
    (plot_anomaly, anomaly, {"key": "a", "t_us": T, "value": 1.0, "strangeness": 9.0}),
    (plot_audit, audit, {"kind": "missing", "first": 3, "last": 7, "messages": 5}),
    (plot_backfill, backfill,
     {"stream": "A", "kind": "earlier", "first": 3, "last": 7, "rows": 5}),
]


@pytest.mark.parametrize(("draw", "result", "finding"), DRAWN)
@pytest.mark.parametrize("form", ["png", "svg"])
def test_findings_are_in_the_picture(
    draw: Callable, result: Callable, finding: dict[str, Any], form: str, tmp_path: Path
) -> None:
    """A picture with findings has more in it than one without."""
    some, none = tmp_path / f"some.{form}", tmp_path / f"none.{form}"
    for findings, path in (([finding], some), ([], none)):
        found = result(findings)
        if draw is plot_backfill:
            draw(found, str(path))
        else:
            draw(found.findings, found.as_dict(), str(path))
    starts = {"png": b"\x89PNG", "svg": b"<?xml"}
    assert some.read_bytes().startswith(starts[form])
    assert some.read_bytes() != none.read_bytes()
    if form == "svg":
        assert len(some.read_bytes()) > len(none.read_bytes())


def test_pieces_of_an_export_are_in_the_picture(tmp_path: Path) -> None:
    def piece(stream: str, start: int, **more: int) -> dict[str, Any]:
        of = {"stream": stream, "start": start, "end": start + 9}
        return {"range": of, "rows": 10, "expired": 0, "lost": 0} | more

    def drawn(name: str, pieces: list[dict[str, Any]]) -> str:
        folder = tmp_path / name
        folder.mkdir()
        (folder / MANIFEST).write_text(json.dumps({"request": {}, "pieces": pieces}))
        counts = dict.fromkeys(("read_back", "pieces", "resumed", "planned", "expired", "lost"), 20)
        result = ExportResult(rows=20, **counts, path=str(folder), seconds=1.0)
        plot_export(result, f"{folder}.svg")
        return Path(f"{folder}.svg").read_text()

    whole = drawn("whole", [piece("A", 1), piece("B", 1)])
    holes = drawn("holes", [piece("A", 1, lost=1), piece("B", 1, expired=2), {"range": {}}])
    # matplotlib writes a color as its number: red twice, of the piece and of the legend.
    assert whole.count("#d62728") < holes.count("#d62728")
    assert whole.count("#ffd700") < holes.count("#ffd700")


def test_stretches_that_follow_each_other_are_one() -> None:
    def part(stream: str, first: int, kind: str) -> dict[str, Any]:
        return {"stream": stream, "first": first, "last": first + 9, "rows": 5, "kind": kind}

    parts = [part("A", 1, "earlier"), part("B", 1, "earlier"), part("A", 11, "earlier"),
             part("A", 21, "written"), part("B", 31, "earlier")]  # fmt: skip
    assert [(each["stream"], each["first"], each["last"], each["rows"], each["kind"])
            for each in joined_parts(parts)] == [
        ("A", 1, 20, 10, "earlier"), ("B", 1, 10, 5, "earlier"), ("A", 21, 30, 5, "written"),
        ("B", 31, 40, 5, "earlier"),
    ]  # fmt: skip


def test_the_picture_of_a_job_that_follows_is_always_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is replaced in one step; what cannot be drawn leaves it, and is told."""
    monkeypatch.setattr(picture, "REDRAW", 0)
    path, told = tmp_path / "x.svg", []
    drawn = Picture(str(path), told.append)
    drawn.draw_findings(plot_gaps, {"gaps": 0, "missing": 0})
    empty = path.read_text()
    drawn.add({"key": "a", "first": 3, "last": 7, "missing": 5})
    drawn.draw_findings(plot_gaps, {"gaps": 0, "missing": 0})
    assert path.read_text() == empty
    drawn.draw_findings(plot_gaps, {"gaps": 1, "missing": 5})
    whole = path.read_text()
    assert len(whole) > len(empty)

    def broken(part: str) -> None:
        Path(part).write_text("half")
        raise OSError("full")

    drawn.draw(broken, "other")
    assert told == [f"{path} is not drawn: full"]
    assert path.read_text() == whole and list(tmp_path.iterdir()) == [path]
    monkeypatch.setattr(picture, "REDRAW", 3600)
    drawn.draw(lambda part: Path(part).touch(), 1)
    assert path.read_text() == whole
    drawn.draw(lambda part: Path(part).touch(), 1, last=True)
    assert path.read_text() == ""
    Picture(None, told.append).draw(broken, 1)
    assert len(told) == 1


def test_a_silence_that_was_open_and_ended_is_one_silence() -> None:
    def line(key: str, start: int, end: int, still: bool) -> dict[str, Any]:
        return {"key": key, "from_us": start, "until_us": end, "open": still}

    told = [line("a", 10, 20, True), line("a", 10, 40, False), line("b", 60, 70, True)]
    silences, numbers = uptime_numbers(told, 5, 110)
    assert silences == [line("a", 10, 40, False), line("b", 60, 110, True)]
    assert numbers["devices"] == [
        {"key": "b", "first_us": 10, "uptime": 0.5}, {"key": "a", "first_us": 10, "uptime": 0.7}
    ]  # fmt: skip
    assert uptime_numbers([], 5, 110) == (
        [], {"silence_us": 5, "until_us": 110, "devices": []}
    )  # fmt: skip


@pytest.mark.parametrize("form", ["png", "svg"])
def test_a_picture_without_room_is_told_in_a_line(form: str, tmp_path: Path) -> None:
    path = tmp_path / f"x.{form}"
    path.symlink_to("/dev/full")

    @click.command()
    def drawing() -> None:
        cli_running.draw(str(path), plot_gaps, [], gaps([]).as_dict())

    done = CliRunner().invoke(drawing)
    assert (done.exit_code, done.output) == (
        1, f"Error: {path} cannot be written: No space left on device\n"
    )  # fmt: skip


@pytest.mark.parametrize("path", ["x.doc", "nowhere/x.png", "png", "/proc/x.png"])
def test_what_cannot_be_drawn_is_told_before_the_job(path: str, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="--plot"):
        check_plot(path)
    check_plot(str(tmp_path / "x.svg"))
    check_plot(None)
