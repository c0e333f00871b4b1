"""Wildcards at the ends of rules and of subscriptions, in queue groups, too: what nats-server
admits to clients and to leaf links, and of what it delivers there, what a rule allows."""

import json
import random
from typing import Any

import pytest

from bench.servers import HOST, Server, free_port
from headwater.security.subjects import covers
from tests.operator_realm import SERVERS, Raw, recipe

USERS = 30
QUEUES = ["q1", "q2", "q1.x"]
QUEUED_RULES = ["a.* q1", "a.b q1.*", "*.b q2", "a.> q1", "b.* >"]
ENDS = ["a.>", "a.*", "*.>", "*.*", "b.>", "a.b", "a.*.>", "a.b.>", ">", "_INBOX.>", "_INBOX.*"]
PUBLISHED = ["a.b", "a.c", "a.b.c", "b.a", "b.a.c", "_INBOX.x", "_INBOX.x.y", "c"]
LAST = "last"
"""Published after them to whom may have it: everybody."""

Got = dict[tuple[int, str, str], list[str]]
"""By user, pattern and queue: `-ERR` or `ended`, or the subjects that reached the subscription."""


def some_rules(chance: random.Random, queues: list[str]) -> dict[str, list[str]]:
    """What one may subscribe to; wildcards of all kinds stand over each other."""
    found = {"allow": [*chance.sample(ENDS[:9] + queues, 2), "_INBOX.*", LAST]}
    if chance.random() < 0.5:
        found["deny"] = chance.sample([*ENDS[3:8], *queues], 2)
        found["deny"] = [rule for rule in found["deny"] if not rule.startswith(("*.>", ">"))]
    return found


def configuration(rules: list[dict[str, list[str]]], leaf: int) -> str:
    users: list[dict[str, Any]] = [
        {"user": f"u{i}", "password": "p", "permissions": {"subscribe": each}}
        for i, each in enumerate(rules)
    ]
    users.append({"user": "admin", "password": "p"})
    return (
        f"authorization {{ users: {json.dumps(users)} }}\nleafnodes {{ listen: '{HOST}:{leaf}' }}\n"
    )


def subjects(wire: Raw, admin: Raw, verb: str) -> list[str]:
    """What comes of all that `admin` publishes now; a link ends when its interest is refused."""
    assert admin.send("".join(f"PUB {name} 0\r\n\r\n" for name in [*PUBLISHED, LAST])) == []
    found = []
    while True:
        line = wire.file.readline().decode()
        if not line:
            return ["ended"]
        words = line.split()
        if words and words[0] == verb:
            if words[1] == LAST:
                return found
            found.append(words[1])


def clients(server: Server, leaf: int, chance: random.Random) -> Got:
    found: Got = {}
    with Raw(server.port) as admin:
        admin.login(user="admin", **{"pass": "p"})
        for i in range(USERS):
            for pattern in ENDS:
                for queue in ("", chance.choice(QUEUES)):
                    # One connection each: nats-server filters all subscriptions of one, or none.
                    with Raw(server.port) as wire:
                        assert wire.login(user=f"u{i}", **{"pass": "p"}) == []
                        assert wire.send(f"SUB {LAST} 1\r\n") == []
                        refused = [line[:4] for line in wire.send(f"SUB {pattern} {queue} 2\r\n")]
                        found[i, pattern, queue] = refused + subjects(wire, admin, "MSG")
                        # The next member of the group is not to find this one.
                        wire.send("UNSUB 2\r\n")
    return found


def links(server: Server, leaf: int, chance: random.Random) -> Got:
    found: Got = {}
    with Raw(server.port) as admin:
        admin.login(user="admin", **{"pass": "p"})
        for i in range(USERS):
            for pattern in ENDS:
                for queue in ("", chance.choice(QUEUES)):
                    with Raw(leaf) as wire:
                        told = {"name": f"spoke{len(found)}", "version": "2.11.0", "user": f"u{i}"}
                        wire.send(f"CONNECT {json.dumps({**told, 'pass': 'p'})}\r\n")
                        weight = " 1" if queue else ""
                        wire.send(f"LS+ {LAST}\r\nLS+ {pattern} {queue}{weight}\r\n")
                        found[i, pattern, queue] = subjects(wire, admin, "LMSG")
                        wire.send(f"LS- {pattern} {queue}\r\n")
    return found


def permitted(allow: list[str], name: str, queue: str) -> bool:
    """Whether a rule of these allows a subject, in a queue group or without one."""
    for text in allow:
        pattern, _, group = text.partition(" ")
        if covers(pattern.split("."), name.split(".")) and (
            not group or (queue and covers(group.split("."), queue.split(".")))
        ):
            return True
    return False


@pytest.mark.parametrize("over", [clients, links])
def test_what_is_admitted_and_what_is_delivered(over: Any) -> None:
    """In a place where nats-server delivers what no rule allows, that is all that is kept back: a
    `>` counts as a token there, which a `*` allows."""
    chance = random.Random("ends")
    rules = [some_rules(chance, QUEUED_RULES if over is clients else []) for _ in range(USERS)]
    leaf = free_port()
    found = []
    for name in SERVERS:
        with Server(recipe(name, configuration(rules, leaf))) as server:
            found.append(over(server, leaf, random.Random("queues")))
    mine, real = found
    narrowed = 0
    for key, theirs in real.items():
        allow = rules[key[0]]["allow"]
        allowed = [
            each for each in theirs if each in ("-ERR", "ended") or permitted(allow, each, key[2])
        ]
        assert mine[key] == allowed, (rules[key[0]], key, mine[key], theirs)
        narrowed += allowed != theirs
    assert bool(narrowed) == (over is clients)
