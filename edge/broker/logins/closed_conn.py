"""What is kept of a client connection that has ended: copied facts for monitoring, no buffers."""

from typing import Any

from headwater.security.identity import Identity

_FIELD_MAX = {"name": 256, "lang": 64, "version": 64, "jwt": 4096}
"""CONNECT fields that are kept, and the longest text of each in characters."""


class ClosedConn:
    """The record of one connection; its attributes are named as those of a `ClientConn`."""

    __slots__ = (
        "account",
        "active_ns",
        "cid",
        "identity",
        "in_bytes",
        "in_msgs",
        "options",
        "out_bytes",
        "out_msgs",
        "pending",
        "reason",
        "stalls",
        "stop",
        "subs",
    )

    def __init__(self, conn: Any, reason: str, stop: float) -> None:
        """`stop` is the time of day in Unix seconds."""
        self.reason = reason
        self.stop = stop
        self.cid: int = conn.cid
        self.account: Any = conn.account
        self.identity: Identity | None = conn.identity
        self.pending = 0
        self.subs: dict[bytes, Any] = {}
        self.in_msgs: int = conn.in_msgs
        self.out_msgs: int = conn.out_msgs
        self.in_bytes: int = conn.in_bytes
        self.out_bytes: int = conn.out_bytes
        self.stalls: int = conn.stalls
        self.active_ns: int = conn.active_ns
        self.options: dict[str, str] = {
            field: conn.options[field][:longest]
            for field, longest in _FIELD_MAX.items()
            if isinstance(conn.options.get(field), str)
        }
