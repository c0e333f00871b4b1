"""A mirror or source that cannot store what comes."""

import logging
import time

import pytest
from nats.js.api import DiscardPolicy, StreamConfig, StreamSource

from headwater.edge.ports import allocation
from tests.federation.lab import JETSTREAM, Lab, client_port, free_port, leafs
from tests.federation.origins.test_slow_links import Line, of
from tests.slow import one_in
from tests.waiting import silence, until

BUDGET = 32 << 20
COUNT, SIZE = 32, 500_000
"""A copy of the origin: it has room beside as much again only when that is removed."""


async def small_edge(lab: Lab) -> Line:
    """A hub, and an edge whose disk is full before it has the whole of a second stream."""
    port = free_port()
    hub = await lab.node(
        JETSTREAM.format(store=lab.directory / "hub", domain="hub")
        + f"leafnodes {{ listen: 127.0.0.1:{port} }}"
    )
    wire = await lab.wire(port)
    edge = await lab.node(
        JETSTREAM.format(store=lab.directory / "edge", domain="edge")
        + f'leafnodes {{ remotes [ {{ url: "nats://127.0.0.1:{wire.port}" }} ] }}\n'
        f"headwater {{ disk_budget: {BUDGET} }}"
    )
    await until(lambda: leafs(hub) and leafs(edge), "the link is up")
    return Line(lab, hub, edge, wire)


@pytest.mark.parametrize("mirror", one_in(2, [True, False]), ids=["mirror", "source"])
async def test_a_copy_without_room_asks_less_and_less(
    lab: Lab, caplog: pytest.LogCaptureFixture, mirror: bool
) -> None:
    """Each time it asks, the link carries for nothing what the origin sends ahead. It says how far
    behind it is, logs each cause once, and goes on when there is room."""
    caplog.set_level(logging.INFO, "headwater.origin")
    made = await small_edge(lab)
    await made.publish("ALL", COUNT, SIZE)
    js = (await lab.client(client_port(made.edge))).jetstream(timeout=10)
    await js.add_stream(name="OTHER", subjects=["other"])
    for _ in range(COUNT):
        await js.publish("other", bytes(SIZE))
    origin = {"mirror": of("ALL")} if mirror else {"sources": [of("ALL")]}
    await js.add_stream(StreamConfig(name="COPY", **origin))
    follower, store = made.follower("COPY"), made.store("COPY")
    # Where a device is slow, that is the first cause.
    await until(lambda: allocation.OVER in follower.health.cause, "it is full")
    begun, had = time.monotonic(), follower.recreations
    await until(lambda: follower.recreations == had + 3, "it has asked again")
    assert time.monotonic() - begun > 1.2
    await until(lambda: follower.health.lag() == COUNT - store.messages > 0, "it says so")
    assert follower.health.state == "stalled"
    causes = [each for each in caplog.messages if "could not be stored" in each]
    assert len([each for each in causes if allocation.OVER in each]) == 1
    assert len(causes) == len(set(causes))
    await js.delete_stream("OTHER")
    await until(lambda: store.messages == COUNT, "it goes on")
    await until(lambda: follower.health.state == "live", "it is well")


@pytest.mark.parametrize("kind", ["headwater", "real"])
async def test_a_copy_that_discards_new_messages_keeps_its_limits(lab: Lab, kind: str) -> None:
    """What does not fit waits at the origin; where there is room again, it comes in order."""
    server = await lab.real('jetstream { store_dir: "{store}" }', "node", kind)
    js = (await lab.client(server.port)).jetstream(timeout=10)
    await js.add_stream(name="ORIGIN", subjects=["origin"])
    for number in range(50):
        await js.publish("origin", b"%d" % number)
    origin = StreamSource(name="ORIGIN")
    new = DiscardPolicy.NEW
    copies = [
        StreamConfig(name="MIRROR", mirror=origin, max_msgs=5, discard=new),
        StreamConfig(name="SOURCES", sources=[origin], max_msgs=5, discard=new),
        StreamConfig(name="SMALL", mirror=origin, max_bytes=300, discard=new),
    ]
    for config in copies:
        await js.add_stream(config)

    async def held() -> list[int]:
        return [(await js.stream_info(str(each.name))).state.messages for each in copies]

    async def is_full() -> bool:
        return await held() == [5, 5, 8]

    await until(is_full, "each has what it may have")
    await silence(1.0)
    assert await held() == [5, 5, 8]
    if kind == "real":
        return  # Its mirrors take long to try again.
    for config in copies:
        await js.update_stream(config.evolve(max_msgs=-1, max_bytes=-1))

    async def is_whole() -> bool:
        return await held() == [50, 50, 50]

    await until(is_whole, "the rest has come")
    for config in copies:
        found = [await js.get_msg(str(config.name), sequence) for sequence in range(1, 51)]
        assert [each.data for each in found] == [b"%d" % number for number in range(50)]
