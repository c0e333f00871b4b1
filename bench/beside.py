"""`python -m bench.beside`: what stored things cost a whole server, beside the real nats-server.

Each case starts a server, makes the things over the wire and stops it cleanly; what is told is how
much its resident memory grew, that of a fresh start with them, the time until that was ready, and
open files. docs/STORAGE.md has the figures of a full run.
"""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import click

from bench.patterns import INBOX, Load, create_stream, fill
from bench.servers import Recipe, Server, anchor, end_on_sigterm, headwater
from bench.wire import Link

PATIENCE = 600.0
"""Seconds that a start, a stop or an answer may take."""
CONSUMERS_PER_STREAM = 100
"""The most that nats-server allows by default is ten times this."""
UNACKED = 500
"""Messages that are sent ahead of their acknowledgements."""


def make_messages(server: Server, count: int) -> None:
    """`count` messages of 128 bytes on a hundred subjects of one stream."""
    with Link(server.port, PATIENCE) as link:
        create_stream(link, "file")
    fill(server, Load(count, PATIENCE, PATIENCE), 128)


def make_subjects(server: Server, count: int) -> None:
    """One stream with `count` subjects and a message on each."""
    with Link(server.port, PATIENCE) as link:
        link.api("STREAM.CREATE.S", name="S", subjects=["sensor.*"], storage="file")
        link.subscribe(f"{INBOX}.*", "3")
        for first in range(0, count, UNACKED):
            numbers = range(first, min(first + UNACKED, count))
            link.send(b"".join(frame(f"sensor.{number:08d}") for number in numbers))
            link.request("$JS.API.INFO")
            while link.api("STREAM.INFO.S")["state"]["messages"] < numbers[-1] + 1:
                continue


def frame(subject: str) -> bytes:
    """A message of 128 bytes that asks for an acknowledgement."""
    return f"PUB {subject} {INBOX}.1 128\r\n".encode() + bytes(128) + b"\r\n"


def make_streams(server: Server, count: int) -> None:
    """`count` streams with a message each."""
    with Link(server.port, PATIENCE) as link:
        for number in range(count):
            name = f"S{number}"
            link.api(f"STREAM.CREATE.{name}", name=name, subjects=[f"s.{number}"], storage="file")
            link.request(f"s.{number}", bytes(128))


def make_consumers(server: Server, count: int) -> None:
    """`count` durable consumers that filter a subject each, on streams of a hundred."""
    with Link(server.port, PATIENCE) as link:
        for number in range(count):
            stream = f"S{number // CONSUMERS_PER_STREAM}"
            if number % CONSUMERS_PER_STREAM == 0:
                subjects = [f"{stream}.>"]
                link.api(f"STREAM.CREATE.{stream}", name=stream, subjects=subjects, storage="file")
            name = f"C{number}"
            config = {
                "durable_name": name,
                "ack_policy": "explicit",
                "filter_subject": f"{stream}.{number}",
            }
            subject = f"CONSUMER.DURABLE.CREATE.{stream}.{name}"
            link.api(subject, stream_name=stream, config=config)


CASES: dict[str, tuple[Callable[[Server, int], None], int]] = {
    "messages": (make_messages, 10_000_000),
    "subjects": (make_subjects, 1_000_000),
    "streams": (make_streams, 3_000),
    "consumers": (make_consumers, 10_000),
}


def measure(recipe: Recipe, make: Callable[[Server, int], None], count: int) -> dict[str, float]:
    """One case on one server; memory in bytes for each thing, times in seconds."""
    server = Server(recipe)
    try:
        server.start()
        empty = server.rss()
        began = time.monotonic()
        make(server, count)
        made = time.monotonic() - began
        held = server.rss() - empty
        server.stop(PATIENCE)
        began = time.monotonic()
        server.start(PATIENCE)
        with Link(server.port, PATIENCE) as link:
            link.api("INFO")
            ready = time.monotonic() - began
            return {
                "made": round(made, 1),
                "bytes_each": round(held * (1 << 20) / count, 1),
                "bytes_each_after_start": round((server.rss() - empty) * (1 << 20) / count, 1),
                "ready": round(ready, 3),
                "open_files": len(os.listdir(Path("/proc") / str(server.pid) / "fd")),
            }
    finally:
        server.close()


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--only", multiple=True, type=click.Choice(list(CASES)), help="Cases; else all.")
@click.option("--scale", default=1.0, show_default=True, help="Of a full run.")
def main(only: tuple[str, ...], scale: float) -> None:
    """Measure memory, start and open files of both servers with many things stored."""
    end_on_sigterm()
    for name, (make, full) in CASES.items():
        if only and name not in only:
            continue
        count = max(int(full * scale), 1)
        for recipe in (headwater(), anchor()):
            found = measure(recipe, make, count)
            line = "  ".join(f"{key} {value:g}" for key, value in found.items())
            click.echo(f"{name} {count} {recipe.name}: {line}")
            sys.stdout.flush()


if __name__ == "__main__":
    main(prog_name="python -m bench.beside")
