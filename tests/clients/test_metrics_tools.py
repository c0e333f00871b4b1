"""Surveyor, the Prometheus exporter and `nats-top` find the same at headwater and at nats-server.

They are Go programs that are looked for on PATH.
"""

import re
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench.servers import HOST, Recipe, Server, anchor, free_port, headwater
from tests.clients.tool_desk import CONFIG, NUMBERS, OF_ONE_RUN, Desk, found
from tests.waiting import until_seen

SAMPLE = re.compile(r"^([a-zA-Z_:0-9]+)(\{.*\})? ", re.MULTILINE)
LABEL = re.compile(r'(\w+)="')
ANOTHER_LEVEL = "jetstream_limits_default_max_consumers"
"""A limit that nats-server has from 2.15 on."""

EXPORTER = "prometheus-nats-exporter"
EXPORTER_WORDS = (
    "-varz -connz_detailed -healthz -gatewayz -accstatz -accountz -leafz -routez -subz -jsz=all"
)
SURVEYOR = "nats-surveyor"
SURVEYOR_WORDS = "--accounts --accounts-detailed --gatewayz --raftz --jsz=all"
SETUP = """
stream add S --subjects=s.> --defaults
stream add M --mirror=S --defaults
consumer add S one --pull --defaults
pub s.x hi --count=5
consumer next S one
"""


def installed(*tools: str) -> pytest.MarkDecorator:
    """Skip where one of the tools is missing."""
    missing = [tool for tool in tools if found(tool) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not on PATH: {', '.join(missing)}")


@contextmanager
def busy(recipe: Recipe, folder: Path) -> Iterator[Desk]:
    """A server with streams, a consumer and a connection that stays."""
    monitor = free_port()
    config = CONFIG.replace("%d", str(monitor))
    own = folder / recipe.name
    own.mkdir()
    with Server(Recipe(recipe.name, recipe.command, config)) as server:
        desk = Desk(str(found("nats")), own, f"nats://{HOST}:{server.port}", monitor)
        try:
            for line in SETUP.strip().splitlines():
                done = desk.run(line)
                assert done.status == 0, done.text
            desk.start("sub held.*")
            yield desk
        finally:
            desk.close()


def read(port: int) -> str:
    """The metrics page, or nothing while there is none."""
    try:
        with urllib.request.urlopen(f"http://{HOST}:{port}/metrics", timeout=20) as page:
            return str(page.read().decode())
    except OSError:
        return ""


def metrics(words: list[str], port: int, needed: str, folder: Path) -> set[tuple[str, ...]]:
    """Names and labels of what a program that is started with these words exports."""
    with (folder / "exports").open("wb") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log, cwd=folder)
    try:
        until_seen(lambda: needed in read(port), needed)
        return {
            (name, *sorted(LABEL.findall(labels)))
            for name, labels in SAMPLE.findall(read(port))
            if not name.endswith(ANOTHER_LEVEL)
        }
    finally:
        process.kill()
        process.wait()


@installed("nats", EXPORTER)
def test_the_exporter_finds_the_same_metrics(tmp_path: Path) -> None:
    sets = []
    for recipe in (headwater(), anchor()):
        with busy(recipe, tmp_path) as desk:
            port = free_port()
            words = [str(found(EXPORTER)), "-a", HOST, "-p", str(port), *EXPORTER_WORDS.split()]
            words.append(f"http://{HOST}:{desk.monitor}")
            sets.append(metrics(words, port, "consumer_delivered_consumer_seq", desk.folder))
    assert sets[0] == sets[1]
    assert len(sets[0]) > 200


@installed("nats", SURVEYOR)
def test_surveyor_finds_the_same_metrics(tmp_path: Path) -> None:
    sets = []
    for recipe in (headwater(), anchor()):
        with busy(recipe, tmp_path) as desk:
            port = free_port()
            words = [str(found(SURVEYOR)), "-a", HOST, "-p", str(port), "-s", desk.url]
            words += ["--user", "sys", "--password", "pw", *SURVEYOR_WORDS.split()]
            sets.append(metrics(words, port, "nats_stream_total_messages", desk.folder))
    assert sets[0] == sets[1]
    assert len(sets[0]) > 80


@installed("nats", "nats-top")
@pytest.mark.parametrize("more", [[], ["-u", "-b"], ["-l", ","]])
def test_top_prints_the_same(more: list[str], tmp_path: Path) -> None:
    screens = []
    for recipe in (headwater(), anchor()):
        with busy(recipe, tmp_path) as desk:
            words = [str(found("nats-top")), "-m", str(desk.monitor), "-o", "-", *more]
            text = subprocess.run(
                words, capture_output=True, text=True, timeout=30, check=True
            ).stdout
            for pattern, name in OF_ONE_RUN:
                text = pattern.sub(name, text)
            screens.append([" ".join(line.split()) for line in NUMBERS.sub("N", text).splitlines()])
    assert screens[0] == screens[1]
    assert any("held" in line for line in screens[0]) == ("-u" in more)
