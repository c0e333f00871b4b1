"""A client of nats-py whose connection to the node never leaves the process."""

import asyncio
import socket
from collections.abc import Callable
from typing import Any

from nats.aio.client import Client
from nats.aio.transport import TcpTransport

Serve = Callable[[socket.socket], None]
"""Has the node serve one end of a pair of sockets."""

ADDRESS = "nats://in.process"
"""nats-py wants an address; nobody dials it."""


class OwnTransport(TcpTransport):
    """One end of a pair of sockets; the node has the other."""

    def __init__(self, serve: Serve) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._serve = serve

    def __bool__(self) -> bool:
        # Otherwise nats-py would dial by TCP until the first pair is made.
        return True

    async def connect(self, uri: Any, buffer_size: int, connect_timeout: int) -> None:
        """Make the pair, again after each loss."""
        mine, served = socket.socketpair()
        for end in (mine, served):
            end.setblocking(False)
        try:
            self._serve(served)
            reader, writer = await asyncio.open_connection(sock=mine, limit=buffer_size)
        except BaseException:
            mine.close()
            raise
        self._bare_io_reader = self._io_reader = reader
        self._bare_io_writer = self._io_writer = writer


class OwnClient(Client):
    """A client that is connected through pairs of sockets."""

    def __init__(self, serve: Serve) -> None:
        super().__init__()
        # nats-py makes a transport only when there is none.
        self._transport = OwnTransport(serve)
