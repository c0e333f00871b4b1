"""The API of a cluster, answer by answer beside three nats-servers."""

import contextlib
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import nats
from nats.aio.client import Client

from bench.servers import free_port
from headwater.edge.conf.flags import parse_args
from tests.hub.lab import Lab
from tests.waiting import connected, until

ANCHOR = Path(sys.executable).parent / "nats-server"
S = {"name": "S", "subjects": ["s.>"], "placement": {"tags": ["az:1"]}}
U = {"name": "U", "subjects": ["u"]}
C = {"name": "c", "durable_name": "c", "ack_policy": "explicit"}
Request = tuple[str, str, dict[str, Any] | None]
REQUESTS: list[Request] = [
    ("a", "STREAM.CREATE.S", S),
    ("a", "STREAM.CREATE.S", S),
    ("a", "STREAM.CREATE.S", {"name": "S", "subjects": ["t.>"]}),
    ("a", "STREAM.CREATE.T", {"name": "T", "subjects": ["s.a"]}),
    ("a", "STREAM.CREATE.U", {**U, "placement": {"tags": ["nope", "none"]}}),
    ("a", "STREAM.CREATE.U", {**U, "placement": {"tags": ["!all"]}}),
    ("a", "STREAM.CREATE.U", {**U, "placement": {"cluster": "other"}}),
    ("a", "STREAM.CREATE.U", {**U, "max_bytes": 1 << 40}),
    ("a", "STREAM.CREATE.U", {**U, "num_replicas": 5}),
    ("a", "STREAM.CREATE.U", {**U, "num_replicas": 6}),
    ("a", "STREAM.CREATE.U", {**U, "num_replicas": -1}),
    ("a", "STREAM.CREATE.U", {"name": "X", "subjects": ["u"]}),
    ("a", "STREAM.CREATE.U", {**U, "bogus": 1}),
    ("a", "STREAM.INFO.S", None),
    ("a", "STREAM.INFO.NONE", None),
    ("a", "STREAM.NAMES", None),
    ("a", "STREAM.NAMES", {"subject": "s.a"}),
    ("a", "STREAM.LIST", None),
    ("a", "STREAM.UPDATE.S", {**S, "subjects": ["s.>", "v"]}),
    ("a", "STREAM.UPDATE.NONE", {"name": "NONE", "subjects": ["q"]}),
    ("a", "STREAM.PURGE.S", None),
    ("a", "STREAM.PURGE.NONE", None),
    ("a", "STREAM.MSG.GET.S", {"seq": 1}),
    ("a", "CONSUMER.CREATE.S.c", {"stream_name": "S", "config": C}),
    ("a", "CONSUMER.CREATE.NONE.c", {"stream_name": "NONE", "config": C}),
    ("a", "CONSUMER.CREATE.S.c", {"stream_name": "S", "config": {**C, "num_replicas": 3}}),
    ("a", "CONSUMER.INFO.S.c", None),
    ("a", "CONSUMER.INFO.S.none", None),
    ("a", "CONSUMER.NAMES.S", None),
    ("a", "CONSUMER.LIST.S", None),
    ("a", "CONSUMER.NAMES.NONE", None),
    ("a", "STREAM.LEADER.STEPDOWN.S", None),
    ("a", "STREAM.LEADER.STEPDOWN.NONE", None),
    ("a", "CONSUMER.LEADER.STEPDOWN.S.c", None),
    ("a", "CONSUMER.LEADER.STEPDOWN.S.none", None),
    ("a", "STREAM.PEER.REMOVE.S", {"peer": "n9"}),
    ("a", "STREAM.PEER.REMOVE.NONE", {"peer": "n1"}),
    ("a", "STREAM.PEER.REMOVE.S", None),
    ("sys", "META.LEADER.STEPDOWN", {"placement": {"preferred": "nope"}}),
    ("sys", "META.LEADER.STEPDOWN", {"placement": {"tags": ["nope"]}}),
    ("sys", "SERVER.REMOVE", {"peer": "nope"}),
    ("sys", "SERVER.REMOVE", None),
    ("a", "CONSUMER.DELETE.S.c", None),
    ("a", "STREAM.DELETE.S", None),
    ("a", "STREAM.DELETE.S", None),
    ("sys", "META.LEADER.STEPDOWN", None),
]
OWN = {"created", "ts", "time", "metadata", "first_ts", "last_ts", "last_active", "api"}


def masked(value: Any) -> Any:
    """Without what differs from run to run."""
    if isinstance(value, dict):
        return {key: "*" if key in OWN else masked(each) for key, each in value.items()}
    return [masked(each) for each in value] if isinstance(value, list) else value


async def led(user: Client) -> bool:
    """Whether the cluster answers."""
    with contextlib.suppress(nats.errors.Error):
        answer = await user.request("$JS.API.STREAM.NAMES", b"", timeout=2)
        return "error" not in json.loads(answer.data)
    return False


async def ask(user: Client, system: Client) -> list[Any]:
    """The answers to all requests, once there is a leader."""
    await until(partial(led, user), "there is a leader")
    found = []
    for who, name, body in REQUESTS:
        payload = json.dumps(body).encode() if body is not None else b""
        client = user if who == "a" else system
        answer = await client.request(f"$JS.API.{name}", payload, timeout=6)
        found.append(masked(json.loads(answer.data)))
    return found


def write_config(path: Path, index: int, ports: list[int], route_ports: list[int]) -> Path:
    routes = ", ".join(f"nats-route://127.0.0.1:{port}" for port in route_ports)
    config = path / f"n{index}.conf"
    config.write_text(
        f'server_name: n{index}\nlisten: "127.0.0.1:{ports[index]}"\n'
        f'jetstream {{ store_dir: "{path}/anchor{index}" }}\n'
        f'server_tags: ["az:{index}", "all"]\n'
        f'cluster {{ name: C, listen: "127.0.0.1:{route_ports[index]}", routes: [{routes}] }}\n'
        "accounts { $SYS { users: [ { user: sys, password: sys } ] }\n"
        "  A { jetstream: enabled, users: [ { user: a, password: a } ] }\n"
        "  B { jetstream: enabled, users: [ { user: b, password: b } ] } }\n"
    )
    return config


@contextlib.asynccontextmanager
async def anchors(path: Path, size: int = 3) -> AsyncIterator[str]:
    """So many nats-servers; the first one's address."""
    ports, route_ports = ([free_port() for _ in range(size)] for _ in range(2))
    with (path / "anchor.log").open("w") as output:
        processes = [
            subprocess.Popen(
                [str(ANCHOR), "-c", str(write_config(path, index, ports, route_ports))],
                stderr=output,
            )
            for index in range(size)
        ]
    try:
        yield f"127.0.0.1:{ports[0]}"
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(10)


async def transcript(address: str) -> list[Any]:
    clients = [await connected(f"nats://{user}:{user}@{address}") for user in ("a", "sys")]
    try:
        return await ask(*clients)
    finally:
        for client in clients:
            await client.close()


async def test_the_answers_are_those_of_nats_servers(tmp_path: Path) -> None:
    async with anchors(tmp_path) as address:
        wanted = await transcript(address)
    ports, route_ports = ([free_port() for _ in range(3)] for _ in range(2))
    lab = Lab(tmp_path)
    try:
        for index in range(3):
            path = tmp_path / str(index)
            path.mkdir()
            config = write_config(path, index, ports, route_ports)
            lab.run(index, parse_args(["-c", str(config)]).options)
        await lab.settled(3)
        found = await transcript(f"127.0.0.1:{ports[0]}")
    finally:
        await lab.stop()
    for request, ours, theirs in zip(REQUESTS, found, wanted, strict=True):
        assert ours == theirs, request
