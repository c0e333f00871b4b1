"""Clients that a replaced leader has handed messages to, and that have not received them.

A line may be cut at once between a leader and the others, and between it and its clients. What it
wrote to these is kept by the system, and sent when the line is back. By then the next leader has
handed the same messages to others, who may have acknowledged them. So such a client is cut off by a
reset, which takes along what is on its way: to it, it is a line that broke.

A line counts as silent when the system had to send something again, and has heard nothing since.
One that is merely slow, or far, is left alone, unless messages of the stream wait here for it.
"""

import fcntl
import logging
import socket
import struct
import termios
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from headwater.edge.kernel.kernel import Kernel
from headwater.hub.routes.unsent import unsent_streams
from headwater.hub.streams.held_deliveries import CUT

LOOK_SECONDS = 0.05
"""Between two looks at lines that have yet to say that they took what was sent."""
WATCH_LOOKS = 100
"""By then a silent line is known to be one."""
INFO_BYTES = 128
"""Of what the system says of a connection, as far as it is used."""
TIMEOUTS_AT, PROBES_AT, CONFIRMED_AT = 2, 3, 120
"""Where that has how often something was sent again since the peer was heard, how often it was
asked whether it is there, a byte each, and the bytes that it took."""
PROBES_MAX = 1
"""A peer that has no room, and is there, answers each."""

log = logging.getLogger("headwater.streams")


class Line(NamedTuple):
    """What the system knows of a connection."""

    sent: int
    """Bytes that it was given for the peer; the first one has any number."""
    confirmed: int
    """Of these, those that the peer has confirmed."""
    silent: bool
    """Something was sent again, or the peer was asked twice, and nothing was heard since."""


def line_of(sock: Any) -> Line | None:
    """The state of a socket; None where the system says nothing of it."""
    if not isinstance(sock, socket.socket) or not hasattr(socket, "TCP_INFO"):
        return None
    try:
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, INFO_BYTES)
        waits = fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, bytes(4))
    except OSError:
        return None
    if len(info) < INFO_BYTES:
        return None
    (confirmed,) = struct.unpack_from("Q", info, CONFIRMED_AT)
    silent = info[TIMEOUTS_AT] > 0 or info[PROBES_AT] > PROBES_MAX
    return Line(confirmed + struct.unpack("i", waits)[0], confirmed, silent)


class SilentClients:
    """Of one node. `clients()` are the connections of its clients."""

    def __init__(self, kernel: Kernel, clients: Callable[[], Iterable[Any]]) -> None:
        self.kernel = kernel
        self.clients = clients

    def look(self, stream: str) -> None:
        """The leader of a stream was replaced, and has handed nothing over: cut off who may get
        late what it had handed out."""
        watched = []
        for client in list(self.clients()):
            line = line_of(client.sock)
            if stream in unsent_streams(client):
                self._cut(stream, client)
            elif line is not None and line.confirmed < line.sent:
                watched.append((client, line.sent))
        self._watch(stream, watched, WATCH_LOOKS)

    def _watch(self, stream: str, watched: list[tuple[Any, int]], looks: int) -> None:
        """Look at clients that have yet to confirm so much, until each has, or is cut off."""
        left = []
        for client, sent in watched:
            line = line_of(client.sock)
            if line is None or line.confirmed >= sent:
                continue
            if line.silent:
                self._cut(stream, client)
            else:
                left.append((client, sent))
        if left and looks:
            self.kernel.loop.call_later(LOOK_SECONDS, self._watch, stream, left, looks - 1)

    def _cut(self, stream: str, client: Any) -> None:
        log.info(
            "stream '%s': client %d is cut off: it has not received all that was sent to it before "
            "the stream lost its leader, and others may have it by now",
            stream,
            client.cid,
        )
        client.sever(CUT)
