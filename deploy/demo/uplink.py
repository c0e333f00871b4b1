"""The uplink of one edge: an HTTP proxy (CONNECT) that can be cut.

An edge dials its hub through it, as gateways behind a modem or a company's proxy do. `cut` drops
what is open and refuses what is new; `heal` lets it through again.
"""

import asyncio
import contextlib

HEAD_BYTES_MAX = 8192


class Uplink:
    """One proxy on a port of loopback."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.up = True
        self.carried_bytes = 0
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    async def start(self) -> None:
        """Listen. Raises OSError."""
        self._server = await asyncio.start_server(
            self._serve, "127.0.0.1", self.port, limit=HEAD_BYTES_MAX
        )

    def cut(self) -> None:
        """Drop every connection, without a goodbye, and refuse new ones."""
        self.up = False
        for writer in list(self._writers):
            writer.transport.abort()

    def heal(self) -> None:
        """Carry again."""
        self.up = True

    async def stop(self) -> None:
        """End."""
        self.cut()
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        ends = (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError)
        with contextlib.suppress(*ends):
            if self.up:
                await self._connect(reader, writer)
        self._writers.discard(writer)
        writer.transport.abort()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        method, target, *_ = head.split(b" ", 2)
        host, _, port = target.decode().rpartition(":")
        if method != b"CONNECT" or not port.isdigit():
            writer.write(b"HTTP/1.1 405 Method Not Allowed\r\n\r\n")
            await writer.drain()
            return
        far_reader, far_writer = await asyncio.open_connection(host.strip("[]"), int(port))
        self._writers.add(far_writer)
        try:
            writer.write(b"HTTP/1.1 200 Connection Established\r\n\r\n")
            there = asyncio.create_task(self._carry(reader, far_writer))
            back = asyncio.create_task(self._carry(far_reader, writer))
            await asyncio.wait({there, back}, return_when=asyncio.FIRST_COMPLETED)
            there.cancel()
            back.cancel()
            await asyncio.gather(there, back, return_exceptions=True)
        finally:
            self._writers.discard(far_writer)
            far_writer.transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                self.carried_bytes += len(data)
                writer.write(data)
                await writer.drain()
