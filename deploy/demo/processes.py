"""Processes of the demo: nodes and agents, started, watched, killed and started again."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

READY_WITHIN_S = 15.0
GREETS_WITHIN_S = 2.0

_given: set[int] = set()


class FleetError(Exception):
    """The fleet could not be started, or did not get where it had to; the text says why."""


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody listens on now, and that were not given before."""
    sockets: list[socket.socket] = []
    found: list[int] = []
    try:
        while len(found) < count:
            sock = socket.socket()
            sockets.append(sock)
            sock.bind(("127.0.0.1", 0))
            port = sock.getsockname()[1]
            if port not in _given:
                _given.add(port)
                found.append(port)
    finally:
        for sock in sockets:
            sock.close()
    return found


class NodeProcess:
    """One `headwater serve` with its configuration file; the same port after every start."""

    def __init__(self, name: str, folder: Path, port: int) -> None:
        self.name = name
        self.folder = folder
        self.port = port
        self.config = folder / f"{name}.conf"
        self.log = folder / f"{name}.log"
        self._process: asyncio.subprocess.Process | None = None

    @property
    def url(self) -> str:
        """Address for clients."""
        return f"nats://127.0.0.1:{self.port}"

    def configure(self, text: str) -> None:
        """Write the configuration; it may hold a password, so only the owner reads it."""
        descriptor = os.open(self.config, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(text)

    async def start(self) -> None:
        """Start, and wait until it greets. Raises FleetError."""
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "headwater.deploy.main", "serve", "-c", str(self.config),
                stdout=log, stderr=log, stdin=asyncio.subprocess.DEVNULL,
            )
        deadline = asyncio.get_running_loop().time() + READY_WITHIN_S
        while not await self._greets():
            if self._process.returncode is not None:
                raise FleetError(f"{self.name} ended at once; see {self.log}")
            if asyncio.get_running_loop().time() > deadline:
                raise FleetError(f"{self.name} is not ready; see {self.log}")
            await asyncio.sleep(0.02)

    async def _greets(self) -> bool:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            return False
        try:
            # Whoever else listens there may say nothing.
            async with asyncio.timeout(GREETS_WITHIN_S):
                line = await reader.readline()
        except TimeoutError:
            return False
        finally:
            writer.close()
        return line.startswith(b"INFO ")

    async def kill(self) -> None:
        """SIGKILL: what a power cut does to a process."""
        await self._end(signal.SIGKILL)

    async def stop(self) -> None:
        """SIGTERM, and SIGKILL when that takes too long."""
        await self._end(signal.SIGTERM)

    async def _end(self, number: int) -> None:
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.send_signal(number)
        try:
            async with asyncio.timeout(10):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


class AgentProcess:
    """One agent; `state` is the last progress line that it printed."""

    def __init__(self, device: str, acks: Path, arguments: list[str]) -> None:
        self.device = device
        self.acks = acks
        self.state: dict[str, Any] = {"acked": 0, "worked": 0, "retried": 0}
        self._arguments = arguments
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start and follow its progress."""
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "headwater.deploy.demo.agent",
            "--device", self.device, "--acks", str(self.acks), *self._arguments,
            stdout=asyncio.subprocess.PIPE, stdin=asyncio.subprocess.DEVNULL,
        )
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        while line := await self._process.stdout.readline():
            with contextlib.suppress(json.JSONDecodeError):
                self.state = json.loads(line)

    async def finished(self) -> None:
        """Wait for its end. Raises FleetError when it failed."""
        assert self._process is not None and self._reading is not None
        status = await self._process.wait()
        await self._reading
        if status != 0:
            raise FleetError(f"the agent of {self.device} failed with status {status}")

    async def kill(self) -> None:
        """End it, whatever it does."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    def acked_ids(self) -> list[str]:
        """Ids that the node has acknowledged, as the agent wrote them down."""
        return self.acks.read_text(encoding="utf-8").split() if self.acks.exists() else []
