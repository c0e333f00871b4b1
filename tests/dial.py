"""Sockets of clients that are written by hand."""

import socket


def dial(port: int, seconds: float) -> socket.socket:
    """A socket to a listener of this machine. Calls take so many seconds at most.

    What is written leaves at once. With Nagle's algorithm a second small write waits until the
    peer has acknowledged the first, which takes 40 ms when the peer has nothing to answer.
    """
    found = socket.create_connection(("127.0.0.1", port), seconds)
    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return found
