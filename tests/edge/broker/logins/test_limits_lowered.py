"""Limits of accounts at their edge, beyond it, and lowered while in use: by token and by
configuration, for clients of every listener and leaf links, as nats-server does it."""

import json
import select
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bench.servers import HOST, Recipe, Server, free_port
from tests.certificates import certificate
from tests.doors import DOORS, Through, settings
from tests.operator_realm import SERVERS, TIMEOUT, Raw, Realm, recipe
from tests.waiting import until_seen

NAMES = {
    "conn": "max_connections",
    "leaf": "max_leafnodes",
    "subs": "max_subscriptions",
    "payload": "max_payload",
}
"""Limits of tokens, and what configurations call them."""


class ByToken:
    """Account A has its limit by a token that is pushed."""

    def __init__(self, name: str, limit: str, value: int, path: Path, door: str) -> None:
        self.limit = limit
        self.realm = Realm()
        self.door, self.leaf, self.port = door, free_port(), free_port()
        setattr(self.realm.bodies["A"].limits, limit, value)
        extra = f"leafnodes {{ listen: '{HOST}:{self.leaf}' }}\n"
        extra += settings(door, self.port, certificate(path))
        self.recipe = recipe(name, self.realm.config(extra))

    def client(self, port: int) -> tuple[Raw, list[str]]:
        wire = self._open(port)
        return wire, wire.login(self.realm.user())

    def _open(self, port: int) -> Raw:
        return Through(self.door, self.port if self.door == "websocket" else port)

    def link(self, spoke: str) -> tuple[Raw, list[str]]:
        wire = Raw(self.leaf)
        return wire, wire.link(self.realm.user(), name=spoke)

    def lower(self, server: Server, value: int) -> None:
        setattr(self.realm.bodies["A"].limits, self.limit, value)
        subject = f"$SYS.REQ.ACCOUNT.{self.realm.account('A')}.CLAIMS.UPDATE"
        with self._open(server.port) as system:
            assert system.login(self.realm.user("S")) == []
            answer = system.request(subject, self.realm.token("A").encode())
            assert answer["data"]["code"] == 200, answer


class ByConfiguration:
    """Account A has its limit by a configuration that is loaded again."""

    def __init__(self, name: str, limit: str, value: int, path: Path, door: str) -> None:
        self.limit = limit
        self.path = path / f"{name}.conf"
        self.door, self.leaf, self.port = door, free_port(), free_port()
        self._extra = settings(door, self.port, certificate(path))
        self._write(value)
        command = (*recipe(name, "").command, "-c", str(self.path), "-a", HOST, "-p", "{port}")
        self.recipe = Recipe(name, command)

    def _write(self, value: int) -> None:
        self.path.write_text(
            "accounts { A { users: [{user: a, password: a}], "
            f"limits {{ {NAMES[self.limit]}: {value} }} }} }}\n"
            f"leafnodes {{ listen: '{HOST}:{self.leaf}' }}\n{self._extra}"
        )

    def client(self, port: int) -> tuple[Raw, list[str]]:
        wire = Through(self.door, self.port if self.door == "websocket" else port)
        return wire, wire.login(user="a", **{"pass": "a"})

    def link(self, spoke: str) -> tuple[Raw, list[str]]:
        wire = Raw(self.leaf)
        told = {"name": spoke, "version": "2.11.0", "user": "a", "pass": "a"}
        return wire, wire.send(f"CONNECT {json.dumps(told)}\r\n")

    def lower(self, server: Server, value: int) -> None:
        self._write(value)
        server.signal(signal.SIGHUP)


def errors(lines: list[str]) -> list[str]:
    return [line for line in lines if line.startswith("-ERR")]


@contextmanager
def opened(found: tuple[Raw, list[str]]) -> Iterator[tuple[Raw, list[str]]]:
    with found[0]:
        yield found[0], errors(found[1])


def one_that_ends(wires: list[Raw]) -> Raw:
    """The first one that is told an error."""
    while True:
        ready, _, _ = select.select([wire.socket for wire in wires], [], [], TIMEOUT)
        assert ready, "none ends"
        for wire in wires:
            if wire.socket in ready:
                if wire.socket.recv(4, socket.MSG_PEEK) in (b"-ERR", b""):
                    return wire
                wire.send()


def of_connections(by: Any, server: Server) -> list[Any]:
    with (
        opened(by.client(server.port)) as (one, first),
        opened(by.client(server.port)) as (two, at),
    ):
        with opened(by.client(server.port)) as (_, over):
            pass
        by.lower(server, 1)
        # Which one ends is a matter of chance to nats-server when both came at once.
        ended = errors(one_that_ends([one, two]).rest())
        with opened(by.client(server.port)) as (_, later):
            return [first + at, over, ended, later]


def of_links(by: Any, server: Server) -> list[Any]:
    with opened(by.link("one")) as (first, at):
        with opened(by.link("two")) as (_, over):
            pass
        by.lower(server, 0)
        if server.recipe.name == "headwater":
            # nats-server lets it stay; here limits are for links as they are for clients.
            assert errors(first.rest()) == over
        first.close()

        def refused() -> list[str]:
            with opened(by.link("three")) as (_, found):
                return found

        return [at, over, until_seen(refused, "the lower limit is in force")]


def of_subscriptions(by: Any, server: Server) -> list[Any]:
    with opened(by.client(server.port)) as (wire, _):
        at = wire.send("SUB a 1\r\nSUB b 2\r\n")
        over = wire.send("SUB c 3\r\n")
        by.lower(server, 1)
        return [at, over, errors(wire.rest())]


def of_payload(by: Any, server: Server) -> list[Any]:
    with opened(by.client(server.port)) as (wire, _):
        at = wire.send("PUB a 8\r\n12345678\r\n")
        with opened(by.client(server.port)) as (other, _):
            over = other.send("PUB a 9\r\n123456789\r\n")
        by.lower(server, 4)

        def refused() -> bool:
            with opened(by.client(server.port)) as (fresh, _):
                return bool(fresh.send("PUB a 8\r\n12345678\r\n"))

        until_seen(refused, "the lower limit is in force")
        return [at, over, wire.send("PUB a 4\r\n1234\r\n"), wire.send("PUB a 8\r\n12345678\r\n")]


def of_links_payload(by: Any, server: Server) -> list[Any]:
    with opened(by.link("one")) as (link, _):
        at = errors(link.send("LMSG a 8\r\n12345678\r\n"))
        over = errors(link.send("LMSG a 9\r\n123456789\r\n"))
        by.lower(server, 4)

        def refused() -> list[str]:
            with opened(by.link("two")) as (again, _):
                return errors(again.send("LMSG a 8\r\n12345678\r\n"))

        return [at, over, until_seen(refused, "the lower limit is in force")]


CLIENTS = {
    "conn": (2, of_connections),
    "subs": (2, of_subscriptions),
    "payload": (8, of_payload),
}
LINKS = {
    "leaf": (1, of_links),
    "payload": (8, of_links_payload),
}
ROWS = [
    *((limit, door, *row) for limit, row in CLIENTS.items() for door in DOORS),
    *((limit, "client", *row) for limit, row in LINKS.items()),
]


@pytest.mark.parametrize("by", [ByToken, ByConfiguration])
@pytest.mark.parametrize(("limit", "door", "value", "observe"), ROWS)
def test_at_beyond_and_lowered(
    by: Any, limit: str, door: str, value: int, observe: Any, tmp_path: Path
) -> None:
    found = []
    for name in SERVERS:
        made = by(name, limit, value, tmp_path, door)
        with Server(made.recipe) as server:
            found.append(observe(made, server))
    mine, theirs = found
    assert mine == theirs
    assert mine[0] == [] and mine[-1]
