"""Metrics of exported services: the same events from both servers."""

import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from bench.servers import Recipe, Server, program
from headwater.edge.broker.imports.service_latency import asked_by
from headwater.security.claims import Export, Import, ServiceLatency
from tests.operator_realm import SERVERS, Raw, Realm, recipe
from tests.waiting import stand_by

CONFIG = """
accounts {
  A { users: [{user: a, password: p}]
      imports: [{service: {account: B, subject: "svc"}},
                {service: {account: B, subject: "shared"}, share: true},
                {service: {account: B, subject: "quick"}},
                {service: {account: B, subject: "traced"}}] }
  B { users: [{user: b, password: p}]
      exports: [
        {service: "svc", latency: {sampling: 100%, subject: "lat.svc"}}
        {service: "shared", latency: "lat.shared"}
        {service: "quick", threshold: "200ms", latency: {sampling: 100, subject: "lat.quick"}}
        {service: "traced", latency: {sampling: headers, subject: "lat.traced"}}
      ] }
}
"""


@pytest.fixture(scope="module", params=SERVERS)
def port(request: pytest.FixtureRequest) -> Iterator[int]:
    command = (program(request.param),) + (("serve",) if request.param == "headwater" else ())
    with Server(Recipe(request.param, command, CONFIG)) as server:
        yield server.port


class Client:
    """A raw client, and the messages that came to it."""

    def __init__(self, port: int, user: str, name: str) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), 5)
        self.file = self.socket.makefile("rb")
        self.file.readline()
        options = {
            "verbose": False,
            "user": user,
            "pass": "p",
            "name": name,
            "headers": True,
            "lang": "test",
            "version": "1",
        }
        self.say(f"CONNECT {json.dumps(options)}\r\n")

    def say(self, text: str) -> None:
        """Send, and wait until the server has read it."""
        self.socket.sendall(text.encode() + b"PING\r\n")
        while (line := self.file.readline()) != b"PONG\r\n":
            assert not line.startswith(b"-ERR") and line, line
            if b"MSG" in line[:5]:
                self.file.read(int(line.split()[-1]) + 2)

    def message(self) -> tuple[list[bytes], bytes]:
        """The next message."""
        return message(self)

    def close(self) -> None:
        self.file.close()
        self.socket.close()


def message(client: Any) -> tuple[list[bytes], bytes]:
    """The next message of a raw client: its line's words, headers included in the body."""
    while not (line := client.file.readline()).startswith((b"MSG", b"HMSG")):
        assert line
    words = line.split()
    return words, client.file.read(int(words[-1]) + 2)[:-2]


@pytest.fixture
def trio(port: int) -> Iterator[tuple[Client, Client, Client]]:
    """Who asks, who serves, and who hears of it."""
    made = Client(port, "a", "asker"), Client(port, "b", "service"), Client(port, "b", "ear")
    made[2].say("SUB lat.> 9\r\n")
    yield made
    for client in made:
        client.close()


def event(ear: Client) -> dict[str, Any]:
    _, body = ear.message()
    found: dict[str, Any] = json.loads(body)
    return found


def serve(service: Client, payload: bytes = b"ok") -> None:
    """Answer one request."""
    words, _ = service.message()
    reply = words[3].decode()
    service.socket.sendall(f"PUB {reply} {len(payload)}\r\n".encode() + payload + b"\r\n")


HEAD = {"type", "id", "timestamp", "status", "start", "service", "system", "total"}
DETAILS = {
    "start",
    "host",
    "id",
    "acc",
    "user",
    "name",
    "lang",
    "ver",
    "rtt",
    "server",
    "kind",
    "client_type",
}


def test_an_answer_is_measured(trio: tuple[Client, Client, Client]) -> None:
    asker, service, ear = trio
    service.say("SUB svc 1\r\n")
    asker.say("SUB back 1\r\n")
    asker.socket.sendall(b"PUB svc back 2\r\nhi\r\n")
    stand_by(0.05)
    serve(service)
    found = event(ear)
    assert found.keys() == HEAD | {"requestor", "responder"}
    assert found["type"] == "io.nats.server.metric.v1.service_latency"
    assert found["status"] == 200
    assert found["requestor"].keys() == {"acc", "rtt"} and found["requestor"]["acc"] == "A"
    assert found["responder"].keys() == DETAILS
    assert found["responder"]["name"] == "service" and found["responder"]["acc"] == "B"
    # Round trips are taken off, since the service has no part in them.
    assert 50_000_000 <= found["service"] + found["responder"]["rtt"] < 5_000_000_000
    assert found["total"] >= found["service"]
    assert asker.message()[1] == b"ok"


def test_who_shares_is_told_of_in_full(trio: tuple[Client, Client, Client]) -> None:
    asker, service, ear = trio
    service.say("SUB shared 1\r\n")
    asker.say("SUB back 1\r\n")
    asker.socket.sendall(b"PUB shared back 2\r\nhi\r\n")
    serve(service)
    found = event(ear)
    assert found["requestor"].keys() == DETAILS and found["requestor"]["name"] == "asker"


def test_what_went_wrong_is_told(trio: tuple[Client, Client, Client]) -> None:
    asker, service, ear = trio
    asker.say("SUB back 1\r\nPUB svc back 2\r\nhi\r\n")
    found = event(ear)
    assert (found["status"], found["description"]) == (503, "Service Unavailable")
    assert found.keys() == HEAD | {"description", "requestor"}
    assert found["service"] == found["system"] == found["total"] == 0
    service.say("SUB svc 1\r\nSUB quick 2\r\n")
    asker.say("PUB svc 2\r\nhi\r\n")
    found = event(ear)
    assert (found["status"], found["description"]) == (400, "Bad Request")
    asker.say("PUB quick back 2\r\nhi\r\n")
    found = event(ear)
    assert (found["status"], found["description"]) == (504, "Service Timeout")
    asker.say("SUB other 7\r\nPUB svc other 2\r\nhi\r\n")
    asker.say("UNSUB 7\r\n")
    found = event(ear)
    assert (found["status"], found["description"]) == (408, "Request Timeout")


def test_headers_ask_for_a_measurement(trio: tuple[Client, Client, Client]) -> None:
    asker, service, ear = trio
    service.say("SUB traced 1\r\n")
    asker.say("SUB back 1\r\n")
    parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0"
    for line in ("Other: 1", f"Traceparent: {parent}0", f"Traceparent: {parent}1"):
        block = f"NATS/1.0\r\n{line}\r\n\r\n"
        size = len(block)
        asker.say(f"HPUB traced back {size} {size + 2}\r\n{block}hi\r\n")
        serve(service)
    found = event(ear)
    assert found["header"] == {"Traceparent": [f"{parent}1"]}
    service.say("")
    ear.socket.setblocking(False)
    assert not ear.file.peek(1)


@pytest.mark.parametrize(
    ("headers", "found"),
    [
        ({"uber-trace-id": ["a:b:c:1"], "Uberctx-X": ["1"]}, {"Uber-Trace-Id", "Uberctx-X"}),
        ({"Uber-Trace-Id": ["a:b:c:2"]}, None),
        ({"X-B3-Sampled": ["1"]}, {"X-B3-Sampled"}),
        ({"X-B3-Sampled": ["0"], "X-B3-TraceId": ["1"]}, None),
        ({"X-B3-TraceId": ["1"], "X-B3-SpanId": ["2"]}, {"X-B3-Traceid", "X-B3-Spanid"}),
        ({"b3": ["a-b-1-c"]}, {"B3"}),
        ({"b3": ["a-b-0-c"]}, None),
        ({"b3": ["0"]}, None),
        ({"traceparent": ["0-1-2-01"], "tracestate": ["x"]}, {"Traceparent", "Tracestate"}),
        ({"traceparent": ["0-1-2-00"]}, None),
        ({}, None),
    ],
)
def test_which_headers_count(headers: dict[str, list[str]], found: set[str] | None) -> None:
    given = asked_by(headers)
    assert (None if given is None else set(given)) == found


def test_a_token_asks_for_it_too() -> None:
    """nats-server 2.15.1 measures nothing of accounts whose tokens stand in its configuration."""
    realm = Realm()
    realm.bodies["B"].exports = [
        Export(
            name="svc",
            subject="svc",
            type="service",
            service_latency=ServiceLatency(sampling=100, results="lat.svc"),
        )
    ]
    realm.bodies["A"].imports = [
        Import(name="svc", subject="svc", account=realm.account("B"), type="service")
    ]
    with Server(recipe("headwater", realm.config())) as server:
        asker, service = Raw(server.port), Raw(server.port)
        assert service.login(realm.user("B")) == [] == asker.login(realm.user("A"))
        service.send("SUB svc 1\r\nSUB lat.svc 2\r\n")
        asker.send("SUB back 1\r\nPUB svc back 2\r\nhi\r\n")
        words, _ = message(service)
        service.socket.sendall(f"PUB {words[3].decode()} 2\r\nok\r\n".encode())
        words, body = message(service)
        assert words[1] == b"lat.svc"
        assert json.loads(body)["status"] == 200
        asker.close()
        service.close()
