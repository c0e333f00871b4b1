"""Requests that find the queue of the API full: the system account hears of them, on both servers.

nats-server drops all that wait and answers none; Headwater refuses what finds no place.
"""

import asyncio
import json
from collections.abc import Iterator

import nats
import pytest

from bench.servers import Recipe, Server, program
from headwater.edge.jetstream.api.long_work import FEW

CONFIG = """
server_name: N
jetstream { store_dir: store, domain: dom, request_queue_limit: 1, info_queue_limit: 1 }
accounts {
  A { jetstream: enabled, users: [{user: a, password: a}] }
  $SYS { users: [{user: s, password: s}] }
}
"""
ADVISORY = "$JS.EVENT.ADVISORY.API.LIMIT_REACHED"
ASKED = 5
OVERLOAD = 10008


@pytest.fixture(params=["headwater", "nats-server"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    command = (program(request.param),) + (("serve",) if request.param == "headwater" else ())
    with Server(Recipe(request.param, command, CONFIG)) as server:
        yield server


async def connect(server: Server, user: str) -> nats.NATS:
    return await nats.connect(f"nats://{user}:{user}@127.0.0.1:{server.port}")


async def fill(client: nats.NATS) -> None:
    """A stream with more subjects than a request looks at in one turn."""
    js = client.jetstream()
    await js.add_stream(name="S", subjects=["s.*"], storage="memory")
    for number in range(FEW + 1):
        await client.publish(f"s.{number}", b"")
    await client.flush()


async def flood(server: Server) -> tuple[list[dict], int]:
    """Many requests at once: advisories of the system account, and how many were refused."""
    client, system = await connect(server, "a"), await connect(server, "s")
    told = await system.subscribe(ADVISORY)
    await system.flush()
    ours = server.recipe.name == "headwater"
    if ours:
        await fill(client)
    answers = await client.subscribe("answers")
    for _ in range(ASKED):
        body = json.dumps({"subjects_filter": ">"}).encode()
        await client.publish("$JS.API.STREAM.INFO.S", body, reply="answers")
    await client.flush()
    heard = []
    while ours and len(heard) < ASKED:
        heard.append(json.loads((await answers.next_msg(timeout=20)).data))
    refused = sum(one.get("error", {}).get("err_code") == OVERLOAD for one in heard)
    assert refused > 0 or not ours
    events = []
    while sum(event["dropped"] for event in events) < max(refused, 1):
        events.append(json.loads((await told.next_msg(timeout=20)).data))
    await client.close()
    await system.close()
    return events, refused


def test_the_system_account_hears_of_it(server: Server) -> None:
    events, refused = asyncio.run(flood(server))
    dropped = sum(event.pop("dropped") for event in events)
    assert dropped == refused or server.recipe.name == "nats-server"
    for event in events:
        assert event.pop("id") and event.pop("timestamp")
        assert event == {
            "type": "io.nats.jetstream.advisory.v1.api_limit_reached",
            "server": "N",
            "domain": "dom",
        }
