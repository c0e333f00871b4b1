"""Orders that another node leads, answer by answer beside four nats-servers, and who leads then."""

import asyncio
import contextlib
import json
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import nats
from nats.aio.client import Client

from tests.hub.api.beside import Nodes, at_both, led
from tests.hub.lab import api
from tests.slow import slow
from tests.waiting import connected, until

SIZE = 4
GONE = 3
STREAMS: dict[str, dict[str, Any]] = {
    "S": {"num_replicas": 3, "placement": {"tags": ["!az:0"]}},
    "O": {"placement": {"tags": ["az:1"]}},
}
IDLE = {"ack_policy": "none", "inactive_threshold": 600_000_000_000}
CONSUMERS: dict[str, dict[str, Any]] = {
    "S.c": {"durable_name": "c", "ack_policy": "explicit"},
    "S.wide": {**IDLE, "num_replicas": 3},
    "S.one": {"durable_name": "one", "ack_policy": "explicit", "num_replicas": 1},
    "S.short": IDLE,
    "O.c": {"durable_name": "c", "ack_policy": "explicit"},
}
META = "META.LEADER.STEPDOWN"
OF_S = "STREAM.LEADER.STEPDOWN.S"
OF_C = "CONSUMER.LEADER.STEPDOWN.S.c"
MOVED = "another"
"""Who leads afterwards: anybody but who led before."""
Row = tuple[str, Any, str]
"""A request, its body, and who leads afterwards. `@leader` is the name of the node that leads when
it is asked, `%leader` its id, `#leader` its index; `first` and `second` are others of the group
that run, `out` is one outside, `gone` is the one that was stopped."""


def to(**placement: Any) -> dict[str, Any]:
    """The body that says who is to lead."""
    return {"placement": placement}


BODIES: list[tuple[Any, str]] = [
    (None, MOVED),
    (b"  {}", MOVED),
    (b'"x"', MOVED),
    (b"nope", MOVED),
    (b"{", "leader"),
    (b"[]", "leader"),
    ({"bogus": 1}, "leader"),
    ({"placement": None}, MOVED),
    ({"placement": "x"}, "leader"),
    (to(), MOVED),
    (to(bogus=1), "leader"),
    (to(preferred=1), "leader"),
    (to(tags="all"), "leader"),
    (to(preferred=""), MOVED),
    (to(preferred="@first"), "first"),
    (to(preferred="@second"), "second"),
    (to(preferred="@first", tags=["nope"], cluster="other"), "first"),
    (to(preferred="@leader"), "leader"),
    (to(preferred="%first"), "leader"),
    (to(preferred="nobody"), "leader"),
    (to(preferred="N1"), "leader"),
    (to(tags=["az:#first"]), "first"),
    (to(tags=["ALL", "AZ:#second"]), "second"),
    (to(tags=["az:#leader"]), "leader"),
    (to(tags=["nope"]), "leader"),
    (to(tags=["all", "nope"]), "leader"),
    (to(tags=["!az:#leader"]), "leader"),
    (to(cluster="C", tags=["az:#first"]), "first"),
    (to(cluster="C"), MOVED),
    (to(cluster="c"), "leader"),
    (to(cluster="other"), "leader"),
]
OUTSIDE: list[tuple[Any, str]] = [
    (to(preferred="@out"), "leader"),
    (to(tags=["az:#out"]), "leader"),
]
UNHEARD: list[Any] = [None, to(preferred="nobody"), to(preferred="@leader"), to(tags=["x"]), b"{"]
"""Bodies that nobody reads where there is one replica, or nothing."""
ALONE = ["STREAM.LEADER.STEPDOWN.O", *(f"CONSUMER.LEADER.STEPDOWN.{c}" for c in ("O.c", "S.one"))]
ALONE += ["CONSUMER.LEADER.STEPDOWN.S.short"]
UNKNOWN = ["STREAM.LEADER.STEPDOWN.NONE"]
UNKNOWN += [f"CONSUMER.LEADER.STEPDOWN.{c}" for c in ("NONE.c", "S.NONE", "O.NONE")]
ROWS: list[Row] = [
    *((META, *row) for row in BODIES),
    *((name, *row) for name in (OF_S, OF_C) for row in [*BODIES, *OUTSIDE]),
    ("CONSUMER.LEADER.STEPDOWN.S.wide", to(preferred="@first"), "first"),
    *((name, body, "leader") for name in ALONE for body in UNHEARD),
    *((name, body, "nobody") for name in UNKNOWN for body in UNHEARD),
]
ROWS_WITHOUT_ONE: list[Row] = [
    (META, to(preferred="@gone"), MOVED),
    (META, to(tags=["az:#gone"]), "leader"),
    (META, to(preferred="@second"), "second"),
    (META, to(), MOVED),
    *(
        (name, body, then)
        for name in (OF_S, OF_C)
        for body, then in (
            (to(preferred="@gone"), "first"),
            (to(tags=["az:#gone"]), "leader"),
            (to(), "first"),
            (None, "first"),
        )
    ),
]


class Group:
    """Who leads what a request is about, as far as the cluster says."""

    def __init__(self, users: dict[str, Client], request: str) -> None:
        self.users = users
        self.kind, _, self.name = request.replace(".LEADER.STEPDOWN", "").partition(".")

    async def place(self) -> dict[str, Any] | None:
        """Its leader and replicas; None while there is no answer."""
        with contextlib.suppress(nats.errors.Error):
            if self.kind != "META":
                found = await api(self.users["a"], f"{self.kind}.INFO.{self.name}", 2)
                return found.get("cluster")
            asked = b'{"leader_only": true}'
            ping = "$SYS.REQ.SERVER.PING.JSZ"
            answer = await self.users["sys"].request(ping, asked, timeout=0.3)
            place: dict[str, Any] = json.loads(answer.data)["data"]["meta_cluster"]
            return place
        return None

    async def settled(self, stopped: set[str]) -> dict[str, Any] | None:
        """The same when it is led, and all that run have everything."""
        place = await self.place()
        if place is None or place.get("leader", "") in {"", *stopped}:
            return None
        rows = [row for row in place.get("replicas", []) if row["name"] not in stopped]
        return place if all(row["current"] for row in rows) else None


class Roles:
    """Which node is what in a group."""

    def __init__(self, place: dict[str, Any], stopped: set[str]) -> None:
        rows = place.get("replicas", [])
        self.ids = {row["name"]: row["peer"] for row in rows}
        others = sorted(self.ids.keys() - stopped)
        outside = {f"n{index}" for index in range(SIZE)} - {place["leader"], *self.ids}
        self.names = dict(zip(("first", "second", "third"), others, strict=False))
        self.names["leader"] = place["leader"]
        self.names |= zip(("out",), sorted(outside), strict=False)
        self.names |= zip(("gone",), stopped, strict=False)

    def fill(self, body: Any) -> bytes:
        """A body of the table with names in the places of roles."""
        if body is None or isinstance(body, bytes):
            return body or b""
        text = json.dumps(body)
        for role, name in self.names.items():
            text = text.replace(f"@{role}", name).replace(f"#{role}", name[1:])
            text = text.replace(f"%{role}", self.ids.get(name, name))
        return text.encode()

    def told(self, text: str) -> str:
        """A text with roles in the places of names."""
        back = {name: role for role, name in self.names.items()}
        back |= {peer: f"%{back[name]}" for name, peer in self.ids.items() if name in back}
        return re.sub("|".join(map(re.escape, back)), lambda m: back[m[0]], text)


class Story:
    """Asks one cluster everything, and keeps what it says."""

    def __init__(self, users: dict[str, Client]) -> None:
        self.users = users
        self.stopped: set[str] = set()
        self.told: list[dict[str, Any]] = []

    async def begin(self) -> None:
        """Make what is asked about, and hear all advisories."""
        await until(lambda: led(self.users["a"]), "there is a leader")
        for name, more in STREAMS.items():
            made = await api(self.users["a"], f"STREAM.CREATE.{name}", name=name, **more)
            assert "error" not in made, made
        for path, more in CONSUMERS.items():
            stream, name = path.split(".")
            asked = {"stream_name": stream, "config": {"name": name, **more}}
            made = await api(self.users["a"], f"CONSUMER.CREATE.{path}", **asked)
            assert "error" not in made, made

        async def hear(message: Any) -> None:
            self.told.append({"on": message.subject, **json.loads(message.data)})

        for user, what in (("a", "*"), ("a", "*.LEADER_ELECTED.>"), ("sys", "API")):
            await self.users[user].subscribe(f"$JS.EVENT.ADVISORY.{what}", cb=hear)
        await self.users["sys"].subscribe("$JS.EVENT.ADVISORY.DOMAIN.>", cb=hear)
        for user in ("a", "sys"):
            await self.users[user].flush()

    async def ask(self, row: Row) -> Any:
        """One row of the table: the answer and what is told of it. Who leads is as it says."""
        name, body, then = row
        group = Group(self.users, name)
        if then == "nobody":
            roles = Roles({"leader": "n0"}, self.stopped)
        else:
            place = await until(lambda: group.settled(self.stopped), f"{name} is led", 30)
            roles = Roles(place, self.stopped)
        self.told.clear()
        subject = f"$JS.API.{name}"
        user = self.users["sys" if name == META else "a"]
        sent = roles.fill(body)
        answer = json.loads((await user.request(subject, sent, timeout=6)).data)
        told = await self._audit(subject, sent.decode(), roles)
        found = [roles.told(json.dumps(answer, sort_keys=True)), told]
        if then != "nobody":
            found.append(await self._led_next(group, roles, row))
        return found

    async def _audit(self, subject: str, sent: str, roles: Roles) -> Any:
        """What the audit of a request says: several nodes may have told of it, and of others."""

        def find() -> Any:
            asked = (each for each in self.told if each.get("subject") == subject)
            return next((each for each in asked if each.get("request", "") == sent), None)

        told = await until(find, f"{subject} is told")
        kept = {key: roles.told(told.get(key, "")) for key in ("on", "request", "response")}
        return {**kept, "fields": sorted(told)}

    async def _led_next(self, group: Group, roles: Roles, row: Row) -> Any:
        """The shape of what is told of the node that leads then; None when it is the old one."""
        _, _, then = row
        old = roles.names["leader"]

        async def leads() -> Any:
            found = ((await group.place()) or {}).get("leader")
            right = found not in (None, "", old) if then == MOVED else found == roles.names[then]
            return found if right else None

        leader = await until(leads, f"{then} leads: {row}", 10)
        if then == "leader":
            return None
        tail = f"{group.kind}.LEADER_ELECTED.{group.name}"
        who = leader
        if group.kind == "META":
            tail, who = "DOMAIN.LEADER_ELECTED", roles.ids[leader]

        def find() -> Any:
            subject = f"$JS.EVENT.ADVISORY.{tail}"
            told = (each for each in self.told if each["on"] == subject)
            return next((each for each in told if each["leader"] == who), None)

        told = await until(find, f"{tail} of {who} is told")
        kept = {key: told.get(key) for key in ("type", "stream", "consumer", "cluster")}
        return {**kept, "names": sorted(each["name"] for each in told["replicas"])}


async def transcript(port: int, stop: Callable[[int], Awaitable[None]]) -> list[Any]:
    """What one cluster says to every row; a node stops in between."""
    users = {u: await connected(f"nats://{u}:{u}@127.0.0.1:{port}") for u in ("a", "b", "sys")}
    try:
        story = Story(users)
        await story.begin()
        found = [await story.ask(row) for row in ROWS]
        with contextlib.suppress(nats.errors.TimeoutError, nats.errors.NoRespondersError):
            found.append(await users["b"].request(f"$JS.API.{META}", b"", timeout=0.5))
        await stop(GONE)
        story.stopped.add(f"n{GONE}")
        return found + [await story.ask(row) for row in ROWS_WITHOUT_ONE]
    finally:
        for client in users.values():
            await client.close()


@slow
async def test_the_answers_are_those_of_nats_servers(tmp_path: Path) -> None:
    async def told(nodes: Nodes) -> list[Any]:
        return await asyncio.wait_for(transcript(nodes.port, nodes.stop), 120)

    answers = await at_both(tmp_path, told, SIZE)
    for row, theirs, ours in zip([*ROWS, *ROWS_WITHOUT_ONE], *answers, strict=True):
        assert ours == theirs, row
