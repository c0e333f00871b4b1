"""Publishes that are not just stored: batches, counters, and headers only the server may set."""

import json
import re
from typing import Any

from headwater.edge.jetstream.model import errors, headers
from headwater.edge.jetstream.stream import schedules

INCREMENT = re.compile(rb"[+-]?\d+")
DIGITS_MAX = 4096
# Not compatible with a counter, which is its own optimistic concurrency.
_AGAINST_COUNTERS = (
    b"Nats-Rollup",
    b"Nats-Expected-Stream",
    b"Nats-Expected-Last-Msg-Id",
    b"Nats-Expected-Last-Sequence",
    b"Nats-Expected-Last-Subject-Sequence",
    b"Nats-Expected-Last-Subject-Sequence-Subject",
)

Prepared = tuple[bytes, bytes, bytes | None]


def prepare(
    stream: Any, subject: bytes, reply: bytes, block: bytes, payload: bytes
) -> Prepared | None:
    """What is stored for a publish with special headers: header block, payload, PubAck addition.

    None when the message was taken into a batch, which answers by itself. Raises JetStreamError.
    """
    found = headers.parse(block) if block else {}
    if b"Nats-Request-Info" in found:
        block = headers.without(block, lambda key: key == b"Nats-Request-Info")
    if b"Nats-Batch-Id" in found:
        if not stream.config.allow_atomic:
            raise errors.ATOMIC_PUBLISH_DISABLED.error()
        stream.batches.add(subject, reply, block, payload, found)
        return None
    if b"Nats-Incr" in found or stream.config.allow_msg_counter:
        return count(stream, subject, block, payload, found)
    if any(key.startswith(b"Nats-Schedule") for key in found):
        block = schedules.check(stream, subject, block, found)
    if b"Nats-Stream-Source" in found:
        raise errors.MESSAGE_SOURCE_HDR_NOT_ALLOWED.error()
    return block, payload, None


def count(
    stream: Any, subject: bytes, block: bytes, payload: bytes, found: dict[bytes, bytes]
) -> Prepared:
    """Add to a counter (ADR-49): the stored payload is the new total. Raises JetStreamError."""
    if not stream.config.allow_msg_counter:
        raise errors.MESSAGE_INCR_DISABLED.error()
    step = found.get(b"Nats-Incr")
    if step is None:
        raise errors.MESSAGE_INCR_MISSING.error()
    if payload:
        raise errors.MESSAGE_INCR_PAYLOAD.error()
    if INCREMENT.fullmatch(step) is None or len(step) > DIGITS_MAX:
        raise errors.MESSAGE_INCR_INVALID.error()
    if any(key in found for key in _AGAINST_COUNTERS):
        raise errors.MESSAGE_INCR_INVALID.error()
    total = int(step)
    last = last_count(stream, subject)
    if last is not None:
        total += counter_value(last[1])
        sources = headers.get(last[0], b"Nats-Counter-Sources") if last[0] else None
        if sources:
            block = headers.add(block, b"Nats-Counter-Sources", sources)
    text = str(total).encode()
    return block, b'{"val":"%b"}' % text, b',"val":"%b"' % text


def last_count(stream: Any, subject: bytes) -> tuple[bytes, bytes] | None:
    """Headers and payload of the last message of a counter, stored or on its way."""
    if stream.replicator is not None:
        found: tuple[bytes, bytes] | None = stream.replicator.body_of(subject)
        if found is not None:
            return found
    last = stream.store.last_by_subject(subject)
    return None if last is None else (last.headers, last.payload)


def counter_value(payload: bytes) -> int:
    """The total in a stored counter message. Raises JetStreamError when it holds none."""
    try:
        return int(json.loads(payload)["val"])
    except (ValueError, KeyError, TypeError):
        raise errors.MESSAGE_COUNTER_BROKEN.error() from None
