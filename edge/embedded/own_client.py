"""A client of nats-py whose connection to the node never leaves the process."""

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.transport import TcpTransport
from nats.errors import ConnectionClosedError

Serve = Callable[[socket.socket], None]
"""Has the node serve one end of a pair of sockets."""

PARTING_S = 2.0
"""Seconds for which requests on their way are waited for at the end."""

ADDRESS = "nats://in.process"
"""nats-py wants an address; nobody dials it."""


@contextmanager
def no_lost_cancellation() -> Iterator[None]:
    """Raise CancelledError at the end of a block in which the task was cancelled.

    Before Python 3.12 `asyncio.wait_for`, which nats-py uses, loses a cancellation that comes
    together with what it waits for; the task would go on.
    """
    task = asyncio.current_task()
    cancelled = task.cancelling() if task else 0
    yield
    if task and task.cancelling() > cancelled:
        raise asyncio.CancelledError


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
        self._parting = False
        self._asking = 0
        """Requests that wait for their answers."""
        self._answered = asyncio.Event()

    async def connect(self, *arguments: Any, **named: Any) -> None:
        """As nats-py's."""
        with no_lost_cancellation():
            await super().connect(*arguments, **named)

    async def flush(self, *arguments: Any, **named: Any) -> None:
        """As nats-py's."""
        with no_lost_cancellation():
            await super().flush(*arguments, **named)

    async def request(self, *arguments: Any, **named: Any) -> Msg:
        """As nats-py's, refused from the beginning of the end on."""
        if self._parting:
            raise ConnectionClosedError
        self._asking += 1
        try:
            with no_lost_cancellation():
                return await super().request(*arguments, **named)
        finally:
            self._asking -= 1
            if not self._asking:
                self._answered.set()

    async def close(self) -> None:
        """Requests on their way get their answers, for two seconds; then all of it ends.

        nats-py would let each of them run into its time limit.
        """
        self._parting = True
        self._answered.clear()
        if self._asking:
            with suppress(TimeoutError):
                async with asyncio.timeout(PARTING_S):
                    await self._answered.wait()
        await super().close()
        for unanswered in list(self._resp_map.values()):
            if not unanswered.done():
                unanswered.set_exception(ConnectionClosedError())
                unanswered.exception()  # Nobody may wait any more, which is no fault.
