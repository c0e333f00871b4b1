"""Per-message time to live (ADR-43): the Nats-TTL header, and markers of subjects that ended."""

from functools import lru_cache

from headwater.edge.jetstream.model import headers
from headwater.edge.jetstream.model.bounds import SPAN_MAX_NS, decimal
from headwater.edge.jetstream.model.times import SECOND, format_duration, parse_duration

NEVER = -1
TTL_MAX_S = SPAN_MAX_NS // SECOND
KEPT = 256
KEPT_CHARS = 32
"""The meaning of so many values is kept, if they are no longer: messages often have the same."""


def parse_ttl(value: bytes) -> int | None:
    """Seconds of a Nats-TTL value; -1 is `never`, 0 none, None when it is not valid."""
    return _kept(value) if len(value) <= KEPT_CHARS else _parsed(value)


def _parsed(value: bytes) -> int | None:
    try:
        text = value.decode("ascii")
    except UnicodeDecodeError:
        return None
    if text.lower() == "never":
        return NEVER
    seconds = decimal(value, TTL_MAX_S)
    if seconds is not None:
        # A zero by itself is a duration, which is too short; "00" is a number of seconds.
        return None if text == "0" else seconds
    try:
        duration = parse_duration(text)
    except ValueError:
        return None
    return min(duration // SECOND, TTL_MAX_S) if duration >= SECOND else None


_kept = lru_cache(KEPT)(_parsed)


def with_ttl(block: bytes, ttl_s: int) -> bytes:
    """A header block with its Nats-TTL replaced."""
    rest = headers.without(block, lambda key: key == b"Nats-TTL")
    return bytes(headers.add(rest, b"Nats-TTL", b"%d" % ttl_s))


def header_ttl(block: bytes) -> int:
    """Seconds of the Nats-TTL in a stored header block; 0 without a valid one."""
    value = headers.get(block, b"Nats-TTL")
    return (parse_ttl(value) or 0) if value else 0


def marker_headers(ttl_ns: int) -> bytes:
    """Headers of the marker left behind by a subject whose last message expired."""
    return (
        b"NATS/1.0\r\nNats-Marker-Reason: MaxAge\r\nNats-TTL: %b\r\nNats-Rollup: sub\r\n\r\n"
        % format_duration(ttl_ns).encode()
    )


def is_marker(block: bytes) -> bool:
    """Whether a stored message already tells that its subject has ended."""
    if not block:
        return False
    if headers.get(block, b"Nats-Marker-Reason"):
        return True
    return bool(headers.get(block, b"KV-Operation") == b"PURGE")
