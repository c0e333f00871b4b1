"""JSON objects that a peer sends on a protocol line, and the form of those that it is sent."""

from typing import Any

import msgspec

BAD_JSON = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What decoding raises: a text is no JSON, of other types than expected, or nested too deeply."""


def object_in(payload: bytes) -> dict[str, Any] | None:
    """The JSON object that `payload` is; None when it is anything else."""
    try:
        fields = msgspec.json.decode(payload)
    except BAD_JSON:
        return None
    return fields if isinstance(fields, dict) else None


ESCAPED = {
    character.encode(): f"\\u{ord(character):04x}".encode() for character in "<>&\u2028\u2029"
}
"""What Go's JSON never has as it is, since it might stand in a page."""


def escaped(body: bytes) -> bytes:
    """JSON with the escapes that nats-server writes."""
    for character, escape in ESCAPED.items():
        body = body.replace(character, escape)
    return body
