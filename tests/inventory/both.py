"""Both servers with one configuration, and raw connections to each."""

import json
import re
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

from bench.servers import Recipe, Server, program
from tests.dial import dial

PATIENCE_S = 20
"""How long a server may take to say what it is expected to say."""


class Both:
    """Headwater and nats-server, started with one configuration. `{dir}` in it is a store."""

    def __init__(self, config: str) -> None:
        commands = {"headwater": (program("headwater"), "serve"), "nats": (program("nats-server"),)}
        self.recipes = [Recipe(name, command, config) for name, command in commands.items()]
        self.stack = ExitStack()
        self.servers: list[Server] = []

    def __enter__(self) -> Self:
        self.servers = [self.stack.enter_context(Server(recipe)) for recipe in self.recipes]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stack.close()


class Line:
    """A raw connection. What is said is what the server sends, line by line, without its INFO."""

    def __init__(self, port: int) -> None:
        self.socket = dial(port, PATIENCE_S)
        self.reader = self.socket.makefile("rb")
        text = self.reader.readline()
        self.refused = "" if text.startswith(b"INFO ") else text.decode().rstrip("\r\n")
        """What comes in the place of INFO."""
        self.info: dict[str, Any] = {} if self.refused else json.loads(text[5:])

    def send(self, text: bytes) -> None:
        """Send these bytes; that the server has gone shows when it is heard."""
        try:
            self.socket.sendall(text)
        except OSError:
            return

    def heard(self, until: str = "") -> list[str]:
        """Lines until the connection ends, or until one is `until`; INFO and PING are left out."""
        lines: list[str] = []
        while True:
            try:
                text = self.reader.readline()
            except ConnectionResetError:
                text = b""
            line = text.decode(errors="replace").rstrip("\r\n") if text else "<closed>"
            if line.startswith("INFO ") or line == "PING":
                continue
            lines.append(re.sub(r"\d+\.\d+\.\d+\.\d+:\d+", "ADDRESS", line))
            if not text or line == until:
                return lines

    def asked(self, text: bytes) -> list[str]:
        """What is answered to these bytes: all until the PONG behind them, or the end."""
        self.send(text + b"PING\r\n")
        return self.heard("PONG")

    def close(self) -> None:
        """Leave."""
        self.reader.close()
        self.socket.close()
