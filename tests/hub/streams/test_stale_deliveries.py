"""What was handed out to clients of a node that stood still, and others have done since.

The node is a process that is stopped by SIGSTOP; its client's connection stays.
"""

import json
import urllib.request
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import nats
import pytest
from nats.aio.client import Client

from tests.hub.cluster.test_moves_taken_back import SPARE, Spare
from tests.hub.lab import Lab, api
from tests.waiting import silence, until

SOON_NS, LATER_NS = 500_000_000, 60_000_000_000
"""Until a message is handed out again."""
STANDS_S = 1.3
"""For which a node stands still: long enough that what waits for it is asked about."""


@pytest.fixture
async def spare(lab: Lab, tmp_path: Path) -> AsyncIterator[Spare]:
    """A member beside the three of the lab that has no stream."""
    await lab.formed()
    with Spare(tmp_path, lab.routes) as found:
        await until(lambda: SPARE in lab.places(), "the spare node is a member", 40)
        yield found


def url_of(spare: Spare) -> str:
    """Where clients find it."""
    with urllib.request.urlopen(f"http://127.0.0.1:{spare.monitor}/varz", timeout=30) as answer:
        return f"nats://127.0.0.1:{json.load(answer)['port']}"


async def waits(client: Client, name: str) -> bool:
    """Whether a pull request waits at a consumer."""
    return bool((await api(client, f"CONSUMER.INFO.S.{name}"))["num_waiting"] == 1)


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
    far = await nats.connect(url_of(spare), allow_reconnect=False)
    lab.clients.append(far)
    inbox = await far.subscribe("far")
    for name, wait in (("soon", SOON_NS), ("later", LATER_NS)):
        config = {"durable_name": name, "ack_policy": "explicit", "ack_wait": wait}
        request = f"CONSUMER.DURABLE.CREATE.S.{name}"
        assert "error" not in await api(client, request, stream_name="S", config=config)
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
