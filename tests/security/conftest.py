"""A real nats-server as a peer, spoken to over a plain socket."""

import contextlib
import json
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

NATS_SERVER = Path(sys.executable).parent / "nats-server"
TIMEOUT = 5.0


class RawClient:
    """A connection that speaks the text protocol line by line."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT)
        self.file = self.socket.makefile("rb")
        self.info: dict[str, Any] = json.loads(self.file.readline()[5:])

    def close(self) -> None:
        self.file.close()
        self.socket.close()

    def connect(self, **fields: Any) -> list[str]:
        """Send CONNECT and PING; the lines up to PONG or the end of the connection."""
        options = {"verbose": False, "pedantic": False, "protocol": 0, **fields}
        return self.send(f"CONNECT {json.dumps(options)}\r\n")

    def send(self, protocol: str) -> list[str]:
        """Send protocol text and a PING; the lines up to PONG or the end."""
        self.socket.sendall(protocol.encode() + b"PING\r\n")
        lines = []
        while True:
            line = self.file.readline()
            if not line or line == b"PONG\r\n":
                return lines
            lines.append(line.decode().strip())


class RealServer:
    """A running nats-server."""

    def __init__(self, port: int) -> None:
        self.port = port

    @contextlib.contextmanager
    def client(self) -> Iterator[RawClient]:
        client = RawClient(self.port)
        try:
            yield client
        finally:
            client.close()


@pytest.fixture
def real_server(tmp_path: Path) -> Iterator[Callable[[str], RealServer]]:
    """Starts a nats-server with a configuration text; all are stopped with the test."""
    running: list[subprocess.Popen[str]] = []

    def start(configuration: str) -> RealServer:
        config = tmp_path / f"server{len(running)}.conf"
        config.write_text("listen: '127.0.0.1:-1'\n" + configuration)
        process = subprocess.Popen(
            [NATS_SERVER, "-c", config], stderr=subprocess.PIPE, text=True
        )
        running.append(process)
        assert process.stderr is not None
        port, log = 0, []
        for line in process.stderr:
            log.append(line)
            if "Listening for client connections on" in line:
                port = int(line.rsplit(":", 1)[1])
            if "Server is ready" in line:
                return RealServer(port)
        raise AssertionError("".join(log))

    try:
        yield start
    finally:
        for process in running:
            process.kill()
            process.communicate()
