"""What generated input has found in clusters of three, as fixed histories on both."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.differ.clusters.intended import intended
from tests.differ.clusters.player import ClusterPlayer
from tests.differ.clusters.steps import INFO, STEADY
from tests.differ.clusters.trio import Trio
from tests.differ.histories import SECOND, Step, api


def stream(verb: str, replicas: int, **more: Any) -> Step:
    config = {"name": "%", "subjects": ["%.>"], "num_replicas": replicas, **more}
    return api(f"STREAM.{verb}.%", config)


def publish(**headers: str) -> Step:
    named = [(key.replace("_", "-"), value) for key, value in headers.items()]
    return {"do": "publish", "subject": "%.a", "headers": named, "payload": "x"}


LIST = api("CONSUMER.LIST.%", None)
STEPPED = [api("STREAM.LEADER.STEPDOWN.%", None), STEADY]
LATER = api("CONSUMER.CREATE.%.C", {"stream_name": "%", "config": {
    "durable_name": "C", "ack_policy": "explicit", "deliver_policy": "by_start_sequence",
    "opt_start_seq": 4}})  # fmt: skip
DURABLE = api("CONSUMER.CREATE.%.C", {"stream_name": "%", "config": {
    "durable_name": "C", "ack_policy": "explicit"}})  # fmt: skip
PULL: Step = {
    "do": "pull", "consumer": "C", "body": json.dumps({"batch": 5, "expires": SECOND // 4}),
}  # fmt: skip
HISTORIES: dict[str, list[Step]] = {
    "a start that is yet to come, and another leader": [
        stream("CREATE", 3), STEADY, LATER, STEADY, publish(), *STEPPED, LIST, publish(), publish(),
        publish(), PULL,
    ],
    "a start that is yet to come, and more replicas": [
        stream("CREATE", 1), STEADY, LATER, STEADY, publish(), stream("UPDATE", 3), STEADY, LIST,
        publish(), publish(), publish(), PULL,
    ],
    "where the domain and the server's version stand": [
        stream("CREATE", 3), STEADY, stream("CREATE", 3), stream("UPDATE", 1), STEADY, INFO,
        api("STREAM.LIST", None), api("STREAM.LIST", {"offset": 5}),
    ],
    "which header of a replicated publish is told first": [
        stream("CREATE", 3), STEADY, publish(Nats_TTL="x"), publish(Nats_TTL="0"),
        publish(Nats_TTL="1h"), publish(
            Nats_Expected_Last_Subject_Sequence="1", Nats_Expected_Last_Sequence="7"),
        publish(Nats_Rollup="x", Nats_Expected_Last_Msg_Id="9"),
    ],
    "a purge of a group that has stored nothing": [
        stream("CREATE", 3), STEADY, api("STREAM.PURGE.%", {}), INFO, publish(),
        api("STREAM.PURGE.%", {}), INFO,
    ],
    "a pull that waits while its stream is moved": [
        stream("CREATE", 1, placement={"tags": ["all"]}), STEADY, DURABLE, STEADY,
        {**PULL, "body": "2"}, {**api("ACCOUNT.STREAM.MOVE.@.%", None), "sys": False}, STEADY,
        publish(), PULL,
    ],
    "what only the system account may ask": [api("SERVER.REMOVE", {})],
}  # fmt: skip


@pytest.fixture(scope="module")
def ports() -> Iterator[tuple[int, int]]:
    with Trio() as trio:
        yield trio.ports[0]


@pytest.mark.parametrize("name", HISTORIES)
def test_found(ports: tuple[int, int], name: str) -> None:
    result = asyncio.run(ClusterPlayer(ports, "u0").play(HISTORIES[name]))
    # What comes before its start is counted by nats-server.
    counted = result is not None and intended(HISTORIES[name], *result) == "before its start"
    assert result is None or counted, f"step {result[0]}\nours   {result[1]}\ntheirs {result[2]}"
