"""Totals of counter streams (ADR-49), and how those of other streams are added to them.

The last message of a subject has the total as payload, and in a header the last total of each
subject of each source. A message of a source counts by what its total has changed since, so that
what was removed at the origin, or passed over, leaves no error behind.
"""

import json
import re
from typing import Any

import msgspec

from headwater.edge.jetstream.model import errors, headers

STEP = b"Nats-Incr"
SOURCES = b"Nats-Counter-Sources"
ORIGIN = b"Nats-Stream-Source"
_Sources = dict[str, dict[str, str] | None] | None
_USUAL = re.compile(rb'\{"val":"(-?[0-9]{1,4000})"\}')
DIGITS_MAX = 4096
"""Digits of a total, at most."""


def counter_value(payload: bytes) -> int:
    """The total in a stored counter message. Raises JetStreamError when it holds none."""
    usual = _USUAL.fullmatch(payload)
    try:
        if usual is not None:
            return int(usual[1])
        return int(json.loads(payload)["val"])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        raise errors.MESSAGE_COUNTER_BROKEN.error() from None


def last_count(stream: Any, subject: bytes) -> tuple[bytes, bytes] | None:
    """Headers and payload of the last message of a counter, stored or on its way."""
    if stream.replicator is not None:
        found: tuple[bytes, bytes] | None = stream.replicator.body_of(subject)
        if found is not None:
            return found
    last = stream.store.last_by_subject(subject)
    return None if last is None else (last.headers, last.payload)


def last_sources(block: bytes) -> bytes:
    """What the last message of a counter tells of its sources, as JSON; empty when that is none.
    Raises JetStreamError when it is no map of maps."""
    text = headers.get(block, SOURCES) if block else None
    if not text:
        return b""
    try:
        found = msgspec.json.decode(text, type=_Sources)
    except (msgspec.DecodeError, RecursionError):
        raise errors.MESSAGE_COUNTER_BROKEN.error() from None
    return text if found else b""


def total_payload(total: int) -> bytes:
    """What is stored for a total."""
    return b'{"val":"%d"}' % total


def sourced(stream: Any, subject: bytes, block: bytes, payload: bytes) -> tuple[bytes, bytes]:
    """Headers and payload to store of a source's message, which `ORIGIN` in its header block tells.
    One that is no count is left as it is, as is one for a subject whose last message is none."""
    origin = (headers.get(block, ORIGIN) or b"").split(b" ")
    if not headers.get(block, STEP) or len(origin) < 5:
        return block, payload
    last = last_count(stream, subject)
    try:
        value = counter_value(payload)
        total = 0 if last is None else counter_value(last[1])
    except errors.JetStreamError:
        return block, payload
    known = _totals(last[0] if last is not None else b"")
    of_origin = known.setdefault(origin[0].decode("utf-8", "replace"), {})
    name = origin[4].decode("utf-8", "replace")
    step = value - _number(of_origin.get(name, "0"))
    of_origin[name] = str(value)
    told = json.dumps(known, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    block = headers.put(block, STEP, b"%d" % step)
    return headers.put(block, SOURCES, told.encode()), total_payload(total + step)


def payload_at_origin(block: bytes, payload: bytes) -> bytes:
    """The payload that a stored message of a source has there; a counter stream stores its own."""
    origin = (headers.get(block, ORIGIN) or b"").split(b" ")
    if len(origin) < 5:
        return payload
    names = [origin[i].decode("utf-8", "replace") for i in (0, 4)]
    total = _totals(block).get(names[0], {}).get(names[1])
    return payload if total is None else total_payload(_number(total))


def _totals(block: bytes) -> dict[str, dict[str, str]]:
    """The last total of each subject of each source."""
    try:
        found = json.loads(headers.get(block, SOURCES) or b"{}")
    except (ValueError, RecursionError):
        return {}
    return {
        name: {key: total for key, total in totals.items() if isinstance(total, str)}
        for name, totals in (found.items() if isinstance(found, dict) else ())
        if isinstance(totals, dict)
    }


def _number(text: object) -> int:
    """A total that a header tells; 0 for one that is none."""
    if isinstance(text, str) and len(text) <= DIGITS_MAX and text.lstrip("-").isdecimal():
        return int(text)
    return 0
