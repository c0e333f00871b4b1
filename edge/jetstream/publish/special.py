"""Publishes that are not just stored: batches, counters, and headers only the server may set."""

import re
from typing import Any

from headwater.edge.jetstream.model import errors, headers
from headwater.edge.jetstream.stream import schedules
from headwater.edge.jetstream.stream.counters import (
    DIGITS_MAX,
    SOURCES,
    counter_value,
    last_count,
    last_sources,
    total_payload,
)

INCREMENT = re.compile(rb"[+-]?\d+")
# Not compatible with a counter, which is its own optimistic concurrency.
_AGAINST_COUNTERS = frozenset((
    b"Nats-Rollup",
    b"Nats-Expected-Stream",
    b"Nats-Expected-Last-Msg-Id",
    b"Nats-Expected-Last-Sequence",
    b"Nats-Expected-Last-Subject-Sequence",
    b"Nats-Expected-Last-Subject-Sequence-Subject",
))

Prepared = tuple[bytes, bytes, bytes | None]


def add_to_batch(
    stream: Any,
    subject: bytes,
    reply: bytes,
    block: bytes,
    payload: bytes,
    found: dict[bytes, bytes],
) -> None:
    """Take a message into its atomic batch, which answers by itself. Raises JetStreamError."""
    if not stream.config.allow_atomic:
        raise errors.ATOMIC_PUBLISH_DISABLED.error()
    stream.batches.add(subject, reply, without_request(block, found), payload, found)


def without_request(block: bytes, found: dict[bytes, bytes]) -> bytes:
    """A header block without what another account's request carries."""
    if b"Nats-Request-Info" not in found:
        return block
    return bytes(headers.without(block, lambda key: key == b"Nats-Request-Info"))


def prepare(
    stream: Any, subject: bytes, block: bytes, payload: bytes, found: dict[bytes, bytes]
) -> Prepared:
    """What is stored for a publish with special headers: header block, payload, PubAck addition,
    which a message without a step has not, where all are counters. Raises JetStreamError."""
    block = scheduled(stream, subject, without_request(block, found), found)
    check_source(found)
    if stream.config.allow_msg_counter and found.get(b"Nats-Incr"):
        return count(stream, subject, block, found)
    return block, payload, None


def scheduled(stream: Any, subject: bytes, block: bytes, found: dict[bytes, bytes]) -> bytes:
    """The header block to store, which may be a schedule's. Raises JetStreamError."""
    if b"Nats-Schedule" in block:
        return schedules.check(stream, subject, block, found)
    return block


def check_source(found: dict[bytes, bytes]) -> None:
    """Refuse the header that only what copies an origin may set. Raises JetStreamError."""
    if found.get(b"Nats-Stream-Source"):
        raise errors.MESSAGE_SOURCE_HDR_NOT_ALLOWED.error()


def check_increment(stream: Any, payload: bytes, found: dict[bytes, bytes]) -> None:
    """Refuse a step of a counter that is none, or not for this stream. Raises JetStreamError."""
    step = found.get(b"Nats-Incr")
    if not step:
        return
    if INCREMENT.fullmatch(step) is None or len(step) > DIGITS_MAX:
        raise errors.MESSAGE_INCR_INVALID.error()
    if not stream.config.allow_msg_counter:
        raise errors.MESSAGE_INCR_DISABLED.error()
    if payload:
        raise errors.MESSAGE_INCR_PAYLOAD.error()
    if not _AGAINST_COUNTERS.isdisjoint(found) and any(map(found.get, _AGAINST_COUNTERS)):
        raise errors.MESSAGE_INCR_INVALID.error()


def check_counted(stream: Any, found: dict[bytes, bytes]) -> None:
    """Refuse a message without a step, where all are counters. Raises JetStreamError."""
    check_source(found)
    if stream.config.allow_msg_counter and not found.get(b"Nats-Incr"):
        raise errors.MESSAGE_INCR_MISSING.error()


def count(
    stream: Any,
    subject: bytes,
    block: bytes,
    found: dict[bytes, bytes],
    last: tuple[bytes, bytes] | None = None,
) -> Prepared:
    """Add to a counter (ADR-49): the stored payload is the new total. `last` are headers and
    payload of its last message, when that is of the same batch. Raises JetStreamError."""
    step = found.get(b"Nats-Incr")
    if not step:
        raise errors.MESSAGE_INCR_MISSING.error()
    total = int(step)
    last = last or last_count(stream, subject)
    if last is not None:
        total += counter_value(last[1])
        sources = last_sources(last[0])
        if sources:
            block = headers.put(block, SOURCES, sources)
    return block, total_payload(total), b',"val":"%d"' % total
