"""Links that are slow: what is large or much must not keep the rest from passing.

The line carries 256 KiB a second, and messages are as much shorter than those of a gateway on
64 kbit/s, so that seconds here stand for half minutes there.
"""

import asyncio
import os
import time
from typing import Any

import pytest
from nats.aio.msg import Msg
from nats.js.api import ExternalStream, StreamConfig, StreamSource

from bench.servers import free_port
from headwater.edge.node.node import Node
from headwater.federation.origins import origin_follower
from tests.federation.lab import JETSTREAM, Lab, Wire, client_port, leafs, wired
from tests.measuring import within
from tests.slow import slow
from tests.waiting import until

RATE = 256 * 1024


def of(name: str) -> StreamSource:
    """A stream of the hub."""
    return StreamSource(name=name, external=ExternalStream(api="$JS.hub.API"))


class Line:
    """An edge that mirrors streams of a hub over a slow wire."""

    def __init__(self, lab: Lab, hub: Node, edge: Node, wire: Wire) -> None:
        self.lab, self.hub, self.edge, self.wire = lab, hub, edge, wire

    def store(self, name: str) -> Any:
        """Messages of a stream of the edge."""
        return self.edge.jetstream.accounts["$G"].streams[name].store

    def follower(self, name: str) -> origin_follower.OriginFollower:
        """What fills a stream of the edge."""
        found: origin_follower.OriginFollower = (
            self.edge.jetstream.accounts["$G"].streams[name].origin_driver.followers[0]
        )
        return found

    async def publish(self, stream: str, count: int, size: int) -> None:
        """Fill a stream of the hub with messages that do not compress."""
        js = (await self.lab.client(client_port(self.hub))).jetstream(timeout=10)
        await js.add_stream(name=stream, subjects=[stream.lower()])
        await asyncio.gather(*(js.publish(stream.lower(), os.urandom(size)) for _ in range(count)))

    async def mirror(self, name: str, origin: str) -> None:
        """A mirror on the edge."""
        js = (await self.lab.client(client_port(self.edge))).jetstream(timeout=10)
        await js.add_stream(StreamConfig(name=name, mirror=of(origin)))


async def line(lab: Lab) -> Line:
    """A hub and an edge in this process with a wire of unlimited speed."""
    return Line(lab, *await wired(lab))


@pytest.mark.alone
async def test_small_streams_and_requests_pass_bulk(lab: Lab) -> None:
    """While a mirror has megabytes to catch up, echoes take less than 8 s of a link of 64 kbit/s,
    and a small mirror that is added is there in seconds. The line is kept busy."""
    made = await line(lab)
    await made.publish("BULK", 4000, 1000)
    await made.publish("SMALL", 10, 100)
    made.wire.bytes_per_s = RATE
    await made.mirror("BULK", "BULK")
    store = made.store("BULK")
    await until(lambda: store.messages > 200, "bulk flows")
    service = await lab.client(client_port(made.hub))

    async def echo(message: Msg) -> None:
        await message.respond(message.data)

    await service.subscribe("echo", cb=echo)
    client = await lab.client(client_port(made.edge))
    await until(lambda: made.edge.account("$G").has_interest(b"echo"), "the echo is known")
    begun, first = time.monotonic(), store.messages
    passed, idle = made.wire.passed, made.wire.idle_s
    waits = []
    while len(waits) < 5:
        start = time.monotonic()
        await client.request("echo", b"hello", timeout=10)
        waits.append(time.monotonic() - start)
    assert within(max(waits), 3)
    added = time.monotonic()
    await made.mirror("SMALL", "SMALL")
    await until(lambda: made.store("SMALL").messages == 10, "the small mirror is complete")
    assert within(time.monotonic() - added, 6)
    assert store.messages < 4000
    # Frames, what the small mirror asks and the echoes take their share.
    assert (store.messages - first) * 1000 > 0.65 * (made.wire.passed - passed)
    assert made.wire.idle_s - idle < 0.35 * (time.monotonic() - begun)


async def test_large_messages_pass_one_by_one(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes longer than any patience, and is sent once all the same."""
    for name in ("SILENCE_S", "STALLED_S", "ANSWER_TIMEOUT_S", "INFO_TIMEOUT_S"):
        monkeypatch.setattr(origin_follower, name, 1.5)
    made = await line(lab)
    await made.publish("LARGE", 3, 500_000)
    made.wire.bytes_per_s = RATE
    await made.mirror("LARGE", "LARGE")
    health = made.follower("LARGE").health
    await until(lambda: health.state == "catching_up", "few, and much behind")
    await until(lambda: made.store("LARGE").messages == 3, "all are there", 30)
    assert made.follower("LARGE").recreations == 0
    (link,) = leafs(made.edge)
    assert link["in_bytes"] < 3.2 * 500_000


async def test_what_is_known_of_a_stream_is_old_while_others_fill_its_link(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A nats-server sends large messages whole. Behind them wait another stream's messages and
    heartbeats, and the origin's answers: how far behind that one is, nobody can tell."""
    for name, seconds in (("SILENCE_S", 1.5), ("MISSED_S", 1.0), ("CHECK_S", 2.0)):
        monkeypatch.setattr(origin_follower, name, seconds)
    port = free_port()
    hub = await lab.real(
        f"jetstream {{ store_dir: {{store}}, domain: hub }}\nleafnodes {{ port: {port} }}"
    )
    wire = await lab.wire(port)
    edge = await lab.node(
        JETSTREAM.format(store=lab.directory / "edge", domain="edge")
        + f'leafnodes {{ remotes [ {{ url: "nats://127.0.0.1:{wire.port}" }} ] }}'
    )
    js = (await lab.client(hub.port)).jetstream(timeout=10)
    for name in ("SMALL", "LARGE"):
        await js.add_stream(name=name, subjects=[name.lower()])
        made = await edge_mirror(lab, edge, name)
    await js.publish("small", b"first")
    small = edge.jetstream.accounts["$G"].streams["SMALL"]
    await until(lambda: small.store.messages == 1, "it follows")
    health = small.origin_driver.followers[0].health
    await until(lambda: health.state == "live", "it is live")
    wire.bytes_per_s = RATE / 4
    passed = wire.passed
    for _ in range(2):
        await js.publish("large", os.urandom(800_000))
    await until(lambda: wire.passed > passed + 50_000, "the first large one is on its way")
    for _ in range(30):
        await js.publish("small", b"later")
    await until(lambda: health.lag() is None, "the backlog is unknown", 20)
    assert small.store.messages == 1 and health.shown_lag() > 0
    assert health.report()["state"] == "catching_up"
    assert health.report()["pending_messages"] is health.report()["eta_seconds"] is None
    wire.bytes_per_s = 0.0
    await until(lambda: small.store.messages == 31, "it has all")
    await until(lambda: health.state == "live" and health.lag() == 0, "it is live again")
    assert made.store.messages == 2


async def edge_mirror(lab: Lab, edge: Node, name: str) -> Any:
    """A mirror on the edge of the hub's stream of the same name, as the edge has it."""
    js = (await lab.client(client_port(edge))).jetstream(timeout=10)
    await js.add_stream(StreamConfig(name=name, mirror=of(name)))
    return edge.jetstream.accounts["$G"].streams[name]


class WholeFrames:
    """Passes a link's frames on, each when all of it has come."""

    def __init__(self) -> None:
        self.rest = b""
        self.pieces = 0

    def __call__(self, data: bytes) -> bytes:
        data, end = self.rest + data, 0
        while (line := data.find(b"\r\n", end)) >= 0:
            words = data[end:line].split()
            after = line + 2
            if words[0] in (b"LMSG", b"HMSG", b"MSG", b"PMSG"):
                after += int(words[-1]) + 2
            if after > len(data):
                break
            self.pieces += words[0] == b"PMSG"
            end = after
        self.rest = data[end:]
        return data[:end]


@slow
async def test_a_message_in_pieces_may_take_longer_than_silence(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whenever one looks, a whole piece of it has come and no part of the next."""
    made = Line(lab, *await wired(lab, "compression: off", "compression: off"))
    await made.publish("LARGE", 1, 10)
    await made.mirror("LARGE", "LARGE")
    follower = made.follower("LARGE")
    await until(lambda: follower.health.state == "live", "it flows")
    for name in ("SILENCE_S", "STALLED_S"):
        monkeypatch.setattr(origin_follower, name, 0.8)
    whole = made.wire.alter_back = WholeFrames()
    made.wire.bytes_per_s = RATE // 8
    await made.publish("LARGE", 1, 100_000)
    await until(lambda: made.store("LARGE").messages == 2, "it is there", 30)
    assert whole.pieces > 10
    assert follower.recreations == 0


@slow
async def test_answers_may_take_longer_than_silence(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line whose buffers hold seconds: the first message comes two ways after the answer, and
    what confirms others as late. No consumer is taken for lost or stalled meanwhile."""
    monkeypatch.setattr(origin_follower, "SILENCE_S", 2.2)
    monkeypatch.setattr(origin_follower, "STALLED_S", 2.0)
    made = await line(lab)
    await made.publish("FAR", 12, 500)
    made.wire.delay_s = 1.2
    await made.mirror("FAR", "FAR")
    await until(lambda: made.store("FAR").messages == 12, "all are there", 30)
    assert made.follower("FAR").recreations == 0


async def test_a_lost_flow_control_answer_is_asked_for_again(lab: Lab) -> None:
    made = await line(lab)
    await made.publish("BULK", 200, 1000)
    lost = []

    def lose(data: bytes) -> bytes:
        if b"$JS.FC." in data and len(lost) < 2:
            lost.append(data)
            data = data.replace(b"$JS.FC.", b"$JS.XX.")
        return data

    made.wire.alter = lose
    await made.mirror("BULK", "BULK")
    await until(lambda: made.store("BULK").messages == 200, "the mirror is complete")
    assert len(lost) == 2
    assert made.follower("BULK").recreations == 0


async def test_flow_control_answers_that_never_arrive_are_told(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(origin_follower, "STALLED_S", 1.5)
    made = await line(lab)
    await made.publish("BULK", 100, 1000)
    made.wire.alter = lambda data: data.replace(b"$JS.FC.", b"$JS.XX.")
    await made.mirror("BULK", "BULK")
    status = made.follower("BULK").status
    await until(lambda: status()["state"] == "stalled", "it is said")
    assert "$JS.FC.>" in status()["cause"]
    await until(lambda: made.follower("BULK").recreations > 1, "it is tried again")
    assert status()["state"] == "stalled"
    made.wire.alter = bytes
    await until(lambda: status()["state"] == "live", "it goes on when they arrive")
    assert made.store("BULK").messages == 100
    (link,) = leafs(made.edge)
    assert link["in_bytes"] < 150_000


@slow
async def test_a_distant_origin_is_not_taken_for_a_slow_one(lab: Lab) -> None:
    """Half a window is confirmed in the time there and back, however fast the line is."""
    made = await line(lab)
    await made.publish("FAR", 600, 1000)
    made.wire.delay_s = 0.8
    await made.mirror("FAR", "FAR")
    await until(lambda: made.store("FAR").messages == 600, "all is there", 40)
