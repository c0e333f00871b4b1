"""Streams that move between nodes while they are written and read."""

import asyncio
import contextlib
from collections.abc import Iterator
from functools import partial
from typing import Any

import nats
import pytest
from nats.aio.client import Client
from nats.js.api import ConsumerConfig

from tests.hub.lab import Lab, api
from tests.waiting import until

R = {"name": "R", "subjects": ["r.>"], "num_replicas": 3}
BEFORE = 300
"""Messages that the stream has before it moves."""
UNSURE_MAX = 5
"""Acks whose answer may go with a leader that changes: one for each time, as the next one waits."""


class Traffic:
    """A publisher and a consumer that acks, through nodes that stay. `nats-py` as it is."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.acked: dict[int, bytes] = {}
        self.done: set[int] = set()
        """Sequences whose ack was confirmed."""
        self.unsure: set[int] = set()
        """Delivered, and no answer to the ack came: a leader that goes may have kept it."""
        self.twice: set[int] = set()
        self.goes_on = True
        self.tasks: list[asyncio.Task[None]] = []

    @property
    def running(self) -> bool:
        """Nobody has told it to stop. A client that was closed fails at once, each time."""
        return self.goes_on and not self.client.is_closed

    async def publish(self, count: int = 0) -> None:
        """Publish until told to stop, or `count` messages; what is not acked is sent again."""
        js = self.client.jetstream()
        number = len(self.acked)
        while self.running and (not count or len(self.acked) < count):
            payload = b"%d" % number
            with contextlib.suppress(nats.errors.Error):
                head = {"Nats-Msg-Id": payload.decode()}
                ack = await js.publish("r.a", payload, headers=head, timeout=1)
                assert self.acked.setdefault(ack.seq, payload) == payload
                number += 1

    async def consume(self) -> None:
        sub = await self.client.jetstream().pull_subscribe(
            "r.>", "worker", stream="R", config=ConsumerConfig(ack_wait=5)
        )
        while self.running or not self.done | self.unsure >= self.acked.keys():
            if self.client.is_closed:
                return
            with contextlib.suppress(nats.errors.Error):
                for message in await sub.fetch(20, timeout=0.5):
                    await self.take(message)

    async def take(self, message: Any) -> None:
        sequence = message.metadata.sequence.stream
        if sequence in self.done:
            self.twice.add(sequence)
        self.unsure.add(sequence)
        await message.ack_sync(timeout=1)
        self.done.add(sequence)

    async def begin(self) -> None:
        await self.publish(BEFORE)
        self.tasks = [asyncio.create_task(work) for work in (self.publish(), self.consume())]

    async def end(self) -> None:
        """Everything that was acked is there, was delivered, and once when that was confirmed."""
        self.goes_on = False
        await asyncio.wait_for(asyncio.gather(*self.tasks), 30)
        js = self.client.jetstream()
        for sequence, payload in self.acked.items():
            assert (await js.get_msg("R", sequence)).data == payload
        assert not self.twice
        assert self.done | self.unsure >= self.acked.keys()
        assert len(self.unsure - self.done) <= UNSURE_MAX

    def stop(self) -> None:
        """Whatever has happened: nobody publishes any more."""
        self.goes_on = False
        for task in self.tasks:
            task.cancel()

    @contextlib.contextmanager
    def more(self) -> Iterator[None]:
        """Something happens; messages are acked behind it, too."""
        before = len(self.acked)
        yield
        assert len(self.acked) > before


def nodes_of(answer: dict[str, Any]) -> set[str]:
    """The names of all nodes that an answer says have the stream."""
    place = answer["cluster"]
    return {place["leader"], *(row["name"] for row in place.get("replicas", []))}


async def arrived(client: Client, wanted: set[str], name: str = "R") -> bool:
    """Whether a stream is on exactly these nodes, and all have everything."""
    with contextlib.suppress(nats.errors.Error):
        answer = await api(client, f"STREAM.INFO.{name}")
        if "error" not in answer and "desired" not in answer["cluster"]:
            rows = answer["cluster"].get("replicas", [])
            return nodes_of(answer) == wanted and all(row["current"] for row in rows)
    return False


def keepers(lab: Lab) -> set[str]:
    """The nodes that store something of the stream."""
    return {
        cluster.jetstream.server_name
        for cluster in lab.clusters()
        if len(cluster.jetstream.store().stores()) > 1  # one is the meta group's
    }


def keeps(lab: Lab, name: str) -> bool:
    return name in keepers(lab)


@pytest.fixture
async def four(lab: Lab) -> Lab:
    """A cluster with one node more than a stream needs."""
    return await lab.resized(4)


async def test_a_stream_goes_round_under_load(four: Lab) -> None:
    """Every node is left once, the leader's among them; then placement moves all at once."""
    client = await four.connect(0)
    made = await api(client, "STREAM.CREATE.R", **R)
    traffic = Traffic(client)
    await traffic.begin()
    here = nodes_of(made)
    for leaves in sorted(here):
        with traffic.more():
            assert (await api(client, "STREAM.PEER.REMOVE.R", peer=leaves))["success"]
            here = (here - {leaves}) | ({"n0", "n1", "n2", "n3"} - here)
            await until(partial(arrived, client, here), f"{leaves} is left", 40)
    await until(lambda: keepers(four) == here, "what was left is gone")
    stays = sorted(here)[0]
    with traffic.more():
        fields = {**R, "placement": {"tags": [f"!az:{stays[1:]}"]}}
        assert "error" not in await api(client, "STREAM.UPDATE.R", **fields)
        here = {"n0", "n1", "n2", "n3"} - {stays}
        await until(partial(arrived, client, here), "placement counts", 40)
    await traffic.end()


async def test_a_stream_of_one_node_moves_and_comes_back(four: Lab) -> None:
    client = await four.connect(0)
    one = {**R, "num_replicas": 1, "placement": {"tags": ["az:1"]}}
    await api(client, "STREAM.CREATE.R", **one)
    traffic = Traffic(client)
    await traffic.begin()
    for target in (2, 1):
        with traffic.more():
            fields = {**one, "placement": {"tags": [f"az:{target}"]}}
            assert "error" not in await api(client, "STREAM.UPDATE.R", **fields)
            await until(partial(arrived, client, {f"n{target}"}), f"it is on {target}", 40)
    await until(lambda: keepers(four) == {"n1"}, "what was left is gone")
    await traffic.end()


async def test_what_cannot_be_copied_stays(four: Lab) -> None:
    """Of a stream whose node is away nothing can be read."""
    client = await four.connect(0)
    made = await api(client, "STREAM.CREATE.F", name="F", placement={"tags": ["!az:0"]})
    held = made["cluster"]["leader"]
    await four.stop_node(int(held[1:]))
    number = four.cluster(0).find_peer(held)
    await until(lambda: not any(c.founding.is_online(number) for c in four.clusters()))
    await until(lambda: four.leader() is not None)
    refused = await api(client, "STREAM.PEER.REMOVE.F", peer=held)
    assert refused["error"]["err_code"] == 10075
