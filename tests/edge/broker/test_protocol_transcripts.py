"""Transcripts of the client protocol, true of Headwater and of the real nats-server alike.

`a>` sends a line on connection a (an escaped CRLF inside it puts two lines in one packet), `a<`
expects exactly that line, `a=` lines may come in any order (frame and payload separated by `|`),
`a!` expects the connection to end.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.servers import Recipe, Server, program
from tests.dial import dial

FLAGS = ("-a", "127.0.0.1", "-p", "{port}")
PLAIN = {
    "headwater": Recipe("headwater", (program("headwater"), "serve", *FLAGS)),
    "nats-server": Recipe("nats-server", (program("nats-server"), *FLAGS)),
}
TRANSCRIPTS = sorted((Path(__file__).parent / "transcripts").glob("*.txt"))


class Wire:
    """A raw connection that reads lines."""

    def __init__(self, port: int) -> None:
        self.socket = dial(port, 5)
        self.reader = self.socket.makefile("rb")
        assert self.line().startswith("INFO ")

    def line(self) -> str:
        text = self.reader.readline()
        if text.startswith(b"INFO ") and b"connect_info" in text:
            return self.line()
        return text.decode().rstrip("\r\n") if text else "<closed>"

    def send(self, text: str) -> None:
        self.socket.sendall(text.replace("\\r\\n", "\r\n").encode() + b"\r\n")

    def close(self) -> None:
        self.reader.close()
        self.socket.close()


@pytest.fixture(scope="module", params=["headwater", "nats-server"])
def port(request: pytest.FixtureRequest) -> Iterator[int]:
    with Server(PLAIN[request.param]) as server:
        yield server.port


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda p: p.stem)
def test_transcript(path: Path, port: int) -> None:
    wires: dict[str, Wire] = {}
    unordered: list[str] = []
    lines = [*path.read_text().splitlines(), "end"]
    for number, line in enumerate(lines, 1):
        name, kind, text = line[:1], line[1:2], line[3:]
        if unordered and kind != "=":
            owner = unordered[0][0]
            expected = sorted(entry[1:] for entry in unordered)
            got = sorted(f"{wires[owner].line()}|{wires[owner].line()}" for _ in unordered)
            assert got == expected, f"{path.name}:{number}"
            unordered.clear()
        if line.startswith("#") or line == "end":
            continue
        if name not in wires:
            wires[name] = Wire(port)
        if kind == ">":
            wires[name].send(text)
        elif kind == "=":
            unordered.append(name + text)
        elif kind == "<":
            assert wires[name].line() == text, f"{path.name}:{number}"
        else:
            assert wires[name].line() == "<closed>", f"{path.name}:{number}"
    for wire in wires.values():
        wire.close()
