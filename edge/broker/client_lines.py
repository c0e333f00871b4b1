"""What the log says of clients, in the form that operators and tools know from nats-server.

Each line begins with where the client is, its number, and what it told of itself. `conn` is its
`ClientConn`.
"""

import logging
from typing import Any

from headwater.edge.logging.protocol_log import client_label, shown_user

log = logging.getLogger("headwater.broker")

_SHOWN = {
    "Authentication Timeout": "Authentication Timeout",
    "maximum connections exceeded": "maximum connections exceeded",
    "maximum subscriptions exceeded": "maximum subscriptions exceeded",
    "Unknown Protocol Operation": "Client parser ERROR: Unknown Protocol Operation",
}
"""What a client is told, and what the log says of it."""


class _Label:
    """A client's label, made when a line is written."""

    __slots__ = ("_conn",)

    def __init__(self, conn: Any) -> None:
        self._conn = conn

    def __str__(self) -> str:
        return client_label(self._conn)


def tell_created(conn: Any) -> None:
    """A client has connected."""
    log.debug("%s - Client connection created", _Label(conn))


def tell_closed(conn: Any, reason: str) -> None:
    """A client is gone, and why."""
    if reason.startswith("Slow Consumer"):
        log.warning("%s - Slow Consumer Detected: %s", _Label(conn), reason)
    log.debug("%s - Client connection closed: %s", _Label(conn), reason)


def tell_refused_login(conn: Any, fields: dict[str, Any], why: object = "") -> None:
    """A login with these fields of CONNECT was refused; `why` is for the operator alone."""
    user = shown_user(fields)
    log.error(
        "%s - authentication error%s%s",
        _Label(conn),
        f" - {user}" if user else "",
        f": {why}" if why else "",
    )


def tell_error(conn: Any, error: str) -> None:
    """A client is told `error`; what an operator need not know is passed over."""
    if error in _SHOWN:
        log.error("%s - %s", _Label(conn), _SHOWN[error])


def tell_payload(conn: Any, size: int) -> None:
    """A client sent a message of `size` bytes, which is more than it may."""
    log.error("%s - maximum payload exceeded: %d vs %d", _Label(conn), size, conn.max_payload)


def tell_violation(conn: Any, what: str) -> None:
    """A client did `what` without permission."""
    log.error("%s - %s", _Label(conn), what)
