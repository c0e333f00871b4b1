"""Fixtures: headwater and a real nats-server with JetStream, and requests to compare them by."""

import asyncio
import contextlib
import json
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nats
import pytest

BIN = Path(sys.executable).parent
COMMANDS = {"headwater": [str(BIN / "headwater"), "serve"], "nats": [str(BIN / "nats-server")]}
REQUEST_TIMEOUT = 2.0
# Facts of a server or of a moment, which no two servers share.
VOLATILE = {"created", "ts", "first_ts", "last_ts", "last_active", "time", "id", "timestamp"}
VOLATILE |= {"leader", "level", "pause_remaining"}
# How far a source is just now, and what more headwater tells of it.
VOLATILE |= {"lag", "headwater"}
# A real server says this for a moment after another stream was deleted.
BUSY = "error creating store for stream"
FAILING_SYNC = Path(__file__).parent.parent / "storage" / "device" / "failing_sync.c"
VOLATILE_HEADERS = {"Nats-Time-Stamp"}


class JetStreamServer:
    """A running server process."""

    def __init__(self, kind: str, folder: Path, *flags: str) -> None:
        own = ["-n", "NODE", "-a", "127.0.0.1", "-p", "-1", "-js", "-sd", str(folder)]
        self.process = subprocess.Popen(
            [*COMMANDS[kind], *own, *flags], stderr=subprocess.PIPE, text=True
        )
        self.log: list[str] = []
        self.port = self._read_port()
        self.reader: threading.Thread | None = None
        self.url = f"nats://127.0.0.1:{self.port}"

    def _read_port(self) -> int:
        assert self.process.stderr is not None
        port = 0
        for line in self.process.stderr:
            self.log.append(line)
            if "Listening for client connections on" in line:
                port = int(line.rsplit(":", 1)[1])
            if "Server is ready" in line:
                return port
        raise AssertionError("".join(self.log))

    def read_on(self) -> None:
        """Read the log until its end: a server stands still when nobody empties a full pipe."""
        self.reader = threading.Thread(target=self._read_rest, daemon=True)
        self.reader.start()

    def _read_rest(self) -> None:
        assert self.process.stderr is not None
        self.log.extend(self.process.stderr)

    def stop(self) -> None:
        """End cleanly."""
        self.process.terminate()
        self._ended()

    def kill(self) -> None:
        """End as a crash does."""
        self.process.kill()
        self._ended()

    def _ended(self) -> None:
        if self.reader is None:
            self.process.communicate(timeout=10)
            return
        self.process.wait(timeout=10)
        self.reader.join(timeout=10)


@pytest.fixture(scope="module")
def headwater_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A headwater server for a whole module."""
    server = JetStreamServer("headwater", tmp_path_factory.mktemp("headwater"))
    server.read_on()
    yield server.url
    server.stop()


@pytest.fixture(scope="module")
def both_urls(
    headwater_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, str]]:
    """A headwater server and a real one, each for a whole module."""
    server = JetStreamServer("nats", tmp_path_factory.mktemp("nats"))
    server.read_on()
    yield headwater_url, server.url
    server.stop()


@pytest.fixture
def start_server(tmp_path: Path) -> Iterator[Callable[..., JetStreamServer]]:
    """Starts headwater servers on one directory; all are ended with the test."""
    running: list[JetStreamServer] = []

    def start(*flags: str) -> JetStreamServer:
        server = JetStreamServer("headwater", tmp_path / "store", *flags)
        running.append(server)
        return server

    yield start
    for server in running:
        with contextlib.suppress(ProcessLookupError):
            server.kill()


@pytest.fixture
def switch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """While this file exists, syncs of servers started from now on fail."""
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    library = tmp_path / "failing_sync.so"
    command = [compiler, "-shared", "-fPIC", "-o", str(library), str(FAILING_SYNC)]
    subprocess.run(command, check=True)
    path = tmp_path / "fail"
    monkeypatch.setenv("FAIL_SYNC", str(path))
    monkeypatch.setenv("LD_PRELOAD", str(library))
    return path


class Client:
    """Requests as bytes or JSON, and answers as comparable values."""

    def __init__(self, connection: Any) -> None:
        self.nc = connection

    async def api(self, name: str, body: Any = None, headers: Any = None) -> Any:
        """One API request below `$JS.API.`."""
        return await self.request(f"$JS.API.{name}", body, headers)

    async def request(self, subject: str, body: Any = None, headers: Any = None) -> Any:
        """The answer as JSON, or (payload, headers) when there are headers, or the error's name."""
        if body is None:
            body = b""
        elif not isinstance(body, bytes):
            body = json.dumps(body).encode()
        try:
            answer = await self.nc.request(subject, body, timeout=REQUEST_TIMEOUT, headers=headers)
        except (TimeoutError, nats.errors.Error) as error:
            return type(error).__name__
        found: Any = answer.data
        with contextlib.suppress(ValueError):
            found = json.loads(answer.data)
        if answer.headers:
            return found, dict(answer.headers)
        return found


@pytest.fixture
async def client(headwater_url: str) -> Any:
    """A client of the module's headwater server."""
    connection = await nats.connect(headwater_url)
    yield Client(connection)
    await connection.close()


def comparable(value: Any) -> Any:
    """`value` without what differs between any two servers."""
    if isinstance(value, dict):
        return {
            key: comparable(item)
            for key, item in value.items()
            if key not in VOLATILE and key not in VOLATILE_HEADERS and not key.startswith("_nats.")
        }
    if isinstance(value, list | tuple):
        return [comparable(item) for item in value]
    return value


@pytest.fixture
def compare(both_urls: tuple[str, str]) -> Callable[[list[tuple[Any, ...]]], Any]:
    """Runs steps (subject, body, headers) on both servers and compares all answers."""

    async def play(url: str, steps: list[tuple[Any, ...]]) -> list[Any]:
        connection = await nats.connect(url)
        client = Client(connection)
        answers = []
        for step in steps:
            subject = step[0] if step[0].startswith("=") else f"=$JS.API.{step[0]}"
            answer = await client.request(subject[1:], *step[1:])
            while BUSY in str(answer):
                answer = await client.request(subject[1:], *step[1:])
            answers.append(comparable(answer))
        await connection.close()
        return answers

    async def run(steps: list[tuple[Any, ...]]) -> None:
        ours, theirs = await asyncio.gather(*(play(url, steps) for url in both_urls))
        for step, our, their in zip(steps, ours, theirs, strict=True):
            assert our == their, f"after {step!r}"

    return run
