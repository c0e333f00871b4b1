"""A stream of one node whose node stops: its requests are refused at once, as by nats-server, and
none is left without an answer."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client

from tests.hub.api.beside import Nodes, at_both, led
from tests.hub.lab import Lab, api
from tests.waiting import connected, until

ASKERS = 8
"""Requests that are on their way at once from each of the nodes that stay."""
SECONDS = 3.0
"""Ample for an answer."""
OFFLINE = {"STREAM.INFO.S": 10118, "CONSUMER.INFO.S.c": 10119, "STREAM.PURGE.S": 10118}


async def ask(client: Client, request: str, stopped: asyncio.Event) -> list[tuple[str, Any]]:
    """Ask again and again until the node has stopped, and once more; all answers."""
    found = []
    last = False
    while not last:
        last = stopped.is_set()
        try:
            answer = await api(client, request, timeout=SECONDS)
        except TimeoutError:
            answer = {"error": {"err_code": "none"}}
        found.append((request, answer.get("error", {}).get("err_code", 0)))
    return found


async def placed(index: int, client: Client) -> None:
    """A stream of that node alone, with a consumer."""
    body = {"name": "S", "subjects": ["s"], "placement": {"tags": [f"az:{index}"]}}
    assert "error" not in await api(client, "STREAM.CREATE.S", **body)
    config = {"durable_name": "c", "ack_policy": "explicit"}
    made = await api(client, "CONSUMER.CREATE.S.c", stream_name="S", config=config)
    assert "error" not in made


@pytest.mark.parametrize("leads", [False, True], ids=["a follower", "the leader of the cluster"])
async def test_a_node_that_stops_leaves_no_request_unanswered(lab: Lab, leads: bool) -> None:
    await lab.formed()
    leader = lab.leader() or 0
    index = leader if leads else (leader + 1) % 3
    clients = [await lab.connect(each) for each in range(3) if each != index]
    await placed(index, clients[0])
    stopped = asyncio.Event()
    askers = [
        asyncio.create_task(ask(client, request, stopped))
        for client in clients
        for request in OFFLINE
        for _ in range(ASKERS)
    ]
    await asyncio.sleep(0)
    await lab.stop_node(index)
    stopped.set()
    answers = await asyncio.gather(*askers)
    refused = {(request, code) for each in answers for request, code in each if code}
    assert refused == set(OFFLINE.items())
    assert {each[-1] for each in answers} == set(OFFLINE.items())


async def test_a_node_that_starts_again_is_asked_as_soon_as_it_answers(lab: Lab) -> None:
    await lab.formed()
    index = ((lab.leader() or 0) + 1) % 3
    clients = [await lab.connect(each) for each in range(3) if each != index]
    await placed(index, clients[0])

    async def back() -> bool:
        found = [await api(client, "STREAM.INFO.S") for client in clients]
        return not any("error" in each for each in found)

    for _ in range(2):
        there = asyncio.Event()
        askers = [
            asyncio.create_task(ask(client, request, there))
            for client in clients
            for request in OFFLINE
            for _ in range(ASKERS)
        ]
        await lab.stop_node(index)
        lab.start(index)
        await until(back, "the node answers again")
        there.set()
        answers = await asyncio.gather(*askers)
        refused = {(request, code) for each in answers for request, code in each if code}
        assert refused <= set(OFFLINE.items())


async def test_a_node_that_one_has_yet_to_see_again_is_asked_by_the_other(lab: Lab) -> None:
    """The client's node leaves the request to the cluster's leader, as the stream's node is away;
    the leader sees that node already, and leaves it to that one."""
    await lab.formed()
    leader = lab.leader() or 0
    index, asked = (leader + 1) % 3, (leader + 2) % 3
    client = await lab.connect(asked)
    await placed(index, client)
    await lab.stop_node(index)
    routes = lab.service(asked).route_service.routes
    assert routes is not None
    register, healed = routes.register, False

    def unless_away(conn: Any) -> bool:
        return (healed or conn.session.peer.server_name != f"n{index}") and register(conn)

    routes.register = unless_away  # type: ignore[method-assign]
    lab.start(index)
    await until(lambda: lab.service(index).cluster, "it has begun")
    number = lab.cluster(index).number
    await until(lambda: lab.cluster(leader).founding.answers(number), "the leader sees it")
    assert not lab.cluster(asked).founding.answers(number)
    relay = lab.service(leader)._routes.relay  # type: ignore[union-attr]
    asking = asyncio.ensure_future(api(client, "STREAM.INFO.S", timeout=SECONDS))
    await until(lambda: len(relay.left), "the leader has left it")
    healed = True
    assert "error" not in await asking


async def refusals(nodes: Nodes) -> dict[str, Any]:
    """What is said of a stream and its consumer when their only node has stopped."""
    user = await connected(f"nats://a:a@127.0.0.1:{nodes.port}")
    try:
        await until(lambda: led(user), "there is a leader")
        await placed(2, user)
        await nodes.stop(2)
        await until(lambda: led(user), "there is a leader again")
        requests = ("STREAM.INFO.S", "CONSUMER.INFO.S.c", "STREAM.INFO.NONE")
        return {each: (await api(user, each)).get("error") for each in requests}
    finally:
        await user.close()


async def test_requests_for_a_node_that_has_stopped_are_refused_alike(tmp_path: Path) -> None:
    theirs, ours = await at_both(tmp_path, refusals)
    assert ours == theirs
    assert ours["CONSUMER.INFO.S.c"]["err_code"] == OFFLINE["CONSUMER.INFO.S.c"]
