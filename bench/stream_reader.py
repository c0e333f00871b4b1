"""Reads all that a stream has, and what its server says is lost, past whatever is damaged."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bench.promise_book import Stored
from bench.wire import Frame, Link, WireError

BATCH = 500
"""Messages asked for at once."""

BATCH_BYTES = 4 << 20


@dataclass
class Reading:
    """What a stream showed: its state, its messages by sequence, and what it calls lost."""

    state: dict[str, Any]
    found: dict[int, Stored]
    told: set[int]


def header(frame: Frame, name: str) -> str:
    """A header's value, empty when there is none."""
    for line in frame.head.decode(errors="replace").split("\r\n"):
        key, _, value = line.partition(":")
        if key.lower() == name.lower():
            return value.strip()
    return ""


def read_stream(link: Link, stream: str) -> Reading:
    """Read a stream that allows direct gets. Raises WireError when it does not answer."""
    state: dict[str, Any] = link.api(f"STREAM.INFO.{stream}")["state"]
    reading = Reading(state, {}, set())
    at = max(state["first_seq"], 1)
    while at <= state["last_seq"]:
        at = _read_batch(link, stream, at, reading)
    # Some damage is found by reading.
    state = link.api(f"STREAM.INFO.{stream}")["state"]
    reading.told.update((state.get("lost") or {}).get("msgs") or ())
    return reading


def _read_batch(link: Link, stream: str, at: int, reading: Reading) -> int:
    """Read on from a sequence; returns where the next batch begins."""
    body = {"seq": at, "batch": BATCH, "max_bytes": BATCH_BYTES, "next_by_subj": ">"}
    for frame in _until_status(link, stream, body):
        status = frame.head[:12]
        if status.startswith((b"NATS/1.0 404", b"NATS/1.0 204")):
            left = int(header(frame, "Nats-Num-Pending") or 0)
            return at if left and at <= reading.state["last_seq"] else at + (1 << 62)
        if status.startswith(b"NATS/1.0 5"):
            return at + 1
        if status.startswith(b"NATS/1.0 4"):
            raise WireError(f"{stream} at {at}: {frame.head!r}")
        sequence = int(header(frame, "Nats-Sequence"))
        stored = Stored(header(frame, "Nats-Subject"), frame.body)
        reading.found[sequence] = stored
        at = sequence + 1
    return at


def _until_status(link: Link, stream: str, body: dict[str, Any]) -> Iterator[Frame]:
    """The answers to a batched direct get, the one that ends it included."""
    for frame in link.answers(f"$JS.API.DIRECT.GET.{stream}", json.dumps(body).encode()):
        yield frame
        if frame.head.startswith(b"NATS/1.0 ") and frame.head[8:9] != b"\r":
            return
