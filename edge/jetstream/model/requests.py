"""Requests of the JetStream API: what a handler is given, and what is checked before it is called.

A handler is `handler(account_js, tokens, payload, ctx)`. `tokens` are the subject's tokens behind
the handler's name, so `CONSUMER.INFO.ORDERS.worker` calls INFO with `["ORDERS", "worker"]`. It
returns the answer (a msgspec Struct), or an awaitable of one when the answer must wait for
durability, or None when it answers by itself; it raises JetStreamError to refuse.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from headwater.edge.facts.version import API_LEVEL
from headwater.edge.jetstream.model import errors, headers
from headwater.edge.jetstream.model.bounds import decimal
from headwater.edge.jetstream.model.times import ZERO_TIME
from headwater.edge.wire.json_objects import BAD_JSON

TYPE_PREFIX = "io.nats.jetstream.api.v1."
PREFIX = "$JS.API."
_PAGE = {"total": 0, "offset": 0, "limit": 0}
# Fields that an answer of this kind has even when it is an error.
REFUSED: dict[str, dict[str, Any]] = {
    "stream_info": _PAGE,
    "stream_names": {**_PAGE, "streams": None},
    "stream_list": {**_PAGE, "streams": []},
    "consumer_names": {**_PAGE, "consumers": []},
    "consumer_list": {**_PAGE, "consumers": []},
    "stream_purge": {"purged": 0},
    "stream_restore": {"deliver_subject": ""},
    "consumer_pause": {"paused": False, "pause_until": ZERO_TIME},
    "consumer_reset": {"reset_seq": 0},
}


class Context(msgspec.Struct, kw_only=True):
    """What a handler may want to know besides tokens and payload."""

    subject: bytes
    reply: bytes
    headers: bytes
    payload: bytes
    strict: bool
    pedantic: bool = False
    """Handlers set it from the request's body."""
    sender: Any = None
    passing: Any = None
    """In a cluster: which nodes have passed it on (`hub.api.relay`); None for none."""
    holds: bool = False
    """A handler sets it when it works in slices: the sender's next requests wait for it."""


Handler = Callable[[Any, list[str], bytes, Context], Any]

LEVEL = b"Nats-Required-Api-Level"
"""The header that names the API level which a request, or a batch, cannot do without."""

_LEVEL_MOST = 1 << 63
"""The first number that is no level: the reference reads 64 bits with a sign."""


class Route(msgspec.Struct):
    """A handler, the type of its answer, and how many tokens its subject may have."""

    handler: Handler
    kind: str
    least: int
    most: int
    check: Callable[[bytes, Context], Any] | None = None
    """Refuses a body. The reference looks at this one before it looks at the level."""
    own_level: bool = False
    """The handler looks at the level by itself."""


def find_route(table: dict[str, Route], tokens: list[str]) -> tuple[str, Route | None]:
    """The route for the tokens behind `$JS.API.`; the longest name wins."""
    for length in (3, 2, 1):
        name = ".".join(tokens[:length])
        route = table.get(name)
        rest = len(tokens) - length
        if route is not None and len(tokens) >= length and route.least <= rest <= route.most:
            return name, route
    return "", None


def check_level(block: bytes) -> None:
    """Refuse a request that needs a later API than this one (ADR-44), or names no level."""
    wanted = headers.get(block, LEVEL) if block else None
    if wanted and is_beyond(wanted):
        raise errors.REQUIRED_API_LEVEL.error()


def is_beyond(level: bytes) -> bool:
    """Whether a level is later than this API's, or none: no number of 64 bits with a sign."""
    below = level[:1] == b"-"
    most = _LEVEL_MOST + below
    asked = decimal(level[1:] if level[:1] in (b"+", b"-") else level, most)
    return asked is None or asked >= most or (asked > API_LEVEL and not below)


def require_empty(payload: bytes) -> None:
    """Refuse a body where none belongs; an empty JSON object passes."""
    if not payload:
        return
    try:
        if msgspec.json.decode(payload) == {}:
            return
    except BAD_JSON:
        pass
    raise errors.NOT_EMPTY_REQUEST.error()


def is_json(payload: bytes) -> bool:
    """Whether a body is meant as a JSON object or array."""
    return payload.lstrip()[:1] in (b"{", b"[")
