"""What becomes of mirrors and sources whose origin is not what it was; docs/FEDERATION.md has the
table. The origin is a Headwater node or the real server, in a process of its own."""

import shutil
from typing import Any

import pytest
from nats.js import JetStreamContext
from nats.js.api import ConsumerConfig, ExternalStream, StreamConfig, StreamSource
from nats.js.errors import ServerError

from headwater.edge.monitor.pages.healthz import HealthzOptions, healthz
from headwater.edge.node.node import Node
from headwater.federation.origins import origin_follower
from headwater.federation.origins.origin_cursor import Cursor
from headwater.federation.origins.origin_driver import STARTED_AT_ONCE
from tests.edge.jetstream.backup.test_stream_backup import Backup
from tests.federation.lab import Lab, RealServer, client_port, free_port, leaf_service
from tests.waiting import until

SOURCE = StreamSource(name="ORIGIN", external=ExternalStream(api="$JS.edge.API"))


class Pair:
    """A hub in this process, and an edge with the origin, which is `kind`."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.kind = ""
        self.hub: Node
        self.edge: RealServer
        self.there: JetStreamContext
        self.here: JetStreamContext

    async def start(self, kind: str) -> "Pair":
        self.kind = kind
        port = free_port()
        self._hub_config = (
            f'jetstream {{ store_dir: "{self.lab.directory}/hub", domain: hub }}\n'
            f"server_name: hub\nleafnodes {{ listen: 127.0.0.1:{port} }}"
        )
        self.hub = await self.lab.node(self._hub_config)
        self.edge = await self.lab.real(
            'jetstream { store_dir: "{store}", domain: edge }\n'
            f'leafnodes {{ reconnect: "100ms", remotes [ {{ url: "nats://127.0.0.1:{port}" }} ] }}',
            "edge",
            kind,
        )
        self.here = (await self.lab.client(client_port(self.hub))).jetstream(timeout=10)
        await self.reconnect()
        return self

    async def restart_hub(self) -> None:
        """Stop the hub and start it on the same store."""
        await self.hub.stop()
        self.hub = await self.lab.node(self._hub_config)
        self.here = (await self.lab.client(client_port(self.hub))).jetstream(timeout=10)

    async def reconnect(self) -> None:
        """Talk to the edge anew."""
        self.there = (await self.lab.client(self.edge.port)).jetstream(timeout=10)

    async def origin(self, first: int, end: int, size: int = 0) -> None:
        """Make the origin if need be, and publish messages with these numbers, of at least `size`
        bytes."""
        await until(self._made, "nats-server has removed what was deleted")
        for number in range(first, end):
            await self.there.publish("data", (b"%d" % number).ljust(size))

    async def _made(self) -> bool:
        """Make the origin. nats-server may refuse while it removes the folder of one that was
        deleted."""
        try:
            await self.there.add_stream(name="ORIGIN", subjects=["data"])
        except ServerError as error:
            if self.kind != "real" or error.err_code != 10049:
                raise
            return False
        return True

    async def again(self, first: int, end: int, size: int = 0) -> None:
        """Delete the origin and make it anew."""
        await self.there.delete_stream("ORIGIN")
        await self.origin(first, end, size)

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


@pytest.mark.parametrize("kind", ["headwater", "real"])
async def test_who_the_origin_is_counts_where_messages_are_too_large_to_compare(
    lab: Lab, kind: str
) -> None:
    pair = await Pair(lab).start(kind)
    await pair.origin(0, 3, 20_000)
    await pair.copy("MIRROR", True)
    await pair.copy("SOURCE", False)
    await pair.holds("MIRROR", 0, 1, 2)
    await pair.holds("SOURCE", 0, 1, 2)
    await pair.again(100, 105, 20_000)
    await pair.state("MIRROR", "recreated")
    assert pair.numbers("MIRROR") == [0, 1, 2]
    await pair.holds("SOURCE", 0, 1, 2, *range(100, 105))


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


@pytest.mark.parametrize("grown", [5, 10, 25], ids=["shorter", "equal", "longer"])
@pytest.mark.parametrize("online", [True, False], ids=["online", "offline"])
@pytest.mark.parametrize("kind", ["headwater", "real"])
async def test_origin_put_back_from_an_old_image(
    lab: Lab, kind: str, online: bool, grown: int
) -> None:
    """It has forgotten what copies have, and gives its numbers out again, while they may follow it
    or are not there. What it has is what it stored as both kinds of server end cleanly."""
    pair = await Pair(lab).start(kind)
    await pair.origin(0, 10)
    await pair.there._nc.close()
    pair.edge.end()
    image = lab.directory / "image"
    shutil.copytree(pair.edge.directory / "store", image)
    await pair.edge.start()
    await pair.reconnect()
    await pair.copy("MIRROR", True)
    await pair.copy("ALL", False)
    await pair.origin(10, 20)
    await pair.holds("MIRROR", *range(20))
    await pair.holds("ALL", *range(20))
    await pair.there._nc.close()
    pair.edge.end()
    shutil.rmtree(pair.edge.directory / "store")
    image.rename(pair.edge.directory / "store")
    if not online:
        leaf_service(pair.hub).listener.close()
    await pair.edge.start()
    await pair.reconnect()
    new = range(100, 100 + grown)
    await pair.origin(new.start, new.stop)
    assert (await pair.there.stream_info("ORIGIN")).state.last_seq == 10 + grown
    if not online:
        leaf_service(pair.hub).listener.start(pair.hub)
    await pair.holds("ALL", *range(20), *new)
    status = await pair.state("MIRROR", "recreated")
    assert "20" in status["cause"]
    assert pair.numbers("MIRROR") == list(range(20))
    await pair.here.purge_stream("MIRROR")
    await pair.holds("MIRROR", *range(10), *new)
    await pair.origin(200, 202)
    await pair.holds("MIRROR", *range(10), *new, 200, 201)
    await pair.holds("ALL", *range(20), *new, 200, 201)


@pytest.mark.parametrize(
    ("kind", "before", "grown"),
    [
        ("headwater", "restart", 5),
        ("headwater", "live", 10),
        ("headwater", "old cursor", 25),
        ("real", "restart", 25),
        ("real", "live", 5),
    ],
)
async def test_a_source_tells_constant_values_by_their_times(
    lab: Lab, kind: str, before: str, grown: int
) -> None:
    """All messages are equal and have no ids. The source goes on from memory, from the cursor of
    its log, or from one that a version before wrote, whose time it learns from the origin."""
    pair = await Pair(lab).start(kind)
    await pair.origin(0, 0)

    async def send(count: int) -> None:
        for _ in range(count):
            await pair.there.publish("data", b"7")

    await send(10)
    await pair.there._nc.close()
    pair.edge.end()
    image = lab.directory / "image"
    shutil.copytree(pair.edge.directory / "store", image)
    await pair.edge.start()
    await pair.reconnect()
    await pair.copy("ALL", False)
    await send(10)
    await pair.holds("ALL", *[7] * 20)
    if before != "live":
        if before == "old cursor":
            follower = pair.stream("ALL").origin_driver.followers[0]
            manager, cursor = follower.driver.manager, Cursor(20, 20, follower.place.identity)
            follower.driver.stop()
            manager.keep_cursor(pair.stream("ALL"), follower.name, False, cursor)
        await pair.restart_hub()
        await pair.state("ALL", "live")
    await pair.there._nc.close()
    pair.edge.end()
    shutil.rmtree(pair.edge.directory / "store")
    image.rename(pair.edge.directory / "store")
    leaf_service(pair.hub).listener.close()
    await pair.edge.start()
    await pair.reconnect()
    await send(grown)
    leaf_service(pair.hub).listener.start(pair.hub)
    await pair.holds("ALL", *[7] * (20 + grown))
    await send(2)
    await pair.holds("ALL", *[7] * (22 + grown))


async def test_the_last_of_many_sources_is_copied(lab: Lab) -> None:
    """Those behind the first get their followers later, so that none holds the loop for long."""
    pair = await Pair(lab).start("headwater")
    await pair.origin(0, 3)
    names = [f"NONE{number}" for number in range(2 * STARTED_AT_ONCE)]
    sources = [*(StreamSource(name=name) for name in names), SOURCE]
    made = await pair.here.add_stream(StreamConfig(name="MANY", sources=sources))
    await pair.holds("MANY", 0, 1, 2)
    info = await pair.here.stream_info("MANY")
    for each in (made, info):
        assert [source.name for source in each.sources] == [*names, "ORIGIN"]
    driver = pair.stream("MANY").origin_driver
    assert [each.source.name for each in driver.followers] == [*names, "ORIGIN"]
    await pair.here.delete_stream("MANY")
    assert {each.phase for each in driver.followers} == {"stopped"}


async def test_a_source_finds_where_histories_part(lab: Lab) -> None:
    """After a start, with a wrong clock, among other sources, and with much deleted there."""
    pair = await Pair(lab).start("real")
    await pair.there.add_stream(name="OTHER", subjects=["other"])
    await pair.origin(0, 40)
    await pair.there._nc.close()
    pair.edge.end()
    image = lab.directory / "image"
    shutil.copytree(pair.edge.directory / "store", image)
    await pair.edge.start()
    await pair.reconnect()
    other = StreamSource(name="OTHER", external=SOURCE.external)
    await pair.here.add_stream(StreamConfig(name="ALL", sources=[SOURCE, other]))
    await pair.holds("ALL", *range(40))
    await pair.origin(40, 60)
    await pair.holds("ALL", *range(60))
    await pair.there.publish("other", b"1000")
    await pair.holds("ALL", *range(60), 1000)
    await pair.there._nc.close()
    pair.edge.end()
    shutil.rmtree(pair.edge.directory / "store")
    image.rename(pair.edge.directory / "store")
    leaf_service(pair.hub).listener.close()
    await pair.edge.start()
    await pair.reconnect()
    await pair.origin(100, 130)
    for sequence in (*range(1, 20), *range(24, 38)):
        await pair.there.delete_msg("ORIGIN", sequence)
    follower = pair.stream("ALL").origin_driver.followers[0]
    # As if this node had been started anew: nothing but what is stored tells.
    follower.place.stored_ns = 0
    leaf_service(pair.hub).listener.start(pair.hub)
    await until(lambda: len(pair.numbers("ALL")) > 90, "the new ones are there")
    assert pair.numbers("ALL") == [*range(60), 1000, *range(100, 130)]


@pytest.mark.parametrize("grown", [5, 25], ids=["shorter", "longer"])
@pytest.mark.parametrize("kind", ["headwater", "real"])
async def test_origin_put_back_from_a_backup(lab: Lab, kind: str, grown: int) -> None:
    """By the API, in place of the stream that was deleted."""
    pair = await Pair(lab).start(kind)
    await pair.origin(0, 10)
    backups = Backup(pair.there._nc)
    backup = await backups.take("ORIGIN")
    await pair.copy("MIRROR", True)
    await pair.copy("ALL", False)
    await pair.origin(10, 20)
    await pair.holds("MIRROR", *range(20))
    await pair.holds("ALL", *range(20))
    await pair.there.delete_stream("ORIGIN")
    done = await backups.bring("ORIGIN", *backup)
    assert "error" not in done, done
    new = range(100, 100 + grown)
    await pair.origin(new.start, new.stop)
    await pair.state("MIRROR", "recreated")
    await until(lambda: pair.numbers("ALL")[-1] == new.stop - 1, "the source has the new ones")
    assert pair.numbers("ALL") == [*range(20), *new]
    await pair.here.purge_stream("MIRROR")
    await pair.holds("MIRROR", *range(10), *new)
