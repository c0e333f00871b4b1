"""The client for everything around a measurement, on the loopback interface."""

import socket
import struct

from bench.servers import HOST
from headwater.edge.wire.client import Client


class Link(Client):
    """A connected client. `timeout` bounds every wait, in seconds; `user` is `name:password@`."""

    def __init__(self, port: int, timeout: float = 10.0, host: str = HOST, user: str = "") -> None:
        shown = f"[{host}]" if ":" in host else host
        super().__init__(f"nats://{user}{shown}:{port}", timeout=timeout, name="bench")

    @property
    def fd(self) -> int:
        """File descriptor of the socket, for the load generator: it blocks, and its timeouts are
        the socket's own (SO_RCVTIMEO). The client's next read or write takes it back."""
        limit = struct.pack("ll", int(self.timeout), int(self.timeout % 1 * 1e6))
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            self.socket.setsockopt(socket.SOL_SOCKET, option, limit)
        self.socket.settimeout(None)
        return self.socket.fileno()
