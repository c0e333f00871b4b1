"""Which pull requests a consumer refuses, and small texts of the pull and flow protocol."""

from typing import Any

from headwater.edge.jetstream.model.bounds import SEQUENCE_MAX, decimal
from headwater.edge.jetstream.model.requests import is_beyond
from headwater.edge.jetstream.model.times import format_duration

_DIGITS = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_FLOW_SUFFIX = 4
_PRIORITY_MAX = 9


def limited(config: Any) -> bool:
    """Whether the configuration limits pull requests."""
    return bool(config.max_batch or config.max_expires or config.max_bytes)


def refusal(consumer: Any, request: Any, now: int) -> bytes | None:
    """Status line for a request that is refused; None when it is not. `now` is monotonic ns."""
    config = consumer.config
    if config.max_batch and request.batch > config.max_batch:
        return b"409 Exceeded MaxRequestBatch of %d" % config.max_batch
    if config.max_expires and request.expires - now > config.max_expires:
        limit = format_duration(config.max_expires)
        return f"409 Exceeded MaxRequestExpires of {limit}".encode()
    if config.max_bytes and request.max_bytes > config.max_bytes:
        return b"409 Exceeded MaxRequestMaxBytes of %d" % config.max_bytes
    return _priority_refusal(consumer, request) if request.grouped else None


def _priority_refusal(consumer: Any, request: Any) -> bytes | None:
    """The rules of priority groups (ADR-42)."""
    config = consumer.config
    policy = config.priority_policy
    if (request.min_pending or request.min_ack_pending) and policy != "overflow":
        return b"400 Bad Request - Not a Overflow Priority consumer"
    if request.pin and policy != "pinned_client":
        return b"400 Bad Request - Not a Pinned Client Priority consumer"
    if not 0 <= request.priority <= _PRIORITY_MAX:
        return b"400 Bad Request - Priority must be between 0 and 9"
    if policy in ("", "none"):
        return None
    if not request.group:
        return b"400 Bad Request - Priority Group missing"
    if request.group not in config.priority_groups:
        return b"400 Bad Request - Invalid Priority Group"
    if consumer.pin and request.pin and request.pin != consumer.pin:
        return b"423 Nats-Pin-Id mismatch"
    return None


def header(block: bytes, name: bytes) -> bytes | None:
    """Value of a header in a raw block, None without."""
    at = block.find(b"\r\n" + name + b":")
    if at < 0:
        return None
    start = at + len(name) + 3
    return block[start : block.find(b"\r\n", start)].strip()


def level_too_high(block: bytes) -> bool:
    """Whether a request asks for a newer API level than this one (ADR-44)."""
    level = header(block, b"Nats-Required-Api-Level")
    return is_beyond(level) if level else False


def last_received(block: bytes) -> tuple[int, int] | None:
    """(stream sequence, consumer sequence) that an answer to flow control confirms."""
    sequence = header(block, b"Nats-Last-Stream") or b""
    consumer_seq = header(block, b"Nats-Last-Consumer") or b""
    last = decimal(sequence, SEQUENCE_MAX)
    return (last, decimal(consumer_seq, SEQUENCE_MAX) or 0) if last else None


def flow_suffix(number: int) -> bytes:
    """The random last token of a flow control subject."""
    out = bytearray()
    for _ in range(_FLOW_SUFFIX):
        number, digit = divmod(number, len(_DIGITS))
        out.append(_DIGITS[digit])
    return bytes(out)
