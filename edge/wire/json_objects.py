"""JSON objects that a peer sends on a protocol line."""

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
