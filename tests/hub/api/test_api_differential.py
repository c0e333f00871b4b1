"""The API of a cluster, answer by answer beside three nats-servers."""

import json
from functools import partial
from pathlib import Path
from typing import Any

from nats.aio.client import Client

from tests.hub.api.beside import Nodes, at_both, led, masked
from tests.waiting import connected, until

S = {"name": "S", "subjects": ["s.>"], "placement": {"tags": ["az:1"]}}
U = {"name": "U", "subjects": ["u"]}
C = {"name": "c", "durable_name": "c", "ack_policy": "explicit"}
M = {"name": "M", "mirror": {"name": "R"}, "placement": {"tags": ["az:1"]}}
R = {"name": "R", "subjects": ["r"], "num_replicas": 3}
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
    ("a", "STREAM.CREATE.R", R),
    ("a", "CONSUMER.CREATE.R.c", {"stream_name": "R", "config": {**C, "num_replicas": 1}}),
    ("a", "CONSUMER.INFO.R.c", None),
    ("a", "CONSUMER.LIST.R", None),
    ("a", "STREAM.INFO.R", None),
    ("a", "STREAM.CREATE.M", M),
    ("a", "STREAM.INFO.R", None),
    ("a", "STREAM.INFO.M", None),
    ("a", "STREAM.DELETE.M", None),
    ("a", "STREAM.INFO.R", None),
    ("a", "STREAM.DELETE.R", None),
    ("a", "STREAM.DELETE.S", None),
    ("a", "STREAM.DELETE.S", None),
    ("sys", "META.LEADER.STEPDOWN", None),
]


def placed(value: Any) -> Any:
    """Without who leads a replicated asset: of its cluster the keys and the number of replicas. How
    far a mirror is, and when its origin counts its consumer, is another matter."""
    if isinstance(value, list):
        return [placed(each) for each in value]
    if not isinstance(value, dict):
        return value
    kept = {key: placed(each) for key, each in value.items() if key != "mirror"}
    if "alternates" in kept:
        kept["alternates"].sort(key=lambda each: each["name"])
    cluster = value.get("cluster")
    stream = value.get("stream_name") or value.get("config", {}).get("name")
    if isinstance(cluster, dict) and stream == "R":
        kept["cluster"] = (sorted(cluster), len(cluster.get("replicas", ())))
        kept.pop("state", None)
    return kept


async def alternates(user: Client, wanted: bool) -> bool:
    """Whether the leader of R knows as much of its mirror as it should by now."""
    answer = await user.request("$JS.API.STREAM.INFO.R", b"", timeout=6)
    return ("alternates" in json.loads(answer.data)) is wanted


async def ask(user: Client, system: Client) -> list[Any]:
    """The answers to all requests, once there is a leader."""
    await until(partial(led, user), "there is a leader")
    found, before = [], ""
    for who, name, body in REQUESTS:
        payload = json.dumps(body).encode() if body is not None else b""
        client = user if who == "a" else system
        if name == "STREAM.INFO.R":
            await until(partial(alternates, user, before == "STREAM.CREATE.M"), "M is known")
        before = name
        answer = await client.request(f"$JS.API.{name}", payload, timeout=6)
        found.append(placed(masked(json.loads(answer.data))))
    return found


async def transcript(address: str) -> list[Any]:
    clients = [await connected(f"nats://{user}:{user}@{address}") for user in ("a", "sys")]
    try:
        return await ask(*clients)
    finally:
        for client in clients:
            await client.close()


async def test_the_answers_are_those_of_nats_servers(tmp_path: Path) -> None:
    async def told(nodes: Nodes) -> list[Any]:
        return await transcript(f"127.0.0.1:{nodes.port}")

    answers = await at_both(tmp_path, told)
    for request, theirs, ours in zip(REQUESTS, *answers, strict=True):
        assert ours == theirs, request
