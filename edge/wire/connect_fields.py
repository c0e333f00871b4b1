"""The fields of CONNECT as nats-server takes them (NATS client protocol, "CONNECT").

Keys match without regard to case, what is unknown or null counts for nothing, and what is absent
stays as an earlier CONNECT of the connection had it.
"""

import json
from typing import Any, NoReturn

import msgspec

from headwater.edge.wire.json_objects import BAD_JSON

KINDS: dict[str, type] = {
    "account": str, "auth_token": str, "echo": bool, "export": dict, "headers": bool,
    "import": dict, "jwt": str, "lang": str, "name": str, "new_account": bool, "nkey": str,
    "no_responders": bool, "pass": str, "pedantic": bool, "protocol": int, "proxy_sig": str,
    "remote_account": str, "sig": str, "tls_required": bool, "user": str, "verbose": bool,
    "version": str,
}  # fmt: skip
INT_MAX = 2**63 - 1


def connect_fields(payload: bytes, before: dict[str, Any]) -> dict[str, Any] | None:
    """`before` with what `payload` says; None when it is no JSON object or of wrong types."""
    try:
        told = _decoded(payload)
    except (ValueError, RecursionError):
        return None
    if told is None:
        return before
    if not isinstance(told, dict):
        return None
    fields = dict(before)
    for key, value in told.items():
        name = key if key in KINDS else key.lower()
        kind = KINDS.get(name)
        if kind is None or value is None:
            continue
        if type(value) is not kind or (isinstance(value, int) and abs(value) > INT_MAX):
            return None
        fields[name] = value
    return fields


def _decoded(payload: bytes) -> Any:
    """JSON, also with texts that are no UTF-8. Raises ValueError and RecursionError."""
    try:
        return msgspec.json.decode(payload)
    except BAD_JSON:
        text = payload.decode("utf-8", "replace")
    found = json.loads(text, parse_constant=_refused)
    return json.loads(json.dumps(found, ensure_ascii=False).encode("utf-8", "replace"))


def _refused(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")
