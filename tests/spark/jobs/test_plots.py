"""Pictures of results: they are drawn, and what cannot be drawn is told at once."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headwater.spark.errors import OptionError
from headwater.spark.jobs.anomaly import AnomalyResult
from headwater.spark.jobs.audit import AuditResult
from headwater.spark.jobs.gaps import GapsResult
from headwater.spark.jobs.plots import (
    check_plot,
    plot_anomaly,
    plot_audit,
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


SILENT = {"key": "a", "from_us": T + 10**7, "until_us": T + 2 * 10**7, "open": False}
DRAWN = [
    (plot_gaps, gaps, {"key": "a", "first": 3, "last": 7, "missing": 5}),
    (plot_gaps, gaps, {**SILENT, "missing": 5}),
    (plot_uptime, uptime, SILENT),
    (plot_anomaly, anomaly, {"key": "a", "t_us": T, "value": 1.0, "strangeness": 9.0}),
    (plot_audit, audit, {"kind": "missing", "first": 3, "last": 7, "messages": 5}),
]


@pytest.mark.parametrize(("draw", "result", "finding"), DRAWN)
@pytest.mark.parametrize("form", ["png", "svg"])
def test_findings_are_in_the_picture(
    draw: Callable, result: Callable, finding: dict[str, Any], form: str, tmp_path: Path
) -> None:
    """A picture with findings has more in it than one without."""
    some, none = tmp_path / f"some.{form}", tmp_path / f"none.{form}"
    draw(result([finding]), str(some))
    draw(result([]), str(none))
    starts = {"png": b"\x89PNG", "svg": b"<?xml"}
    assert some.read_bytes().startswith(starts[form])
    assert some.read_bytes() != none.read_bytes()
    if form == "svg":
        assert len(some.read_bytes()) > len(none.read_bytes())


@pytest.mark.parametrize("path", ["x.doc", "nowhere/x.png", "png"])
def test_what_cannot_be_drawn_is_told_before_the_job(path: str, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="--plot"):
        check_plot(path)
    check_plot(str(tmp_path / "x.svg"))
    check_plot(None)
