"""Reads all that a stream has, and what its server says is lost, past whatever is damaged."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bench.faults.promise_book import Stored
from bench.wire import Link
from headwater.edge.wire.message import Message, WireError

BATCH = 500
"""Messages asked for at once."""

BATCH_BYTES = 4 << 20


@dataclass
class Reading:
    """What a stream showed: its state, its messages by sequence, and what it calls lost."""

    state: dict[str, Any]
    found: dict[int, Stored]
    told: set[int]


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
        headers = frame.headers
        if frame.status in (404, 204):
            left = int(headers.get("Nats-Num-Pending") or 0)
            return at if left and at <= reading.state["last_seq"] else at + (1 << 62)
        if frame.status >= 500:
            return at + 1
        if frame.status:
            raise WireError(f"{stream} at {at}: {frame.status} {frame.text}")
        sequence = int(headers["Nats-Sequence"])
        stored = Stored(headers["Nats-Subject"], frame.payload)
        reading.found[sequence] = stored
        at = sequence + 1
    return at


def _until_status(link: Link, stream: str, body: dict[str, Any]) -> Iterator[Message]:
    """The answers to a batched direct get, the one that ends it included."""
    for frame in link.answers(f"$JS.API.DIRECT.GET.{stream}", json.dumps(body).encode()):
        yield frame
        if frame.status:
            return
