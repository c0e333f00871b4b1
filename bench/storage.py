"""`python -m bench.storage`: what storage costs, row by row, beside what is required of it.

Every row has its own pair of servers; rounds alternate, the one that is not measured is stopped,
and the ratio is of medians. A ratio above 1 means that ours is better.
"""

import json
import resource
import selectors
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import click

from bench import build
from bench.machine import look
from bench.patterns import (
    INBOX,
    STREAM,
    Load,
    Mismatch,
    create_stream,
    fill,
    js_frame,
    publish_frames,
    rate,
    stream_publish,
    stream_sync,
)
from bench.report import number
from bench.servers import (
    Recipe,
    Server,
    ServerFailed,
    anchor,
    anchor_synced,
    end_on_sigterm,
    headwater,
)
from bench.wire import Link
from headwater.edge.wire.message import WireError

SCALES = {"tiny": 0.001, "small": 0.2, "normal": 1.0}
STREAMS = 100
"""Streams that are written at once."""

PER_WRITE = 50
"""Messages per write to many streams; a write goes to that many of them."""

PUBLISHERS = 64
PER_SECOND = 100
"""Messages per second of each of the slow publishers."""

OUBLOCK_BYTES = 512
"""Unit of `ru_oublock`: what a process dirtied in files, in blocks of this many bytes."""

READY_TIMEOUT = 600.0
STOP_TIMEOUT = 300.0
"""Seconds for a start, and for a clean stop, with a large store."""

Measure = Callable[[Server, Load], float]


@dataclass(frozen=True)
class Row:
    """One line of the table. `messages` is the size at scale 1, `less` that less is better.

    `fresh` rows start and end their server themselves.
    """

    name: str
    title: str
    required: float
    ours: Recipe
    theirs: Recipe
    messages: int
    measure: Measure
    unit: str = "/s"
    less: bool = False
    fresh: bool = False


@dataclass
class Found:
    """What one row gave, a number per round and side."""

    row: Row
    ours: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)

    def ratio(self) -> float:
        """How many times better ours is, by medians."""
        ours, theirs = statistics.median(self.ours), statistics.median(self.theirs)
        return theirs / ours if self.row.less else ours / theirs

    def met(self) -> bool:
        """Whether the ratio is what is required."""
        return self.ratio() >= self.row.required

    def document(self) -> dict[str, object]:
        """For JSON."""
        return {
            "name": self.row.name,
            "title": self.row.title,
            "unit": self.row.unit,
            "required": self.row.required,
            "ratio": round(self.ratio(), 3),
            "ours": self.ours,
            "theirs": self.theirs,
        }


def window(server: Server, load: Load, *, size: int, storage: str) -> float:
    """Messages per second that one publisher gets acknowledged within the window."""
    return stream_publish(server, load, size=size, storage=storage).rate


def waiting(server: Server, load: Load) -> float:
    """Median microseconds of a publisher that waits for each acknowledgement."""
    return stream_sync(server, load, size=128, storage="file").latency["p50"]


def many_streams(server: Server, load: Load) -> float:
    """Messages per second over `STREAMS` streams, each message to the next of them."""
    with Link(server.port, load.timeout) as control:
        for one in range(STREAMS):
            control.api(
                f"STREAM.CREATE.S{one:02d}",
                name=f"S{one:02d}",
                subjects=[f"bench.js.{one:02d}"],
                storage="file",
                num_replicas=1,
            )
        acked, _, total = publish_frames(server, load, 128, STREAMS, PER_WRITE)
        stored = 0
        for one in range(STREAMS):
            stored += control.api(f"STREAM.INFO.S{one:02d}")["state"]["messages"]
            control.api(f"STREAM.DELETE.S{one:02d}")
    if stored != acked:
        raise Mismatch(f"{stored} stored, {acked} acknowledged")
    return rate(acked, total).rate


def ready(server: Server, load: Load, *, killed: bool) -> float:
    """Seconds from launch until a stream of `load.messages` answers with all of them."""
    server.start()
    long = Load(load.messages, READY_TIMEOUT, load.timeout)
    with Link(server.port, load.timeout) as control:
        create_stream(control, "file")
    stored = fill(server, long, 128).messages
    if killed:
        server.kill()
    elif not server.stop(STOP_TIMEOUT):
        raise ServerFailed(f"{server.recipe.name} did not stop within {STOP_TIMEOUT:.0f} s")
    begin = time.monotonic()
    server.start(READY_TIMEOUT)
    while time.monotonic() - begin < READY_TIMEOUT:
        try:
            with Link(server.port, READY_TIMEOUT) as control:
                state = control.api(f"STREAM.INFO.{STREAM}")["state"]
        except (WireError, OSError):
            continue
        if state["messages"] != stored:
            raise Mismatch(f"{state['messages']} of {stored} messages are there")
        return time.monotonic() - begin
    raise ServerFailed(f"{server.recipe.name}: not ready within {READY_TIMEOUT:.0f} s")


def amplification(server: Server, load: Load) -> float:
    """Bytes written to files, from the start to after a clean stop, per byte acknowledged."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_oublock
    server.start()
    with Link(server.port, load.timeout) as control:
        create_stream(control, "file")
    acked = drip(server.port, load)
    server.stop(STOP_TIMEOUT)
    written = resource.getrusage(resource.RUSAGE_CHILDREN).ru_oublock - before
    return written * OUBLOCK_BYTES / (acked * 128)


def drip(port: int, load: Load) -> int:
    """Publish `load.messages` from `PUBLISHERS` connections, each at its own evenly spaced
    times; returns the number of acknowledgements, which must be all."""
    frames = [
        js_frame(0, 128).replace(INBOX.encode(), f"{INBOX}.{one}".encode(), 1)
        for one in range(PUBLISHERS)
    ]
    step = 1.0 / (PUBLISHERS * PER_SECOND)
    with selectors.DefaultSelector() as ready_links:
        links = [Link(port, load.timeout) for _ in range(PUBLISHERS)]
        try:
            for one, link in enumerate(links):
                link.subscribe(f"{INBOX}.{one}", "3")
                ready_links.register(link.socket, selectors.EVENT_READ)
            sent = lines = 0
            begin = heard = time.monotonic()
            while lines < 2 * load.messages:
                now = time.monotonic()
                while sent < load.messages and begin + sent * step <= now:
                    links[sent % PUBLISHERS].send(frames[sent % PUBLISHERS])
                    sent += 1
                pause = begin + sent * step - now if sent < load.messages else 0.1
                for key, _ in ready_links.select(max(0.0, pause)):
                    data = key.fileobj.recv(65536)  # type: ignore[union-attr]
                    if b'"error"' in data or not data:
                        raise WireError(f"refused: {data[:200]!r}")
                    lines += data.count(b"\n")
                    heard = now
                if now - heard > load.timeout:
                    raise WireError(f"{lines // 2} of {sent} acknowledged, then silence")
        finally:
            for link in links:
                link.close()
    return lines // 2


def publish_rows() -> tuple[Row, ...]:
    """Rates and waits of publishers."""
    ours, theirs, synced = headwater(), anchor(), anchor_synced()
    lazy = Recipe("headwater, interval", (*ours.command, "--durability", "interval"))
    small = partial(window, size=128, storage="file")
    large = partial(window, size=1024, storage="file")
    memory = partial(window, size=128, storage="memory")
    many = f"both fsynced, {STREAMS} streams at once"
    wait = "one waiting publisher, both fsynced"
    return (
        Row("fsync-128", "fsync acks, theirs default, 128 B", 2.5, ours, theirs, 400_000, small),
        Row("fsync-1024", "fsync acks, theirs default, 1 KiB", 1.2, ours, theirs, 150_000, large),
        Row("synced", "both fsynced, 128 B", 60, ours, synced, 60_000, small),
        Row("synced-many", many, 60, ours, synced, 60_000, many_streams),
        Row("interval-128", "both interval, 128 B", 3.5, lazy, theirs, 400_000, small),
        Row("interval-1024", "both interval, 1 KiB", 1.5, lazy, theirs, 150_000, large),
        Row("memory", "memory, 128 B", 3.5, ours, theirs, 400_000, memory),
        Row("waiting", wait, 1.2, ours, synced, 3_000, waiting, "us", less=True),
    )


def whole_life_rows() -> tuple[Row, ...]:
    """Starts, and what is written from a start to a stop."""
    ours, theirs, synced = headwater(), anchor(), anchor_synced()

    def row(
        name: str, title: str, required: float, other: Recipe, size: int, work: Measure, unit: str
    ) -> Row:
        return Row(name, title, required, ours, other, size, work, unit, less=True, fresh=True)

    clean, killed = partial(ready, killed=False), partial(ready, killed=True)
    written = f"bytes written per byte acked, {PUBLISHERS} publishers"
    return (
        row("ready-clean", "ready after a clean stop", 1.0, theirs, 1_000_000, clean, "s"),
        row("ready-killed", "ready after kill -9", 5, theirs, 1_000_000, killed, "s"),
        row("written", written, 5, synced, 60_000, amplification, "B/B"),
    )


def rows() -> tuple[Row, ...]:
    """The table."""
    return publish_rows() + whole_life_rows()


def measure(row: Row, rounds: int, load: Load, parent: Path | None) -> Found:
    """All rounds of a row."""
    found = Found(row)
    for count in range(rounds):
        sides = [(row.ours, found.ours), (row.theirs, found.theirs)]
        for recipe, figures in sides if count % 2 == 0 else sides[::-1]:
            server = Server(recipe, parent=parent)
            try:
                if not row.fresh:
                    server.start()
                figures.append(row.measure(server, load))
            finally:
                server.close()
    return found


def value(figure: float, unit: str) -> str:
    """A number with its unit."""
    return f"{number(figure)}/s" if unit == "/s" else f"{figure:.3g} {unit}"


def line(found: Found) -> str:
    """One row for people."""
    row = found.row
    ours, theirs = statistics.median(found.ours), statistics.median(found.theirs)
    verdict = "" if found.met() else "  below"
    return (
        f"{row.title:<48} {value(ours, row.unit):>12} {value(theirs, row.unit):>12} "
        f"{row.required:>9g} {found.ratio():>9.2f}{verdict}"
    )


def chosen(only: tuple[str, ...]) -> list[Row]:
    """Rows whose name contains one of `only`."""
    picked = [row for row in rows() if not only or any(part in row.name for part in only)]
    if not picked:
        raise click.UsageError("no such row; there are: " + ", ".join(r.name for r in rows()))
    return picked


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1, 1000))
@click.option("--size", default="normal", show_default=True, type=click.Choice(list(SCALES)))
@click.option("--messages", type=click.IntRange(100), help="Messages per run, instead of --size.")
@click.option("--seconds", default=10.0, show_default=True, help="Cap on one publishing run.")
@click.option("--timeout", default=30.0, show_default=True, help="Silence that fails a run, s.")
@click.option("--only", multiple=True, metavar="ROW", help="Rows whose name has this.")
@click.option(
    "--dir",
    "parent",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Where stores lie; a real disk, or the figures mean nothing.",
)
@click.option("--strict", is_flag=True, help="Exit with 1 when a ratio is below what is required.")
@click.option("--json", "as_json", is_flag=True, help="The table as JSON.")
def main(
    rounds: int,
    size: str,
    messages: int | None,
    seconds: float,
    timeout: float,
    only: tuple[str, ...],
    parent: Path | None,
    strict: bool,
    as_json: bool,
) -> None:
    """Measure storage beside the real nats-server, and print required and measured ratios.

    The start of a large store: --only ready --messages 10000000 --rounds 1.

    Exit codes: 0 measured, 1 below with --strict, 2 something could not be measured.
    """
    end_on_sigterm()
    picked = chosen(only)
    made: list[Found] = []
    if not as_json:
        click.echo(f"{'':<48} {'ours':>12} {'theirs':>12} {'required':>9} {'ratio':>9}")
    for row in picked:
        count = messages or max(100, int(row.messages * SCALES[size]))
        try:
            made.append(measure(row, rounds, Load(count, seconds, timeout), parent))
        except (ServerFailed, Mismatch, WireError, OSError, build.generator().LoadError) as error:
            click.echo(f"{row.name}: {error}", err=True)
            sys.exit(2)
        if not as_json:
            click.echo(line(made[-1]))
    machine = look(parent)
    if as_json:
        document = {"machine": machine.document(), "rows": [one.document() for one in made]}
        click.echo(json.dumps(document, indent=2))
    else:
        click.echo(machine.line())
    sys.exit(1 if strict and not all(one.met() for one in made) else 0)


if __name__ == "__main__":
    main(prog_name="python -m bench.storage")
