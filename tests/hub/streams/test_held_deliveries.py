"""A leader that stands still between what it hands out and the write to its client."""

import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import nats
import pytest
from nats.errors import Error as NatsError

from headwater.hub.routes.unsent import hold_deliveries, send_again
from headwater.hub.streams.held_deliveries import HeldDeliveries
from tests.hub.lab import Lab, api
from tests.hub.spare import SPARE, Spare
from tests.waiting import until

PROGRAM = """
import os, pathlib, signal, sys
from headwater.deploy.main import main
from headwater.hub.cluster.driver import Driver

armed, soon = pathlib.Path(sys.argv.pop(1)), Driver.soon

def stands(driver):
    soon(driver)
    if sys._getframe(1).f_code.co_name == "<lambda>" and armed.exists():
        armed.unlink()
        os.kill(os.getpid(), signal.SIGSTOP)

Driver.soon = stands
sys.exit(main())
"""


class Standing(Spare):
    """A member that stops itself by SIGSTOP at the end of a turn in which streams have something to
    propose, before it sends what the turn has queued; once, when `armed` exists."""

    def __init__(self, folder: Path, routes: list[str]) -> None:
        super().__init__(folder, routes)
        self.armed = folder / "armed"
        self.program = [sys.executable, "-c", PROGRAM, str(self.armed)]

    def stands(self) -> bool:
        """Whether it is stopped."""
        state = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state == "T"


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Lab]:
    """Two nodes: with the one that stands still they are three."""
    found = Lab(tmp_path, 2)
    yield found
    await found.stop()


@pytest.fixture
async def standing(lab: Lab, tmp_path: Path) -> AsyncIterator[Standing]:
    await lab.formed()
    with Standing(tmp_path, lab.routes) as found:
        await until(lambda: SPARE in lab.places(), "the node is a member", 40)
        yield found


def led_elsewhere(lab: Lab) -> bool:
    """Whether one of the lab's nodes leads the stream."""
    nodes = [node for node in lab.nodes if node is not None and node.jetstream is not None]
    return any("S" in node.jetstream.accounts["$G"].streams for node in nodes)


async def leads(lab: Lab, name: str) -> bool:
    """Whether a node leads the stream; it is asked to."""
    client = lab.clients[0]
    found = (await api(client, "STREAM.INFO.S")).get("cluster", {}).get("leader")
    if found != name:
        await api(client, "STREAM.LEADER.STEPDOWN.S", placement={"preferred": name})
    return bool(found == name)


async def test_what_others_have_done_meanwhile_is_not_written(
    lab: Lab, standing: Standing
) -> None:
    client = await lab.connect(0)
    fields = {"name": "S", "subjects": ["s"], "num_replicas": 3}
    assert "error" not in await api(client, "STREAM.CREATE.S", **fields)
    config = {"durable_name": "c", "ack_policy": "explicit", "ack_wait": 60_000_000_000}
    request = "CONSUMER.DURABLE.CREATE.S.c"
    assert "error" not in await api(client, request, stream_name="S", config=config)
    await client.jetstream().publish("s", b"1")
    await until(partial(leads, lab, SPARE), "the node leads the stream", 20)
    own = await nats.connect(standing.url, allow_reconnect=False)
    lab.clients.append(own)
    inbox = await own.subscribe("own")
    await own.flush()
    standing.armed.touch()
    body = json.dumps({"batch": 1, "expires": int(60e9)}).encode()
    await own.publish("$JS.API.CONSUMER.MSG.NEXT.S.c", body, reply="own")
    await until(standing.stands, "it has handed out the message")
    await until(partial(led_elsewhere, lab), "another node leads the stream", 20)
    other = await client.jetstream().pull_subscribe_bind("c", stream="S")
    await (await other.fetch(1, timeout=10))[0].ack_sync()
    os.kill(standing.process.pid, signal.SIGCONT)
    heard = []
    with contextlib.suppress(NatsError):
        heard.append(await inbox.next_msg(10))
    assert [one.data for one in heard if one.data] == []
    await until(lambda: own.is_closed, "its client is cut off")


async def test_who_leads_on_sends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other replicas are asked, and no time has passed."""
    lab = Lab(tmp_path)
    try:
        await lab.formed()
        client = await lab.connect(0)
        fields = {"name": "S", "subjects": ["s"], "num_replicas": 3}
        assert "error" not in await api(client, "STREAM.CREATE.S", **fields)
        await client.jetstream().publish("s", b"1")
        await until(partial(leads, lab, "n1"), "the node leads the stream", 20)
        own = await lab.connect(1)
        sub = await own.jetstream().pull_subscribe("s", "c", stream="S")
        node, groups = lab.nodes[1], lab.service(1)._groups
        assert node is not None and groups is not None
        soon, asked = groups.driver.soon, []

        def late() -> None:
            soon()
            found = hold_deliveries(node.kernel)
            for output, _ in found:
                send_again(node.kernel, output)
            if found:
                asked.append(found)
                held = HeldDeliveries(node.kernel, lambda: list(groups.groups.values()))
                held.stood()

        monkeypatch.setattr(groups.driver, "soon", late)
        (found,) = await sub.fetch(1, timeout=10)
        await found.ack_sync()
        assert found.data == b"1" and [names for _, names in asked[0]] == [{"S"}]
    finally:
        await lab.stop()
