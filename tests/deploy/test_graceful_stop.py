"""What clients see when a node is told to stop, beside nats-server."""

import json
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from bench.servers import Recipe, Server, free_port, program

COMMANDS = {
    "headwater": (program("headwater"), "serve"),
    "nats-server": (program("nats-server"),),
}
CLUSTER = 'cluster {{ name: C, listen: "127.0.0.1:{own}", routes: ["nats://127.0.0.1:{other}"] }}'


@pytest.fixture(params=COMMANDS)
def kind(request: pytest.FixtureRequest) -> Iterator[str]:
    yield request.param


class Wire:
    """A raw client that reads lines."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), 10)
        self.reader = self.socket.makefile("rb")
        self.info = json.loads(self.reader.readline()[5:])
        self.send(b'CONNECT {"verbose":false,"headers":true,"no_responders":true,"protocol":1}')

    def send(self, line: bytes) -> None:
        self.socket.sendall(line + b"\r\n")

    def request(self, subject: str, body: object) -> None:
        """A request of the JetStream API; waits for the answer."""
        text = json.dumps(body).encode()
        self.send(b"SUB api 1\r\nUNSUB 1 1\r\nPUB %s api %d" % (subject.encode(), len(text)))
        self.send(text)
        while not self.reader.readline().startswith(b"MSG api"):
            continue
        assert b"error" not in self.reader.readline()

    def rest(self) -> list[bytes]:
        """All lines until the server ends the connection."""
        lines = []
        try:
            while line := self.reader.readline():
                lines.append(line)
        except ConnectionError:
            pass
        self.reader.close()
        self.socket.close()
        return lines


def test_clients_keep_their_failover_targets(kind: str) -> None:
    ports = free_port(), free_port()
    with ExitStack() as stack:
        servers = [
            stack.enter_context(
                Server(Recipe(kind, COMMANDS[kind], CLUSTER.format(own=own, other=other)))
            )
            for own, other in (ports, ports[::-1])
        ]
        wire = Wire(servers[0].port)
        wire.send(b"PING")
        while len(wire.info.get("connect_urls", ())) < 2:
            line = wire.reader.readline()
            if line.startswith(b"INFO"):
                wire.info = json.loads(line[5:])
        servers[0].signal(signal.SIGTERM)
        told = [json.loads(line[5:]) for line in wire.rest() if line.startswith(b"INFO")]
        assert all(len(info["connect_urls"]) == 2 for info in told)


def test_a_pull_is_never_told_that_nobody_is_there(kind: str) -> None:
    with Server(Recipe(kind, COMMANDS[kind])) as server:
        wire = Wire(server.port)
        wire.request("$JS.API.STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
        config = {"durable_name": "C", "ack_policy": "explicit", "max_waiting": 100_000}
        body = {"stream_name": "S", "config": config}
        wire.request("$JS.API.CONSUMER.DURABLE.CREATE.S.C", body)
        wire.send(b"SUB in 2")
        pull = b'PUB $JS.API.CONSUMER.MSG.NEXT.S.C in 22\r\n{"expires":5000000000}'

        def ask() -> None:
            try:
                while True:
                    wire.send(pull)
            except OSError:
                return

        asking = threading.Thread(target=ask)
        for _ in range(10):
            wire.send(pull)
        wire.send(b"PING")
        while not wire.reader.readline().startswith(b"PONG"):
            continue
        asking.start()
        server.signal(signal.SIGTERM)
        lines = wire.rest()
        asking.join()
        statuses = {line.strip() for line in lines if line.startswith(b"NATS/1.0")}
        # The real server stops its streams before it stops to hear clients.
        late = {b"NATS/1.0 503"} if kind == "nats-server" else set()
        assert statuses - late == {b"NATS/1.0 409 Server Shutdown"}
