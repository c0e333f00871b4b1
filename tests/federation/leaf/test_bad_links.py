"""Links that are cut, die in silence or are slow."""

import asyncio
import time

import pytest
from nats.js.api import ExternalStream, StreamConfig, StreamSource

from bench.servers import free_port
from headwater.edge.node.node import Node
from headwater.federation.leaf import doubts
from headwater.federation.origins import origin_follower
from tests.federation.lab import Lab, client_port, leaf_service, leafs, wired
from tests.measuring import within
from tests.waiting import silence, until

SOURCE = StreamSource(name="ORIGIN", external=ExternalStream(api="$JS.hub.API"))


async def messages(edge: Node, stream: str) -> int:
    """Messages in a stream of the edge."""
    return int(edge.jetstream.accounts["$G"].streams[stream].store.messages)


@pytest.mark.alone
@pytest.mark.parametrize("far_side", [True, False], ids=["seen by both", "seen by the edge"])
async def test_a_link_that_flaps_loses_nothing(
    lab: Lab, far_side: bool, caplog: pytest.LogCaptureFixture
) -> None:
    hub, edge, wire = await wired(lab)
    origin = (await lab.client(client_port(hub))).jetstream(timeout=5)
    copy = (await lab.client(client_port(edge))).jetstream(timeout=5)
    await origin.add_stream(name="ORIGIN", subjects=["data"])
    await copy.add_stream(StreamConfig(name="ALL", sources=[SOURCE]))
    await copy.add_stream(StreamConfig(name="MIRROR", mirror=SOURCE))
    sent = 0
    for _ in range(12):
        for _ in range(50):
            await origin.publish("data", b"%d" % sent)
            sent += 1
        wire.cut(far_side)
        await until(lambda: not leafs(edge), "the link is down")
        await until(lambda: leafs(edge), "the link is up")
    start = time.monotonic()
    streams = edge.jetstream.accounts["$G"].streams
    await until(lambda: streams["ALL"].store.messages >= sent, "the source has all")
    await until(lambda: streams["MIRROR"].store.messages >= sent, "the mirror has all")
    assert within(time.monotonic() - start, 2)
    for name in ("ALL", "MIRROR"):
        found = [int(streams[name].store.get(i).payload) for i in range(1, sent + 1)]
        assert found == list(range(sent))
        assert streams[name].store.messages == sent
    assert "Loop detected" not in caplog.text
    assert len(leafs(hub)) == 1


async def test_a_slow_link_stays_up_and_answers(lab: Lab) -> None:
    hub, edge, wire = await wired(lab)
    wire.bytes_per_s = 64 * 1024
    origin = await lab.client(client_port(hub))
    js = origin.jetstream(timeout=5)
    await js.add_stream(name="ORIGIN", subjects=["data"])
    copy = (await lab.client(client_port(edge))).jetstream(timeout=5)
    await copy.add_stream(StreamConfig(name="MIRROR", mirror=SOURCE))
    for _ in range(2000):
        await origin.publish("data", b"z" * 1000)
    await origin.flush()
    conn = next(iter(leaf_service(edge).links.conns.values()))
    await until(lambda: conn.in_msgs > 20, "messages flow")
    conn.ping()
    await until(lambda: not conn.pinged_ns, "the hub answers among bulk data")
    follower = edge.jetstream.accounts["$G"].streams["MIRROR"].origin_driver.followers[0]
    await until(lambda: follower.info()[0].lag > 100, "the lag is told")
    await silence(1)
    assert wire.connections == 1
    assert follower.recreations == 0
    assert not follower.health.stalled


async def test_a_hub_that_comes_back_late_is_linked_as_soon(lab: Lab) -> None:
    """However often nobody listened there, the pause is the configured one."""
    port = free_port()
    edge = await lab.node(
        f'leafnodes {{ reconnect: 1, remotes [ {{ url: "nats://127.0.0.1:{port}" }} ] }}'
    )
    (remote,) = leaf_service(edge).remotes
    await until(lambda: remote.failures, "nobody listens")
    remote.failures = 40
    pauses = [remote._delay(growing=False) for _ in range(100)]
    assert all(0.75 <= pause <= 1.25 for pause in pauses)
    assert all(1.5 <= remote._delay() <= 2.5 for _ in range(100))
    await lab.node(f"leafnodes {{ listen: 127.0.0.1:{port} }}")
    await until(lambda: leafs(edge), "the hub is linked")


async def test_dialling_ends_at_any_moment(lab: Lab) -> None:
    """Also just when the hub's port refuses: a stop waited for ever then, and it dialled on."""
    edge = await lab.node(
        f'leafnodes {{ reconnect: 50ms, remotes [ {{ url: "nats://127.0.0.1:{free_port()}" }} ] }}'
    )
    (remote,) = leaf_service(edge).remotes
    await remote.stop()
    for turns in range(160):
        remote.start()
        for _ in range(turns % 40):
            await asyncio.sleep(0)
        await asyncio.wait_for(remote.stop(), 5)
        assert remote.state == "stopped"


async def test_a_link_whose_other_side_is_gone_is_made_anew(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stays open, and nothing passes: who misses messages has it asked, long before the third
    PING of half a minute."""
    monkeypatch.setattr(origin_follower, "SILENCE_S", 1.5)
    monkeypatch.setattr(doubts, "PATIENCE_S", 1.5)
    hub, edge, wire = await wired(lab)
    origin = (await lab.client(client_port(hub))).jetstream(timeout=5)
    copy = (await lab.client(client_port(edge))).jetstream(timeout=5)
    await origin.add_stream(name="ORIGIN", subjects=["data"])
    await copy.add_stream(StreamConfig(name="MIRROR", mirror=SOURCE))
    await origin.publish("data", b"before")
    store = edge.jetstream.accounts["$G"].streams["MIRROR"].store
    await until(lambda: store.messages == 1, "it is mirrored")
    wire.strand()
    await origin.publish("data", b"after")
    await until(lambda: store.messages == 2, "it is mirrored by another link")
    assert wire.connections > 1


async def test_a_silent_origin_costs_no_link(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """The link answers when it is asked; one with much on its way is not asked."""
    monkeypatch.setattr(doubts, "PATIENCE_S", 0.5)
    hub, edge, wire = await wired(lab)
    links = leaf_service(edge).links
    (conn,) = links.of_account("$G")
    links.doubt("$G")
    await until(lambda: not links._doubts._asked, "it is judged")
    assert leafs(edge)
    wire.bytes_per_s = 100_000
    sender = await lab.client(client_port(edge))
    taker = await lab.client(client_port(hub))
    large = asyncio.Event()

    async def take(message: object) -> None:
        large.set()

    await taker.subscribe("large", cb=take)
    await until(lambda: edge.account("$G").has_interest(b"large"), "the interest is known")
    await sender.publish("large", bytes(400_000))
    await sender.flush()
    links.doubt("$G")
    await asyncio.wait_for(large.wait(), 60)
    assert not conn.closed
    assert wire.connections == 1
