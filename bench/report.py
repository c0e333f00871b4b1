"""A comparison for people (table or plain lines) and for programs (JSON)."""

import json
import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from bench.compare import Outcome, Report, Side
from bench.patterns import Figure

WIDE = 130
"""Columns of a terminal from which a table shows the titles of patterns."""

Row = tuple[str, str, str, str, str, str]


def number(value: float) -> str:
    """Messages per second, short: 1.23 M, 456 k."""
    if value >= 1e6:
        return f"{value / 1e6:.2f} M"
    return f"{value / 1e3:.1f} k" if value >= 1e3 else f"{value:.0f}"


def compared(outcome: Outcome, figures: Sequence[Figure]) -> str:
    """Median of one side with its unit; latencies with the 99th percentile."""
    value = outcome.median(figures)
    if value is None:
        return "failed"
    if not outcome.pattern.latency:
        return f"{number(value)}/s"
    if outcome.pattern.unit != "us" or outcome.pattern.part != "p50":
        return f"{value:.1f} {outcome.pattern.unit}"
    p99 = statistics.median(figure.latency["p99"] for figure in figures)
    return f"{value:.1f} us (p99 {p99:.0f})"


def rows(report: Report) -> Iterator[Row]:
    """Pattern, ours, theirs, ratio, what is required of it, range of the single rounds' ratios."""
    for outcome in report.outcomes:
        ratio, spread = outcome.ratio(), outcome.spread()
        yield (
            f"{outcome.pattern.name}: {outcome.pattern.title}",
            compared(outcome, outcome.ours),
            compared(outcome, outcome.theirs),
            "-" if ratio is None else f"{ratio:.2f}",
            f"{outcome.pattern.required:.1f}" if outcome.pattern.required else "",
            "-" if spread is None else f"{spread[0]:.2f}..{spread[1]:.2f}",
        )
    yield from resources(report)


def resources(report: Report) -> Iterator[Row]:
    """Start-up and memory; a ratio above 1 means that ours needs less."""
    for title, name, scale, unit in (
        ("start to first INFO", "startup_bare", 1000.0, "ms"),
        ("the same with an empty JetStream", "startup", 1000.0, "ms"),
        ("memory idle", "rss_idle", 1.0, "MiB"),
        ("memory after a round", "rss_after", 1.0, "MiB"),
    ):
        ours = middle(report.ours, name) * scale
        theirs = middle(report.theirs, name) * scale
        ratio = f"{theirs / ours:.2f}" if ours else "-"
        yield title, f"{ours:.0f} {unit}", f"{theirs:.0f} {unit}", ratio, "", ""


def middle(side: Side, name: str) -> float:
    """Median over rounds of one of the resource lists; 0 when nothing was seen."""
    values: list[float] = getattr(side, name)
    return statistics.median(values) if values else 0.0


def headings(report: Report) -> Row:
    """Column titles; the sides by name and reported version."""
    sides = [f"{side.recipe.name} {side.version}" for side in (report.ours, report.theirs)]
    return ("pattern", sides[0], sides[1], "ratio", "required", "rounds")


def plain(report: Report) -> str:
    """Aligned lines without control characters."""
    table = [headings(report), *rows(report)]
    widths = [max(len(row[column]) for row in table) for column in range(6)]
    lines = []
    for row in table:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join([*lines, report.machine.line()])


def table(report: Report, floors: dict[str, float], width: int) -> object:
    """A rich table; ratios under their floor (or 1) are red. Narrow ones name patterns only."""
    from rich.table import Table

    made = Table(title="side by side, medians", caption=report.machine.line())
    for column, title in enumerate(headings(report)):
        made.add_column(title, justify="left" if column == 0 else "right")
    names = [outcome.pattern.name for outcome in report.outcomes]
    for index, row in enumerate(rows(report)):
        style = None
        if index < len(names):
            required = {
                outcome.pattern.name: outcome.pattern.required for outcome in report.outcomes
            }
            low = report.below({"": 1.0, **required, **floors})
            style = "red" if names[index] in low else "green"
        ratio_cell = f"[{style}]{row[3]}[/]" if style else row[3]
        title = row[0] if width >= WIDE else row[0].partition(":")[0]
        made.add_row(title, row[1], row[2], ratio_cell, *row[4:])
    return made


def compared_name(outcome: Outcome) -> str:
    """What of a pattern is compared, for JSON."""
    pattern = outcome.pattern
    return f"{pattern.part} {pattern.unit}" if pattern.latency else "messages/s"


def figure(one: Figure) -> dict[str, Any]:
    """One run for JSON; latencies in microseconds."""
    made: dict[str, Any] = {
        "rate": round(one.rate, 1),
        "messages": one.messages,
        "seconds": round(one.seconds, 6),
    }
    if one.latency:
        made["latency_us"] = {name: round(value, 3) for name, value in one.latency.items()}
    return made


def side(one: Side) -> dict[str, Any]:
    """One server for JSON."""
    return {
        "name": one.recipe.name,
        "version": one.version,
        "command": list(one.recipe.command),
        "startup_s": [round(value, 4) for value in one.startup],
        "startup_bare_s": [round(value, 4) for value in one.startup_bare],
        "rss_idle_mib": [round(value, 1) for value in one.rss_idle],
        "rss_after_mib": [round(value, 1) for value in one.rss_after],
    }


def document(report: Report) -> str:
    """The report as JSON text."""
    patterns = []
    for outcome in report.outcomes:
        ratio = outcome.ratio()
        patterns.append(
            {
                "name": outcome.pattern.name,
                "title": outcome.pattern.title,
                "compared": compared_name(outcome),
                "ours": outcome.median(outcome.ours),
                "theirs": outcome.median(outcome.theirs),
                "ratio": None if ratio is None else round(ratio, 4),
                "required": outcome.pattern.required or None,
                "rounds": {
                    "ours": [figure(one) for one in outcome.ours],
                    "theirs": [figure(one) for one in outcome.theirs],
                },
                "errors": outcome.errors,
            }
        )
    made = {
        "machine": report.machine.document(),
        "ours": side(report.ours),
        "theirs": side(report.theirs),
        "synced": side(report.synced) if report.synced else None,
        "patterns": patterns,
    }
    return json.dumps(made, indent=2)
