"""Servers for the tests of federation: nodes in this process, and the real nats-server beside."""

import asyncio
import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import nats
from nats.aio.client import Client

from bench.servers import free_port
from headwater.edge.conf.load import load_text
from headwater.edge.node.node import Node
from headwater.federation.service import leaf_services
from tests.waiting import until

PROGRAMS = {
    "real": [str(Path(sys.executable).parent / "nats-server")],
    "headwater": [sys.executable, "-m", "headwater.deploy.main", "serve"],
}


JETSTREAM = 'jetstream {{ store_dir: "{store}", domain: {domain} }}\nserver_name: {domain}\n'


class RealServer:
    """A server in a process of its own: the real nats-server, or a node of this project.

    `{store}` in the configuration stands for a directory of its own.
    """

    def __init__(
        self, directory: Path, config: str, name: str = "real", program: str = "real"
    ) -> None:
        self.program = PROGRAMS[program]
        self.port = free_port()
        self.directory = directory / name
        self.directory.mkdir(exist_ok=True)
        self.config = self.directory / "server.conf"
        self.log = self.directory / "log"
        text = f"listen: 127.0.0.1:{self.port}\nserver_name: {name}\n{config}"
        self.config.write_text(text.replace("{store}", str(self.directory / "store")))
        self.process: subprocess.Popen[bytes] | None = None

    async def start(self) -> "RealServer":
        """Run until it accepts clients."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*self.program, "-c", str(self.config), "-D"], stdout=log, stderr=log
            )
        await until(self._accepts, f"the server accepts clients: {self.log}")
        return self

    def _accepts(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), 0.2).close()
        except OSError:
            return False
        return True

    def kill(self) -> None:
        """End it without ceremony."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def end(self) -> None:
        """End it as an operator does, which gives back what it reserved."""
        if self.process is not None:
            self.process.terminate()
            self.process.wait()
            self.process = None

    def text(self) -> str:
        """What it logged."""
        return self.log.read_text(errors="replace")


class Wire:
    """A TCP relay to a port, which can be cut, be held open on the far side, or be slow."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.port = 0
        self.bytes_per_s = 0.0
        self.delay_s = 0.0
        """How much later bytes arrive, however many are on their way. A wire that is slow as well
        has 4 KiB on its way at a time."""
        self.alter: Callable[[bytes], bytes] = bytes
        """What becomes of bytes on their way to the target."""
        self.alter_back: Callable[[bytes], bytes] = bytes
        """What becomes of bytes on their way to who dialled."""
        self.connections = 0
        self.passed = 0
        """Bytes in both directions."""
        self.idle_s = 0.0
        """How long nothing was there to pass on to who dialled."""
        self._passing = asyncio.Event()
        self._passing.set()
        self._server: asyncio.Server | None = None
        self._near: set[asyncio.StreamWriter] = set()
        self._far: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> "Wire":
        """Listen."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Small buffers: a relay that swallows megabytes would be no slow link.
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
        sock.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", self.target))
        except OSError:
            sock.close()
            writer.close()
            return
        far_reader, far_writer = await asyncio.open_connection(sock=sock, limit=1 << 14)
        self.connections += 1
        self._near.add(writer)
        self._far.add(far_writer)
        for source, sink in ((reader, far_writer), (far_reader, writer)):
            task = asyncio.create_task(self._pump(source, sink))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        due = 0.0
        with contextlib.suppress(OSError):
            while data := await self._read(source, sink):
                if self.bytes_per_s:
                    await asyncio.sleep(self.delay_s)
                elif self.delay_s or loop.time() < due:
                    due = max(due + 1e-6, loop.time() + self.delay_s)
                    loop.call_at(due, self._pass, sink, data)
                    continue
                self._pass(sink, data)
                await sink.drain()
                await self._passing.wait()
                if self.bytes_per_s:
                    await asyncio.sleep(len(data) / self.bytes_per_s)
        if sink in self._near:
            # Who dialled hears that the target has ended the connection.
            loop.call_at(due + 1e-6, sink.close)

    def _pass(self, sink: asyncio.StreamWriter, data: bytes) -> None:
        sink.write((self.alter if sink in self._far else self.alter_back)(data))
        self.passed += len(data)

    async def _read(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> bytes:
        begun = time.monotonic()
        data = await source.read(4096 if self.bytes_per_s else 1 << 16)
        if sink in self._near:
            self.idle_s += time.monotonic() - begun
        return data

    def silence(self, on: bool) -> None:
        """Pass nothing on, and keep all connections."""
        if on:
            self._passing.clear()
        else:
            self._passing.set()

    def strand(self) -> None:
        """Pass nothing on by the connections of now, which stay open; further ones work."""
        for task in self._tasks:
            task.cancel()

    def cut(self, far_side: bool = True) -> None:
        """End all connections; without `far_side` the target does not notice."""
        for writer in self._near | (self._far if far_side else set()):
            writer.transport.abort()
        self._near.clear()
        if far_side:
            self._far.clear()

    async def stop(self) -> None:
        """End."""
        if self._server is not None:
            self._server.close()
        self.cut()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def wired(lab: "Lab", hub_more: str = "", edge_more: str = "") -> tuple[Node, Node, Wire]:
    """A hub and an edge in this process, linked, and the wire of unlimited speed between them.
    More may be said in the hub's `leafnodes` and in the edge's remote."""
    port = free_port()
    hub = await lab.node(
        JETSTREAM.format(store=lab.directory / "hub", domain="hub")
        + f"leafnodes {{ listen: 127.0.0.1:{port}, {hub_more} }}"
    )
    wire = await lab.wire(port)
    edge = await lab.node(
        JETSTREAM.format(store=lab.directory / "edge", domain="edge")
        + 'leafnodes { reconnect: "50ms", remotes [ '
        f'{{ url: "nats://127.0.0.1:{wire.port}", ignore_discovered_servers: true, {edge_more} }} '
        "] }"
    )
    await until(lambda: leafs(hub) and leafs(edge), "the link is up")
    return hub, edge, wire


def leaf_service(node: Node) -> Any:
    """The leaf service of a node."""
    return next(service for service in node.services if service.name == "leafnodes")


def leafs(node: Node) -> list[dict[str, Any]]:
    """Admitted links of a node."""
    found: list[dict[str, Any]] = leaf_service(node).status()["leafs"]
    return found


def client_port(node: Node) -> int:
    """Port for clients."""
    return int(node.listeners[0].port)


def leaf_port(node: Node) -> int:
    """Port for spokes."""
    return int(leaf_service(node).listener.port)


class Lab:
    """Everything a test starts, ended when the test is over."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._stack = contextlib.AsyncExitStack()

    async def node(self, config: str, port: int = -1) -> Node:
        """A Headwater node in this process, from a configuration text."""
        text = f"listen: 127.0.0.1:{port}\n{config}"
        options = load_text(text.replace("{dir}", str(self.directory))).options
        node = Node(options, asyncio.get_running_loop())
        node.services.extend(leaf_services(options))
        node.start()
        self._stack.push_async_callback(node.stop)
        return node

    async def real(self, config: str, name: str = "real", program: str = "real") -> RealServer:
        """A server in a process of its own."""
        server = RealServer(self.directory, config, name, program)
        self._stack.callback(server.kill)
        return await server.start()

    async def wire(self, target: int) -> Wire:
        """A relay to a port."""
        made = await Wire(target).start()
        self._stack.push_async_callback(made.stop)
        return made

    async def client(self, port: int, **options: Any) -> Client:
        """A client; it does not reconnect."""
        made = await nats.connect(
            f"nats://127.0.0.1:{port}", allow_reconnect=False, connect_timeout=5, **options
        )
        self._stack.push_async_callback(made.close)
        return made

    async def close(self) -> None:
        """End everything, newest first."""
        await self._stack.aclose()


async def lab_for(directory: Path) -> AsyncIterator[Lab]:
    """The body of the `lab` fixture."""
    lab = Lab(directory)
    try:
        yield lab
    finally:
        await lab.close()
