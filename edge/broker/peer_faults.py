"""Who is at the other end of a connection, and what is logged when it is closed for what came."""

import logging
import socket

log = logging.getLogger("headwater.broker")


def peer_of(sock: socket.socket) -> tuple[str, int]:
    """Host and port at the other end of a socket; "?" and 0 when it is gone, or has no port."""
    try:
        address = sock.getpeername()
    except OSError:
        return "?", 0
    return (address[0], address[1]) if isinstance(address, tuple) else ("?", 0)


def tell_handshake(peer: tuple[str, int], cid: int, problem: object) -> None:
    """A TLS handshake with `peer`, a host and port, failed because of `problem`."""
    text = getattr(problem, "reason", None) or problem
    log.error("%s:%d - cid:%d - TLS handshake error: %s", *peer, cid, text)


def tell_excess(peer: tuple[str, int], cid: int) -> None:
    """`peer` sent more than a login takes."""
    log.error(
        "%s:%d - cid:%d - sent too much before it logged in; its connection is closed", *peer, cid
    )


def tell_fault(cid: int) -> None:
    """What came raised the exception that is being handled."""
    log.exception(
        "cid %d: what came in could not be handled; the connection is closed; report this fault",
        cid,
    )
