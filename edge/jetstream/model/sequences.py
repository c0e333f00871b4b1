"""Several JSON values in one body: the reference decodes all of them into one request."""

import json
from typing import Any

import msgspec

from headwater.edge.jetstream.model import nulls, repeated
from headwater.edge.wire.json_objects import BAD_JSON

_SPACE = " \t\r\n"
_DECODER = json.JSONDecoder()


def objects(payload: bytes) -> list[dict[str, Any]] | None:
    """The objects of a body, one behind the other; None when there is anything else but nulls."""
    try:
        text = payload.decode()
        found: list[dict[str, Any]] = []
        at = _after_space(text, 0)
        while at < len(text):
            _, end = _DECODER.raw_decode(text, at)
            # The strict decoder decides; the other one only finds where a value ends.
            value = msgspec.json.decode(text[at:end])
            if isinstance(value, dict):
                found += repeated.versions(text[at:end]) or [value]
            elif value is not None:
                return None
            at = _after_space(text, end)
    except (*BAD_JSON, ValueError, RecursionError):
        return None
    return found


def _after_space(text: str, at: int) -> int:
    while at < len(text) and text[at] in _SPACE:
        at += 1
    return at


def lay(over: dict[str, Any], found: dict[str, Any], kind: Any) -> None:
    """Lay an object over another one, which is changed; both are meant as a `kind`. Null takes
    away what may be absent, and leaves a number, a text or a flag as it is."""
    known = nulls.fields_of(kind)
    for key, value in over.items():
        field = known.get(key, Any)
        if value is None:
            if nulls.may_be_absent(field):
                found.pop(key, None)
        elif isinstance(value, dict) and isinstance(found.get(key), dict):
            lay(value, found[key], field)
        else:
            found[key] = value
