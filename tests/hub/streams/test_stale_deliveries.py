"""What was handed out to clients of a node that stood still, and others have done since.

The node is a process that is stopped by SIGSTOP; its client's connection stays.
"""

import asyncio
import json
from functools import partial

import nats
import pytest
from nats.aio.client import Client
from nats.errors import NoRespondersError

from headwater.hub.routes.route_conn import RouteConn
from tests.hub.lab import Lab, api
from tests.hub.spare import Spare
from tests.waiting import silence, until

SOON_NS, LATER_NS = 500_000_000, 60_000_000_000
"""Until a message is handed out again."""
STANDS_S = 1.3
"""For which a node stands still: long enough that what waits for it is asked about."""


async def waits(client: Client, name: str) -> bool:
    """Whether a pull request waits at a consumer."""
    return bool((await api(client, f"CONSUMER.INFO.S.{name}"))["num_waiting"] == 1)


async def reaches(client: Client, name: str) -> bool:
    """Whether the client's node knows who serves a consumer: others tell it a moment later."""
    subject = f"$JS.API.CONSUMER.MSG.NEXT.S.{name}"
    try:
        answer = await client.request(subject, b'{"batch":1,"no_wait":true}', timeout=5)
    except NoRespondersError:
        return False
    return bool(answer.headers and answer.headers["Status"] == "404")


async def ask(client: Client, name: str) -> None:
    """Ask a consumer for one message."""
    body = json.dumps({"batch": 1, "expires": int(60e9)}).encode()
    await client.publish(f"$JS.API.CONSUMER.MSG.NEXT.S.{name}", body, reply="far")
    await client.flush()


@pytest.mark.parametrize("replicas", [3, 1])
async def test_what_was_done_meanwhile_comes_no_more(
    lab: Lab, spare: Spare, replicas: int
) -> None:
    client = await lab.connect(1)
    js = client.jetstream()
    fields = {"name": "S", "subjects": ["s"], "num_replicas": replicas}
    assert "error" not in await api(client, "STREAM.CREATE.S", **fields)
    far = await nats.connect(spare.url, allow_reconnect=False)
    lab.clients.append(far)
    inbox = await far.subscribe("far")
    for name, wait in (("soon", SOON_NS), ("later", LATER_NS)):
        config = {"durable_name": name, "ack_policy": "explicit", "ack_wait": wait}
        request = f"CONSUMER.DURABLE.CREATE.S.{name}"
        assert "error" not in await api(client, request, stream_name="S", config=config)
        await until(partial(reaches, far, name), "the consumer is known there")
        await ask(far, name)
        await until(partial(waits, client, name), "it asks for a message")
    near = await js.pull_subscribe_bind("soon", stream="S")
    with spare.stopped():
        await js.publish("s", b"1")
        await silence(STANDS_S)
        # What was sent to the node that stands still has run out, and goes to whoever asks.
        await (await near.fetch(1, timeout=10))[0].ack_sync()
    await js.publish("s", b"2")
    await ask(far, "soon")
    found = [await inbox.next_msg(10) for _ in range(2)]
    names = [one.reply.split(".")[3] for one in found]
    assert list(zip(names, [one.data for one in found], strict=True)) == [
        ("later", b"1"),
        ("soon", b"2"),
    ]


async def test_a_new_route_is_waited_for_beside_those_of_before(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One route of a pool ends, and another comes in its place, while what came by the others is
    still asked about."""
    await lab.formed()
    absences = lab.service(1).absences
    assert absences is not None
    stale = absences.late.stale
    passed = asyncio.Event()
    fence = stale.transport.fence

    async def later(number: int, seconds: float) -> None:
        await passed.wait()
        await fence(number, seconds)

    def to_peer() -> list[RouteConn]:
        return [r for r in stale.transport.all_routes() if r.session.peer.server_name == "n2"]

    monkeypatch.setattr(stale.transport, "fence", later)
    before = to_peer()
    stale._begin(before[0])
    before[-1].close("")
    new = await until(lambda: set(to_peer()) - set(before), "a route in its place")
    stale._begin(new.pop())
    waits = list(stale._tasks)
    passed.set()
    await asyncio.gather(*waits)
    assert len(waits) == 2
    assert not any(stale.asks(conn) for conn in to_peer())
