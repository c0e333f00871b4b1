"""Several JSON values in one body: the reference decodes all of them into one request."""

import json
from typing import Any

import msgspec

from headwater.edge.jetstream.model.nulls import without_nulls
from headwater.edge.wire.json_objects import BAD_JSON

_SPACE = " \t\r\n"
_DECODER = json.JSONDecoder()


def merged(payload: bytes, kind: type) -> dict[str, Any] | None:
    """The objects of a body, each laid over those before it; None when they are not just that.

    Fields of objects are laid over each other, lists are replaced, and null changes nothing.
    """
    try:
        text = payload.decode()
        found: dict[str, Any] = {}
        at = _after_space(text, 0)
        while at < len(text):
            _, end = _DECODER.raw_decode(text, at)
            # The strict decoder decides; the other one only finds where a value ends.
            value = msgspec.json.decode(text[at:end])
            if not isinstance(value, dict):
                return None
            _lay(without_nulls(value, kind), found)
            at = _after_space(text, end)
    except (*BAD_JSON, ValueError, RecursionError):
        return None
    return found


def _after_space(text: str, at: int) -> int:
    while at < len(text) and text[at] in _SPACE:
        at += 1
    return at


def _lay(over: dict[str, Any], found: dict[str, Any]) -> None:
    for key, value in over.items():
        if isinstance(value, dict) and isinstance(found.get(key), dict):
            _lay(value, found[key])
        else:
            found[key] = value
