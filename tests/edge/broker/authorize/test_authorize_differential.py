"""Thousands of decisions on made-up users and subjects: those of nats-server."""

import asyncio
import json
import os
import random
from typing import Any

import pytest

from bench.servers import Recipe, Server, program
from tests.dial import dial

SEEDS = range(1, 1 + int(os.environ.get("HEADWATER_EXAMPLES", "2")))
"""Configurations, each with USERS * DECISIONS operations and what is delivered; more by
`HEADWATER_EXAMPLES=20 make test ARGS=tests/edge/broker/authorize`."""
USERS = 30
DECISIONS = 60
WORDS = ["a", "b", "$JS", "API", "STREAM", "hub", "_INBOX", "$KV"]
QUEUES = ["q1", "q2", "q1.x"]
FIXED = [
    "$JS.API.STREAM.INFO.S",
    "$JS.hub.API.STREAM.INFO.S",
    "$JS.hub.API.STREAM.DELETE.S",
    "$JS.API.STREAM.DELETE.S",
    "$JS.hub.API.$KV.b.k",
    "$KV.b.k",
    "$JS.ACK.S.C.1.1.1.1.0",
    "_R_.x.y",
]
RULES = [
    "$JS.API.STREAM.DELETE.>",
    "$JS.API.>",
    "$JS.hub.API.>",
    "$KV.>",
    "$KV.b.*",
    "a.>",
    "*.b",
    ">",
    "_INBOX.>",
    "$JS.ACK.>",
]


def literal(chance: random.Random) -> str:
    if chance.random() < 0.4:
        return chance.choice(FIXED)
    return ".".join(chance.choices(WORDS, k=chance.randint(1, 4)))


def pattern(chance: random.Random) -> str:
    if chance.random() < 0.5:
        return chance.choice(RULES)
    tokens = [*chance.choices([*WORDS, "*", "*"], k=chance.randint(1, 4))]
    return ".".join([*tokens, ">"] if chance.random() < 0.3 else tokens)


def rule(chance: random.Random, queues: bool) -> Any:
    """Permissions of one direction, in one of the forms that the configuration has."""

    def some() -> list[str]:
        found = [pattern(chance) for _ in range(chance.randint(1, 4))]
        return [
            f"{p} {chance.choice(QUEUES)}" if queues and chance.random() < 0.2 else p for p in found
        ]

    form = chance.randrange(4)
    if form == 0:
        return some()
    found = {}
    if form in (1, 3):
        found["allow"] = some()
    if form in (2, 3):
        found["deny"] = some()
    return found


def configuration(chance: random.Random) -> str:
    users = []
    for i in range(USERS):
        permissions: dict[str, Any] = {}
        if chance.random() < 0.8:
            permissions["publish"] = rule(chance, queues=False)
        if chance.random() < 0.8:
            permissions["subscribe"] = rule(chance, queues=True)
        if chance.random() < 0.15:
            permissions["allow_responses"] = True
        users.append({"user": f"u{i}", "password": "p", "permissions": permissions})
    users.append({"user": "admin", "password": "p"})
    accounts: dict[str, Any] = {"A": {"jetstream": "enabled", "users": users}}
    if chance.random() < 0.7:
        default = {"publish": rule(chance, queues=False), "subscribe": rule(chance, queues=True)}
        accounts["A"]["default_permissions"] = default
        users[-1]["permissions"] = {"publish": ">", "subscribe": ">"}
    return f"jetstream {{ store_dir: store, domain: hub }}\naccounts: {json.dumps(accounts)}\n"


def operations(chance: random.Random) -> list[str]:
    """Frames, each of which is allowed or refused."""
    lines = []
    for sid in range(DECISIONS):
        kind = chance.random()
        if kind < 0.5:
            lines.append(f"PUB {literal(chance)} 0\r\n\r\n")
        elif kind < 0.6:
            lines.append(f"PUB {literal(chance)} {literal(chance)} 0\r\n\r\n")
        elif kind < 0.8:
            lines.append(f"SUB {pattern(chance)} {sid}\r\nUNSUB {sid}\r\n")
        else:
            lines.append(f"SUB {pattern(chance)} {chance.choice(QUEUES)} {sid}\r\nUNSUB {sid}\r\n")
    return lines


class Wire:
    """A user's connection."""

    def __init__(self, port: int, name: str) -> None:
        self.socket = dial(port, 5)
        self.reader = self.socket.makefile("r", newline="\r\n")
        options = {"verbose": False, "user": name, "pass": "p"}
        self.ask(f"CONNECT {json.dumps(options)}\r\n")

    def ask(self, frames: str) -> list[str]:
        """The lines that answer, but for the ones that every connection gets."""
        self.socket.sendall(f"{frames}PING\r\n".encode())
        found = []
        for line in self.reader:
            if line == "PONG\r\n":
                return found
            if not line.startswith(("INFO ", "PING")):
                found.append(line.strip())
        raise AssertionError(f"the connection ended after {found}")

    def close(self) -> None:
        self.reader.close()
        self.socket.close()


def decisions(port: int, seed: int) -> dict[str, list[str]]:
    """What each user's frames were answered, one after the other."""
    chance = random.Random(seed)
    found = {}
    for i in range(USERS):
        wire = Wire(port, f"u{i}")
        for line in operations(chance):
            errors = [text for text in wire.ask(line) if text.startswith("-ERR")]
            found[f"u{i}: {line.strip()}"] = errors
        wire.close()
    return found


def deliveries(port: int, seed: int) -> dict[str, list[str]]:
    """Which subjects reach the wildcard subscriptions that each user may have."""
    chance = random.Random(seed)
    wires = {}
    for i in range(USERS):
        wires[i] = Wire(port, f"u{i}")
        wanted = [pattern(chance).replace(">", "*") for _ in range(3)]
        wires[i].ask("".join(f"SUB {each} {sid}\r\n" for sid, each in enumerate(wanted)))
    admin = Wire(port, "admin")
    for _ in range(60):
        admin.ask(f"PUB {literal(chance)} 0\r\n\r\n")
    found = {f"u{i}": sorted(t for t in wire.ask("") if t) for i, wire in wires.items()}
    for wire in (*wires.values(), admin):
        wire.close()
    return found


@pytest.mark.parametrize("seed", SEEDS)
async def test_the_same_decisions(seed: int) -> None:
    config = configuration(random.Random(seed))
    ours = Recipe("headwater", (program("headwater"), "serve"), config)
    theirs = Recipe("nats-server", (program("nats-server"),), config)
    with Server(ours) as one, Server(theirs) as other:
        for play in (decisions, deliveries):
            mine, real = await asyncio.gather(
                *(asyncio.to_thread(play, server.port, seed) for server in (one, other))
            )
            different = [f"{k}: {mine[k]} | {real[k]}" for k in real if mine[k] != real[k]]
            assert not different, "\n".join(different[:20])
