"""What is kept of a client connection that has ended: copied facts for monitoring, no buffers."""

from typing import Any, NamedTuple

from headwater.security.identity import Identity, claimed_user

_FIELD_MAX = {"name": 256, "lang": 64, "version": 64, "jwt": 4096}
"""CONNECT fields that are kept, and the longest text of each in characters."""

USER_MAX = 256
"""Longest user that is kept, in characters."""

SUB_BYTES = 200
"""Memory that one subscription takes besides its texts."""
SUBS_BYTES_MAX = 256 << 10
"""Of the subscriptions of one connection; of more only the number is kept."""


class ClosedSub(NamedTuple):
    """The record of one subscription; its attributes are named as those of a `ClientSub`."""

    subject: bytes
    queue: bytes | None
    sid: bytes
    delivered: int
    maximum: int


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
        "sub_bytes",
        "sub_count",
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
        self.options["user"] = claimed_user(conn.options)[:USER_MAX]
        last = conn.last_subs or {}
        self.sub_count = len(last)
        self.subs: dict[bytes, ClosedSub] = {}
        """By sid; empty when there were too many to keep."""
        self.sub_bytes = sum(
            SUB_BYTES + len(sub.subject) + len(sub.queue or b"") + len(sid)
            for sid, sub in last.items()
        )
        if self.sub_bytes > SUBS_BYTES_MAX:
            self.forget_subs()
            return
        for sid, sub in last.items():
            row = (sub.subject, sub.queue, sid, sub.delivered, sub.maximum)
            self.subs[sid] = ClosedSub(*row)

    def forget_subs(self) -> None:
        """Keep of the subscriptions only how many they were."""
        self.subs = {}
        self.sub_bytes = 0
