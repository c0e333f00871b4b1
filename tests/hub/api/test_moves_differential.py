"""Orders that move streams, answer by answer beside four nats-servers."""

import contextlib
import json
from functools import partial
from pathlib import Path
from typing import Any

import nats
from nats.aio.client import Client

from tests.hub.api.beside import Nodes, at_both, led, masked
from tests.waiting import connected, until

SIZE = 4
S = {"name": "S", "subjects": ["s.>"], "num_replicas": 3, "placement": {"tags": ["!az:3"]}}
ONE = {"name": "O", "subjects": ["o"], "placement": {"tags": ["az:1"]}}
ELSEWHERE = {"tags": ["!az:1"]}
Request = tuple[str, str, dict[str, Any] | None]
REQUESTS: list[Request] = [
    ("a", "STREAM.CREATE.S", S),
    ("a", "STREAM.PEER.REMOVE.S", {"peer": "n3"}),
    ("a", "STREAM.PEER.REMOVE.S", {"peer": "n1"}),
    ("a", "STREAM.PEER.REMOVE.S", {}),
    ("a", "STREAM.PEER.EVACUATE.S", None),
    ("a", "STREAM.PEER.EVACUATE.S", {}),
    ("a", "STREAM.PEER.EVACUATE.S", {"peer": "n9"}),
    ("a", "STREAM.PEER.EVACUATE.S", {"peer": "n1"}),
    ("a", "STREAM.PEER.EVACUATE.NONE", {"peer": "n1"}),
    ("a", "STREAM.CANCEL_MOVE.S", None),
    ("a", "STREAM.CANCEL_MOVE.NONE", None),
    ("a", "ACCOUNT.STREAM.CANCEL_MOVE.A.S", None),
    ("a", "ACCOUNT.STREAM.MOVE.A.S", {"server": "n9"}),
    ("sys", "ACCOUNT.STREAM.CANCEL_MOVE.A.S", None),
    ("sys", "ACCOUNT.STREAM.CANCEL_MOVE.A.NONE", None),
    ("sys", "ACCOUNT.STREAM.CANCEL_MOVE.NONE.S", None),
    ("sys", "ACCOUNT.STREAM.MOVE.NONE.S", {}),
    ("sys", "ACCOUNT.STREAM.MOVE.A.NONE", {}),
    ("sys", "ACCOUNT.STREAM.MOVE.A.S", {"server": "n9"}),
    ("sys", "ACCOUNT.STREAM.MOVE.A.S", {"server": "n1", "cluster": "other"}),
    ("sys", "ACCOUNT.STREAM.MOVE.A.S", {"server": "n1", "domain": "other"}),
    ("sys", "ACCOUNT.STREAM.MOVE.A.S", {"server": "n3"}),
    ("sys", "ACCOUNT.STREAM.MOVE.A.S", {"server": "n1"}),
    ("sys", "ACCOUNT.STREAM.MOVE.A.S", {"bogus": 1}),
    ("sys", "ACCOUNT.STREAM.MOVE.A.S", {"server": 1}),
    ("a", "STREAM.UPDATE.S", {**S, "num_replicas": 1, "placement": {"tags": ["all"]}}),
    ("a", "STREAM.UPDATE.S", {**S, "placement": {"tags": ["nope"]}}),
    ("a", "STREAM.UPDATE.S", {**S, "placement": ELSEWHERE}),
    ("wait", "S", None),
    ("a", "STREAM.INFO.S", None),
    ("a", "STREAM.UPDATE.S", {**S, "placement": {"tags": ["all", "!az:2"]}}),
    ("wait", "S", None),
    ("a", "STREAM.CREATE.O", ONE),
    ("a", "STREAM.PEER.REMOVE.O", {"peer": "n0"}),
    ("sys", "ACCOUNT.STREAM.MOVE.A.O", {"server": "n1"}),
    ("a", "STREAM.UPDATE.O", {**ONE, "placement": {"tags": ["az:3"]}}),
    ("wait", "O", None),
    ("a", "STREAM.INFO.O", None),
    ("sys", "SERVER.EVACUATE", None),
    ("sys", "SERVER.EVACUATE", {}),
    ("sys", "SERVER.EVACUATE", {"peer": "n9"}),
    ("sys", "SERVER.EVACUATE", {"peer": "n9", "peer_id": "n1"}),
    ("b", "STREAM.NAMES", None),
    ("sys", "ACCOUNT.PURGE.NONE", None),
    ("sys", "ACCOUNT.PURGE.A", None),
    ("gone", "A", None),
    ("a", "STREAM.NAMES", None),
]
SILENT = ("ACCOUNT.STREAM.MOVE.A.S", "ACCOUNT.STREAM.CANCEL_MOVE.A.S", "SERVER.EVACUATE")
"""What nobody answers in an account that is neither theirs nor the system's."""
VARYING = {"active", "current", "lag", "raft_group", "leader", "leader_since", "created"}


MOVING = ("stream_update_response", "stream_cancel_move_response")


def placed(value: Any) -> Any:
    """Without what differs from run to run: leaders, and the order in which nodes were chosen."""
    if isinstance(value, list):
        return [placed(each) for each in value]
    if not isinstance(value, dict):
        return value
    if value.get("type", "").endswith(MOVING):
        # How far it has come when that is told is a matter of time.
        value = {**value, "cluster": "*"}
    found = {key: placed(each) for key, each in value.items() if key not in VARYING}
    if "raft_group" in value or "leader" in value or isinstance(found.get("replicas"), list):
        names = [row["name"] for row in value.get("replicas", [])]
        found["replicas"] = sorted({*names, *filter(None, [value.get("leader")])})
    return found


async def info(client: Client, name: str) -> Any:
    answer = await client.request(f"$JS.API.STREAM.INFO.{name}", b"", timeout=6)
    return json.loads(answer.data)


async def settled(client: Client, name: str) -> bool:
    """Whether a stream is where it is to be."""
    with contextlib.suppress(nats.errors.Error):
        found = await info(client, name)
        place = found.get("cluster", {})
        rows = place.get("replicas", [])
        whole = len(rows) + 1 == found["config"]["num_replicas"]
        return whole and "desired" not in place and all(row["current"] for row in rows)
    return False


async def emptied(client: Client) -> bool:
    answer = await client.request("$JS.API.STREAM.NAMES", b"", timeout=6)
    return json.loads(answer.data).get("total") == 0


async def transcript(address: str) -> list[Any]:
    users = {u: await connected(f"nats://{u}:{u}@{address}") for u in ("a", "b", "sys")}
    found: list[Any] = []
    try:
        await until(partial(led, users["a"]), "there is a leader")
        for who, name, body in REQUESTS:
            if who == "wait":
                await until(partial(settled, users["a"], name), f"{name} has moved", 60)
            elif who == "gone":
                await until(partial(emptied, users["a"]), "streams are deleted")
            else:
                payload = json.dumps(body).encode() if body is not None else b""
                answer = await users[who].request(f"$JS.API.{name}", payload, timeout=6)
                found.append(placed(masked(json.loads(answer.data))))
        for name in SILENT:
            with contextlib.suppress(nats.errors.TimeoutError, nats.errors.NoRespondersError):
                answer = await users["b"].request(f"$JS.API.{name}", b"", timeout=0.5)
                found.append(answer.data)
    finally:
        for client in users.values():
            await client.close()
    return found


async def test_the_answers_are_those_of_nats_servers(tmp_path: Path) -> None:
    async def told(nodes: Nodes) -> list[Any]:
        return await transcript(f"127.0.0.1:{nodes.port}")

    answers = await at_both(tmp_path, told, SIZE)
    requests = [request for request in REQUESTS if request[0] not in ("wait", "gone")]
    for request, theirs, ours in zip(requests, *answers, strict=True):
        assert ours == theirs, request
