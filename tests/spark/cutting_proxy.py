"""A TCP proxy that cuts connections."""

import asyncio
import contextlib
import threading


class CuttingProxy:
    """Forwards to a server, and cuts each of the first `cuts` connections after some bytes."""

    def __init__(self, port: int, cuts: int, after: int) -> None:
        self._port, self._cuts, self._after = port, cuts, after
        self.connections = 0
        self.delivered = 0
        self.port = 0
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._main(),))

    async def _main(self) -> None:
        self._stop = asyncio.Event()
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        async with server:
            await self._stop.wait()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        budget = self._after if self.connections <= self._cuts else 1 << 60
        there, back = await asyncio.open_connection("127.0.0.1", self._port)

        async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter, room: int) -> None:
            with contextlib.suppress(ConnectionError):
                while room > 0 and (data := await source.read(4096)):
                    sink.write(data[:room])
                    room -= len(data)
                    self.delivered += len(data) if source is there else 0
                    await sink.drain()
            sink.close()

        await asyncio.gather(pump(reader, back, 1 << 60), pump(there, writer, budget))

    def __enter__(self) -> "CuttingProxy":
        self._thread.start()
        self._ready.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)
        self._loop.close()
