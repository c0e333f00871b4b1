"""Services that are measured where requester and responder are on two servers, of both kinds."""

import json
import select
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from bench.servers import Server, free_port
from tests.edge.broker.imports.test_service_latency import (
    CONFIG,
    DETAILS,
    HEAD,
    Client,
    event,
    serve,
)
from tests.operator_realm import SERVERS, recipe
from tests.waiting import stand_by, until_seen

PAIRS = [(first, second) for first in SERVERS for second in SERVERS]
SYSTEM = "  SYS { users: [{user: s, password: p}] }\n}\nsystem_account: SYS\n"
ACCOUNTS = CONFIG.rstrip().removesuffix("}") + SYSTEM


@contextmanager
def cluster(pair: tuple[str, str]) -> Iterator[tuple[Server, Server]]:
    """Two servers with a route between them."""
    ports = free_port(), free_port()
    starts = [
        recipe(
            name,
            f'{ACCOUNTS}server_name: n{at}\ncluster {{ name: C, listen: "127.0.0.1:{ports[at]}", '
            f'routes: ["nats://127.0.0.1:{ports[1 - at]}"] }}\n',
        )
        for at, name in enumerate(pair)
    ]
    with Server(starts[0]) as first, Server(starts[1]) as second:
        yield first, second


@contextmanager
def leaf(pair: tuple[str, str], linked: str) -> Iterator[tuple[Server, Server]]:
    """A hub and its leaf, linked in accounts by the users `linked`."""
    port = free_port()
    names = {"b": "B", "s": "SYS"}
    remotes = [
        f'{{ url: "nats://{user}:p@127.0.0.1:{port}", account: {names[user]} }}' for user in linked
    ]
    hub = recipe(
        pair[0], f'{ACCOUNTS}server_name: n0\nleafnodes {{ listen: "127.0.0.1:{port}" }}\n'
    )
    spoke = recipe(
        pair[1], f"{ACCOUNTS}server_name: n1\nleafnodes {{ remotes: [{', '.join(remotes)}] }}\n"
    )
    with Server(hub) as first, Server(spoke) as second:
        yield first, second


def ask_until_answered(asker: Client, service: Client, subject: str = "svc") -> None:
    """Ask until a request gets through to the other server, and answer it."""

    def served() -> bool:
        asker.socket.sendall(f"PUB {subject} back 2\r\nhi\r\n".encode())
        return bool(select.select([service.socket], [], [], 0.5)[0])

    until_seen(served, "the request arrives")
    stand_by(0.05)
    serve(service)
    assert asker.message()[1] == b"ok"


def answered(ear: Client) -> dict[str, Any]:
    """The event of the request that was answered."""
    while (found := event(ear))["status"] != 200:
        assert found["status"] == 503
    return found


@pytest.mark.parametrize("where", [0, 1])
@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_over_a_route_both_halves_make_one_event(pair: tuple[str, str], where: int) -> None:
    """Fields are the same whoever has which end, and wherever one listens."""
    with cluster(pair) as servers:
        asker, service = Client(servers[0].port, "a", "asker"), Client(servers[1].port, "b", "far")
        ear = Client(servers[where].port, "b", "ear")
        ear.say("SUB lat.> 9\r\n")
        service.say("SUB svc 1\r\n")
        asker.say("SUB back 1\r\n")
        begin = time.monotonic_ns()
        ask_until_answered(asker, service)
        found = answered(ear)
        whole = time.monotonic_ns() - begin
        assert found.keys() == HEAD | {"requestor", "responder"}
        assert found["requestor"].keys() == {"acc", "rtt"} and found["requestor"]["acc"] == "A"
        responder = found["responder"]
        assert responder.keys() == DETAILS | {"cluster"}
        assert (responder["server"], responder["name"], responder["acc"]) == ("n1", "far", "B")
        # Of the whole, what is not the service's is the clients' and the servers'.
        assert 45_000_000 <= found["service"] + responder["rtt"] <= whole
        parts = found["service"] + found["system"] + responder["rtt"] + found["requestor"]["rtt"]
        assert found["service"] <= found["total"] <= parts
        for client in (asker, service, ear):
            client.close()


@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_headers_ask_for_it_over_a_route(pair: tuple[str, str]) -> None:
    with cluster(pair) as servers:
        asker, service = Client(servers[0].port, "a", "asker"), Client(servers[1].port, "b", "far")
        service.say("SUB traced 1\r\nSUB lat.> 9\r\n")
        asker.say("SUB back 1\r\n")
        ask_until_answered(asker, service, "traced")
        parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
        block = f"NATS/1.0\r\nTraceparent: {parent}\r\n\r\n"
        asker.say(f"HPUB traced back {len(block)} {len(block) + 2}\r\n{block}hi\r\n")
        while True:
            words, _ = service.message()
            service.socket.sendall(f"PUB {words[3].decode()} 2\r\nok\r\n".encode())
            if words[3].endswith(b".T"):
                break
        while not (told := service.message())[0][1].startswith(b"lat."):
            pass
        found = json.loads(told[1])
        assert found["header"] == {"Traceparent": [parent]}
        assert found["responder"]["name"] == "far"
        for client in (asker, service):
            client.close()


def asked_over_a_leaf(pair: tuple[str, str], accounts: str) -> dict[str, Any]:
    """The event that the hub tells of a request whose service is behind a leaf link."""
    with leaf(pair, accounts) as servers:
        asker, service = Client(servers[0].port, "a", "asker"), Client(servers[1].port, "b", "far")
        ear = Client(servers[0].port, "b", "ear")
        ear.say("SUB lat.> 9\r\n")
        service.say("SUB svc 1\r\n")
        asker.say("SUB back 1\r\n")
        ask_until_answered(asker, service)
        found = answered(ear)
        for client in (asker, service, ear):
            client.close()
    return found


@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_over_a_leaf_link_with_the_system_account(pair: tuple[str, str]) -> None:
    """Where the system account is linked, too, the leaf's server tells its half."""
    found = asked_over_a_leaf(pair, "bs")
    assert found.keys() == HEAD | {"requestor", "responder"}
    assert found["responder"].keys() - {"cluster"} == DETAILS
    assert (found["responder"]["server"], found["responder"]["name"]) == ("n1", "far")


@pytest.mark.parametrize("spoke", SERVERS)
def test_over_a_leaf_link_alone(spoke: str) -> None:
    """nats-server, as the hub, waits for the other half for ever, and tells nothing."""
    found = asked_over_a_leaf(("headwater", spoke), "b")
    assert found["responder"] == {
        "id": found["responder"]["id"], "acc": "B", "server": "n0", "kind": "Leafnode",
    }
    assert found["service"] >= 45_000_000


def test_a_half_that_is_malformed_counts_for_nothing() -> None:
    with leaf(("headwater", "headwater"), "b") as servers:
        asker, service = Client(servers[0].port, "a", "asker"), Client(servers[1].port, "b", "far")
        ear, system = Client(servers[0].port, "b", "ear"), Client(servers[0].port, "s", "system")
        ear.say("SUB lat.> 9\r\n")
        service.say("SUB svc 1\r\n")
        asker.say("SUB back 1\r\n")
        asking = partial(asker.socket.sendall, b"PUB svc back 2\r\nhi\r\n")
        until_seen(lambda: asking() or select.select([service.socket], [], [], 0.5)[0])
        reply = service.message()[0][3].decode()
        half = {"responder": {"rtt": 1}, "service": 1}
        told = {"account": "B", "req_id": reply, "m2": half}
        for body in (
            b"", b"[1]", b"[" * 20_000, {}, told | {"account": "A"}, told | {"m2": [1]},
            told | {"m2": half | {"service": -1}}, told | {"m2": half | {"service": 2**80}},
            told | {"m2": half | {"responder": {"rtt": "x"}}}, told | {"req_id": 7},
            told | {"m2": half | {"responder": []}}, told | {"m2": half | {"service": True}},
        ):
            payload = body if isinstance(body, bytes) else json.dumps(body).encode()
            head = f"PUB $SYS.LATENCY.M2.{reply.split('.')[-2]} {len(payload)}\r\n"
            system.say(head + payload.decode() + "\r\n")
        service.socket.sendall(f"PUB {reply} 2\r\nok\r\n".encode())
        found = answered(ear)
        assert found["responder"]["kind"] == "Leafnode"
        for client in (asker, service, ear, system):
            client.close()
