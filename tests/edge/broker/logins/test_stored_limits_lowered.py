"""What an account may store, at its limit, beyond it, and lowered by a reload of the configuration
or by a pushed token while streams are there, as nats-server does it."""

import signal
from pathlib import Path
from typing import Any

import pytest

from bench.servers import HOST, Recipe, Server
from tests.operator_realm import SERVERS, Raw, Realm, recipe
from tests.waiting import until_seen

GRANTED = {"disk_storage": 1000, "mem_storage": 1000, "streams": 3, "consumer": 1}
LOWERED = {"disk_storage": 500, "mem_storage": 400, "streams": 2, "consumer": 1}
NAMES = {
    "disk_storage": "max_file",
    "mem_storage": "max_memory",
    "streams": "max_streams",
    "consumer": "max_consumers",
}
"""Limits of tokens, and what configurations call them."""


class ByToken:
    """Account A has its limits by a token that is pushed."""

    def __init__(self, name: str, folder: Path) -> None:
        self.realm = Realm()
        self._grant(GRANTED)
        config = self.realm.config(f"jetstream {{ store_dir: '{folder / name}' }}")
        self.recipe = recipe(name, config)

    def _grant(self, limits: dict[str, int]) -> None:
        for limit, value in limits.items():
            setattr(self.realm.bodies["A"].limits, limit, value)

    def login(self, wire: Raw) -> list[str]:
        return wire.login(self.realm.user())

    def lower(self, server: Server) -> None:
        self._grant(LOWERED)
        subject = f"$SYS.REQ.ACCOUNT.{self.realm.account('A')}.CLAIMS.UPDATE"
        with Raw(server.port) as system:
            assert system.login(self.realm.user("S")) == []
            answer = system.request(subject, self.realm.token("A").encode())
            assert answer["data"]["code"] == 200, answer


class ByConfiguration:
    """Account A has its limits by a configuration that is loaded again."""

    def __init__(self, name: str, folder: Path) -> None:
        self.path, self.store = folder / f"{name}.conf", folder / name
        self._write(GRANTED)
        command = (*recipe(name, "").command, "-c", str(self.path), "-a", HOST, "-p", "{port}")
        self.recipe = Recipe(name, command)

    def _write(self, limits: dict[str, int]) -> None:
        told = ", ".join(f"{NAMES[limit]}: {value}" for limit, value in limits.items())
        self.path.write_text(
            f"jetstream {{ store_dir: '{self.store}' }}\n"
            "accounts { A { users: [{user: a, password: a}], jetstream { " + told + " } } }\n"
        )

    def login(self, wire: Raw) -> list[str]:
        return wire.login(user="a", **{"pass": "a"})

    def lower(self, server: Server) -> None:
        self._write(LOWERED)
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
            limits = wire.request("$JS.API.INFO")["limits"]
            return bool(limits["max_storage"] == 500 and limits["max_streams"] == 2)

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
