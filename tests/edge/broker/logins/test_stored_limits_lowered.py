"""What an account may store, at its limit, beyond it, and lowered by a reload of the configuration
or by a pushed token while streams are there, as nats-server does it."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from bench.servers import HOST, Recipe, Server
from headwater.security.claims import JetStreamTier
from tests.operator_realm import SERVERS, Raw, Realm, recipe
from tests.waiting import until_seen

Limits = dict[str, Any]
GRANTED = {"disk_storage": 1000, "mem_storage": 1000, "streams": 3, "consumer": 1}
LOWERED = {"disk_storage": 500, "mem_storage": 400, "streams": 2, "consumer": 1}
NAMES = {
    "disk_storage": "max_file",
    "mem_storage": "max_memory",
    "streams": "max_streams",
    "consumer": "max_consumers",
    "disk_max_stream_bytes": "disk_max_stream_bytes",
    "max_ack_pending": "max_ack_pending",
    "max_bytes_required": "max_bytes_required",
}
"""Limits of tokens, and what configurations call them."""


class ByToken:
    """Account A has its limits by a token that is pushed."""

    def __init__(self, name: str, folder: Path, granted: Limits = GRANTED) -> None:
        self.realm = Realm()
        self._grant(granted)
        config = self.realm.config(f"jetstream {{ store_dir: '{folder / name}' }}")
        self.recipe = recipe(name, config)

    def _grant(self, limits: Limits) -> None:
        for limit, value in limits.items():
            setattr(self.realm.bodies["A"].limits, limit, value)

    def login(self, wire: Raw) -> list[str]:
        return wire.login(self.realm.user())

    def lower(self, server: Server, lowered: Limits = LOWERED) -> None:
        self._grant(lowered)
        subject = f"$SYS.REQ.ACCOUNT.{self.realm.account('A')}.CLAIMS.UPDATE"
        with Raw(server.port) as system:
            assert system.login(self.realm.user("S")) == []
            answer = system.request(subject, self.realm.token("A").encode())
            assert answer["data"]["code"] == 200, answer


class ByConfiguration:
    """Account A has its limits by a configuration that is loaded again."""

    def __init__(self, name: str, folder: Path, granted: Limits = GRANTED) -> None:
        self.path, self.store = folder / f"{name}.conf", folder / name
        self._write(granted)
        command = (*recipe(name, "").command, "-c", str(self.path), "-a", HOST, "-p", "{port}")
        self.recipe = Recipe(name, command)

    def _write(self, limits: Limits) -> None:
        told = ", ".join(f"{NAMES[limit]}: {json.dumps(value)}" for limit, value in limits.items())
        self.path.write_text(
            f"jetstream {{ store_dir: '{self.store}' }}\n"
            "accounts { A { users: [{user: a, password: a}], jetstream { " + told + " } } }\n"
        )

    def login(self, wire: Raw) -> list[str]:
        return wire.login(user="a", **{"pass": "a"})

    def lower(self, server: Server, lowered: Limits = LOWERED) -> None:
        self._write(lowered)
        server.signal(signal.SIGHUP)


def code(answer: Any) -> int:
    """The error's code; 0 without."""
    return int(answer.get("error", {}).get("err_code", 0))


def observe(by: Any, server: Server) -> dict[str, Any]:
    """The codes of every request at the limits, beyond them, and after they were lowered."""
    with Raw(server.port) as wire:
        assert by.login(wire) == []

        def create(name: str, storage: str = "file", **fields: Any) -> int:
            config = {"name": name, "subjects": [name], "storage": storage, **fields}
            return code(wire.request(f"$JS.API.STREAM.CREATE.{name}", config))

        def consume(stream: str, name: str) -> int:
            body = {"stream_name": stream, "config": {"durable_name": name}}
            return code(wire.request(f"$JS.API.CONSUMER.DURABLE.CREATE.{stream}.{name}", body))

        def stored(subject: str, size: int) -> int:
            return code(wire.request(subject, b"x" * size))

        at = [create("f"), create("m", "memory"), consume("f", "one")]
        at += [stored("f", 400), stored("m", 300)]
        over = [consume("f", "two"), stored("f", 900), stored("m", 900)]
        over += [create("big", max_bytes=2000), create("wide", "memory", max_bytes=2000)]
        at.append(create("third"))
        over.append(create("fourth"))
        by.lower(server)

        def lowered() -> bool:
            # Nobody answers for a moment while nats-server loads its configuration.
            limits = (wire.request("$JS.API.INFO") or {}).get("limits", {})
            return bool(limits.get("max_storage") == 500 and limits.get("max_streams") == 2)

        until_seen(lowered, "the lower limits are in force")
        info = wire.request("$JS.API.INFO")
        later = [stored("f", 300), stored("m", 300), create("fifth"), consume("f", "three")]
        kept = [wire.request(f"$JS.API.STREAM.INFO.{name}")["state"]["messages"] for name in "fm"]
        return {
            "at": at,
            "over": over,
            "limits": {name: info["limits"][name] for name in ("max_memory", "max_consumers")},
            "later": later,
            "kept": kept,
        }


@pytest.mark.parametrize("by", [ByToken, ByConfiguration])
def test_at_beyond_and_lowered(by: Any, tmp_path: Path) -> None:
    found = {}
    for name in SERVERS:
        made = by(name, tmp_path)
        with Server(made.recipe) as server:
            found[name] = observe(made, server)
    mine, theirs = found["headwater"], found["nats-server"]
    assert mine == theirs
    assert not any(mine["at"]) and all(mine["over"]) and all(mine["later"])
    assert mine["kept"] == [1, 1]


EACH = {"disk_storage": 20_000, "mem_storage": 0, "streams": 9, "consumer": 9}
GRANTED_EACH = {
    **EACH, "disk_max_stream_bytes": 5000, "max_ack_pending": 10, "max_bytes_required": False
}  # fmt: skip
LOWERED_EACH = {
    **EACH, "disk_max_stream_bytes": 1000, "max_ack_pending": 3, "max_bytes_required": True
}  # fmt: skip


def config(name: str, size: int = -1) -> dict[str, Any]:
    return {"name": name, "subjects": [name], "storage": "file", "max_bytes": size}


def delivered(wire: Raw, consumer: str, wanted: int) -> int:
    """How many messages one request brings before its time is up."""
    inbox = f"_INBOX.{consumer}"
    body = json.dumps({"batch": wanted, "expires": 300_000_000})
    subject = f"$JS.API.CONSUMER.MSG.NEXT.s.{consumer}"
    head = f"SUB {inbox} 8\r\nPUB {subject} {inbox} {len(body)}\r\n{body}\r\n"
    wire.socket.sendall(head.encode())
    for count in range(wanted + 1):
        line = wire.file.readline()
        wire.file.read(int(line.split()[-1]) + 2)
        if line.startswith(b"HMSG"):
            return count
    raise AssertionError("more than was asked for")


def observe_each(by: Any, server: Server) -> dict[str, Any]:
    """What one stream and one consumer may have: as granted, and after it was lowered."""
    with Raw(server.port) as wire:
        assert by.login(wire) == []

        def asked(verb: str, name: str, size: int = -1) -> tuple[int, Any]:
            answer = wire.request(f"$JS.API.STREAM.{verb}.{name}", config(name, size))
            return code(answer), answer.get("config", {}).get("max_bytes")

        def consume(name: str, pending: int = 0) -> tuple[int, Any]:
            told = {"durable_name": name, "ack_policy": "explicit"}
            if pending:
                told["max_ack_pending"] = pending
            body = {"stream_name": "s", "config": told}
            answer = wire.request(f"$JS.API.CONSUMER.DURABLE.CREATE.s.{name}", body)
            return code(answer), answer.get("config", {}).get("max_ack_pending")

        at = [asked("CREATE", "s", 5000), asked("CREATE", "open"), asked("CREATE", "big", 5001)]
        at += [consume("as_granted"), consume("own", 8), consume("beyond", 11)]
        for _ in range(8):
            wire.request("s", b"x" * 300)
        by.lower(server, LOWERED_EACH)

        def lowered() -> bool:
            limits = wire.request("$JS.API.INFO")["limits"]
            return bool(limits["max_ack_pending"] == 3)

        until_seen(lowered, "the lower limits are in force")
        kept = [wire.request(f"$JS.API.STREAM.INFO.{name}") for name in ("s", "open")]
        return {
            "at": at,
            "kept": [(each["config"]["max_bytes"], each["state"]["messages"]) for each in kept],
            "stored": [code(wire.request(name, b"x" * 300)) for name in ("s", "open")],
            "delivered": delivered(wire, "own", 20),
            "unchanged": [asked("UPDATE", "s", 5000), asked("UPDATE", "open")],
            "made again": [asked("CREATE", "s", 5000), asked("CREATE", "open")],
            "less": [asked("UPDATE", "s", 4000), asked("UPDATE", "s", 1000)],
            "new": [asked("CREATE", "t", 1001), asked("CREATE", "u"), asked("CREATE", "v", 1000)],
            "consumers": [
                consume("as_granted"), consume("own", 8), consume("own", 4), consume("own", 3),
                consume("new", 4), consume("new"),
            ],
        }  # fmt: skip


@pytest.mark.parametrize("by", [ByToken, ByConfiguration])
def test_limits_of_each_stream_and_consumer(by: Any, tmp_path: Path) -> None:
    found = {}
    for name in SERVERS:
        made = by(name, tmp_path, GRANTED_EACH)
        with Server(made.recipe) as server:
            found[name] = observe_each(made, server)
    mine, theirs = found["headwater"], found["nats-server"]
    for row in mine:
        assert mine[row] == theirs[row], row
    assert mine["kept"] == [(5000, mine["kept"][0][1]), (-1, 0)]
    assert all(first for first, _ in mine["new"][:2]) and not mine["new"][2][0]


def tiers(**sizes: int) -> Limits:
    """Limits by tiers, each of so many bytes and of as many streams and consumers as kilobytes."""
    made = {
        name: JetStreamTier(disk_storage=size, streams=size // 1000, consumer=size // 1000)
        for name, size in sizes.items()
    }
    return {"tiered_limits": made, "disk_storage": 0, "mem_storage": 0}


def observe_tiers(by: Any, server: Server, lowered: Limits) -> dict[str, Any]:
    """An account with tiers whose tiers are lowered, or taken from it."""
    with Raw(server.port) as wire:
        assert by.login(wire) == []

        def create(name: str, size: int = -1, replicas: int = 1) -> int:
            body = {**config(name, size), "num_replicas": replicas}
            return code(wire.request(f"$JS.API.STREAM.CREATE.{name}", body))

        def consume(name: str) -> int:
            body = {"stream_name": "s", "config": {"durable_name": name}}
            return code(wire.request(f"$JS.API.CONSUMER.DURABLE.CREATE.s.{name}", body))

        at = [create("s"), create("r", 1500), create("o", 9000), create("three", replicas=3)]
        at += [consume("one"), consume("two")]
        at += [code(wire.request("s", b"x" * 700)) for _ in range(2)]
        before = wire.request("$JS.API.INFO").get("tiers")
        by.lower(server, lowered)

        def changed() -> Any:
            answer = wire.request("$JS.API.INFO")
            return answer if answer.get("tiers") != before else None

        info = until_seen(changed, "the lower tiers are in force")
        kept = wire.request("$JS.API.STREAM.INFO.s")
        shown = {name: tier["limits"] for name, tier in info.get("tiers", {}).items()}
        return {
            "at": at,
            "limits": shown,
            "kept": [kept["state"]["messages"], kept["state"]["consumer_count"]],
            "stored": [code(wire.request(name, b"x" * 700)) for name in "sr"],
            "streams": [create("n"), create("p", 1500), create("q", replicas=3)],
            "consumers": [consume("one"), consume("three")],
            "update": [
                code(wire.request("$JS.API.STREAM.UPDATE.r", config("r", size)))
                for size in (1500, 1600)
            ],
            "left": code(wire.request("$JS.API.STREAM.DELETE.s")),
        }


@pytest.mark.parametrize(
    "lowered",
    [tiers(R1=1000, R3=1000), tiers(R1=5000), tiers(R3=5000)],
    ids=["lowered", "R3 taken", "R1 taken"],
)
def test_tiers(lowered: Limits, tmp_path: Path) -> None:
    """Configurations know no tiers."""
    found = {}
    for name in SERVERS:
        made = ByToken(name, tmp_path, tiers(R1=5000, R3=5000))
        with Server(made.recipe) as server:
            found[name] = observe_tiers(made, server, lowered)
    mine, theirs = found["headwater"], found["nats-server"]
    # nats-server hides a tier without streams beside one that it counts streams for.
    assert theirs["limits"].items() <= mine.pop("limits").items()
    for row in mine:
        assert mine[row] == theirs[row], row
    assert mine["kept"] == [2, 2] and mine["left"] == 0
