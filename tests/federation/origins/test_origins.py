"""What becomes of mirrors and sources whose origin is not what it was; docs/FEDERATION.md has the
table. The origin is a Headwater node or the real server, in a process of its own."""

import shutil
from typing import Any

import pytest
from nats.js import JetStreamContext
from nats.js.api import ConsumerConfig, ExternalStream, StreamConfig, StreamSource

from headwater.edge.monitor.pages.healthz import HealthzOptions, healthz
from headwater.edge.node.node import Node
from headwater.federation.origins import origin_follower
from tests.federation.lab import Lab, RealServer, client_port, free_port
from tests.waiting import until

SOURCE = StreamSource(name="ORIGIN", external=ExternalStream(api="$JS.edge.API"))


class Pair:
    """A hub in this process, and an edge with the origin, which is `kind`."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.hub: Node
        self.edge: RealServer
        self.there: JetStreamContext
        self.here: JetStreamContext

    async def start(self, kind: str) -> "Pair":
        port = free_port()
        self.hub = await self.lab.node(
            f'jetstream {{ store_dir: "{self.lab.directory}/hub", domain: hub }}\n'
            f"server_name: hub\nleafnodes {{ listen: 127.0.0.1:{port} }}"
        )
        self.edge = await self.lab.real(
            'jetstream { store_dir: "{store}", domain: edge }\n'
            f'leafnodes {{ reconnect: "100ms", remotes [ {{ url: "nats://127.0.0.1:{port}" }} ] }}',
            "edge",
            kind,
        )
        self.here = (await self.lab.client(client_port(self.hub))).jetstream(timeout=10)
        await self.reconnect()
        return self

    async def reconnect(self) -> None:
        """Talk to the edge anew."""
        self.there = (await self.lab.client(self.edge.port)).jetstream(timeout=10)

    async def origin(self, first: int, end: int) -> None:
        """Make the origin if need be, and publish messages with these numbers."""
        await self.there.add_stream(name="ORIGIN", subjects=["data"])
        for number in range(first, end):
            await self.there.publish("data", b"%d" % number)

    async def again(self, first: int, end: int) -> None:
        """Delete the origin and make it anew."""
        await self.there.delete_stream("ORIGIN")
        await self.origin(first, end)

    async def copy(self, name: str, mirror: bool) -> None:
        """A mirror or a source of the origin."""
        config = (
            StreamConfig(name=name, mirror=SOURCE)
            if mirror
            else (StreamConfig(name=name, sources=[SOURCE]))
        )
        await self.here.add_stream(config)

    def stream(self, name: str) -> Any:
        """A stream of the hub."""
        return self.hub.jetstream.accounts["$G"].streams[name]

    def numbers(self, name: str) -> list[int]:
        """What the messages of a stream of the hub say, in its order."""
        store = self.stream(name).store
        found = [store.get(i) for i in range(store.first_seq, store.last_seq + 1)]
        return [int(each.payload) for each in found if each is not None]

    async def holds(self, name: str, *numbers: int) -> None:
        """Wait until a stream of the hub holds exactly that."""
        await until(lambda: len(self.numbers(name)) >= len(numbers), f"{name} is complete")
        assert self.numbers(name) == list(numbers)

    async def state(self, name: str, wanted: str) -> dict[str, Any]:
        """Wait for a state; what monitoring says of the stream then."""

        def found() -> Any:
            status: dict[str, Any] = self.stream(name).origin_driver.followers[0].status()
            return status if status["state"] == wanted else None

        reached: dict[str, Any] = await until(found, f"{name} is {wanted}", 30)
        return reached


@pytest.mark.parametrize("count", [3, 10, 20], ids=["shorter", "equal", "longer"])
@pytest.mark.parametrize("kind", ["headwater", "real"])
async def test_mirror_of_an_origin_made_anew(lab: Lab, kind: str, count: int) -> None:
    pair = await Pair(lab).start(kind)
    await pair.origin(0, 10)
    await pair.copy("MIRROR", True)
    await pair.holds("MIRROR", *range(10))
    await pair.here.add_consumer("MIRROR", ConsumerConfig(durable_name="worker"))
    await pair.again(100, 100 + count)
    status = await pair.state("MIRROR", "recreated")
    assert "purge" in status["cause"]
    assert status["pending_messages"] is None
    assert pair.numbers("MIRROR") == list(range(10))
    info = await pair.here.stream_info("MIRROR")
    assert info.mirror is not None
    assert info.mirror.error is not None
    assert info.mirror.lag
    health = healthz(pair.hub)
    assert health["status_code"] == 200
    assert health["headwater"]["links"][0]["state"] == "recreated"
    assert healthz(pair.hub, HealthzOptions(links=True))["status_code"] == 503
    await pair.here.purge_stream("MIRROR")
    await until(lambda: pair.stream("MIRROR").store.last_seq == count, "it begins again")
    await pair.holds("MIRROR", *range(100, 100 + count))
    await pair.state("MIRROR", "live")
    assert "headwater" not in healthz(pair.hub)
    worker = await pair.here.pull_subscribe_bind("worker", "MIRROR")
    assert [int(m.data) for m in await worker.fetch(1)] == [100]
    await pair.origin(200, 201)
    await pair.holds("MIRROR", *range(100, 100 + count), 200)


async def test_a_mirror_without_messages_takes_an_origin_made_anew(lab: Lab) -> None:
    pair = await Pair(lab).start("headwater")
    await pair.origin(0, 10)
    await pair.copy("MIRROR", True)
    await pair.holds("MIRROR", *range(10))
    await pair.here.purge_stream("MIRROR")
    await pair.again(100, 105)
    await pair.holds("MIRROR", *range(100, 105))
    await pair.state("MIRROR", "live")


async def test_a_purged_mirror_begins_again_at_once(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = await Pair(lab).start("headwater")
    await pair.origin(0, 10)
    await pair.copy("MIRROR", True)
    await pair.holds("MIRROR", *range(10))
    # Whoever looked only from time to time would come late.
    monkeypatch.setattr(origin_follower, "RETRY_MIN_S", 600.0)
    monkeypatch.setattr(origin_follower, "RETRY_MAX_S", 600.0)
    monkeypatch.setattr(origin_follower, "NOBODY_RETRY_MAX_S", 0.2)
    await pair.again(100, 105)
    await pair.state("MIRROR", "recreated")
    await pair.here.purge_stream("MIRROR")
    await pair.holds("MIRROR", *range(100, 105))


@pytest.mark.parametrize("kind", ["headwater", "real"])
async def test_origin_put_back_from_an_old_image(lab: Lab, kind: str) -> None:
    """It has forgotten what copies have, and gives its numbers out again."""
    pair = await Pair(lab).start(kind)
    await pair.origin(0, 10)
    pair.edge.kill()
    image = lab.directory / "image"
    shutil.copytree(pair.edge.directory / "store", image)
    await pair.edge.start()
    await pair.reconnect()
    await pair.copy("MIRROR", True)
    await pair.copy("ALL", False)
    await pair.origin(10, 20)
    await pair.holds("MIRROR", *range(20))
    await pair.holds("ALL", *range(20))
    pair.edge.kill()
    shutil.rmtree(pair.edge.directory / "store")
    image.rename(pair.edge.directory / "store")
    await pair.edge.start()
    await pair.reconnect()
    await pair.origin(100, 105)
    last = (await pair.there.stream_info("ORIGIN")).state.last_seq
    await pair.holds("ALL", *range(20), *range(100, 105))
    if last > 20:
        await pair.holds("MIRROR", *range(20), *range(100, 105))
        return
    await pair.state("MIRROR", "recreated")
    assert pair.numbers("MIRROR") == list(range(20))
    await pair.here.purge_stream("MIRROR")
    await pair.holds("MIRROR", *range(10), *range(100, 105))
