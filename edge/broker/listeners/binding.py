"""Sockets that listen: bound to an address, and not yet read from."""

import errno
import socket

BACKLOG = 1024
ANY = ("", "0.0.0.0", "::")
NO_IPV6 = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL, errno.EPROTONOSUPPORT, errno.ENOPROTOOPT)


class ListenError(Exception):
    """An address that cannot be listened on; the text says which and why."""


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens on `host`:`port`, 0 for any free port. Raises ListenError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        if host in ANY:
            return _dual_stack(port)
        return _listening(family, _numeric(host), port)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ListenError(f"listen tcp {host}:{port}: {reason.lower()}") from error


def _dual_stack(port: int) -> socket.socket:
    """Listen on every address of both families; of IPv4 alone where there is no IPv6."""
    try:
        return _listening(socket.AF_INET6, "::", port, both=True)
    except OSError as error:
        if error.errno not in NO_IPV6:
            raise
    return _listening(socket.AF_INET, "0.0.0.0", port)


def _listening(
    family: socket.AddressFamily, host: str, port: int, *, both: bool = False
) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if both:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        sock.bind((host, port))
        sock.listen(BACKLOG)
    except (OSError, OverflowError):
        sock.close()
        raise
    return sock


def _numeric(host: str) -> str:
    return "127.0.0.1" if host == "localhost" else host
