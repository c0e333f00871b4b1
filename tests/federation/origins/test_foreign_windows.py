"""A nats-server as origin sends 2 MiB ahead of an answer to flow control, unless it is asked for
less: what else wants the line would wait for all of that."""

import asyncio
import os
import random
import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import (
    ExternalStream,
    RetentionPolicy,
    StreamConfig,
    StreamConsumerLimits,
    StreamSource,
)

from headwater.edge.node.node import Node
from headwater.federation.origins.origin_follower import OriginFollower
from headwater.federation.origins.origin_questions import DISTANCE_MAX_S
from headwater.federation.origins.origin_window import FRAME, LEAST, OPEN, OriginWindow
from tests.federation.lab import JETSTREAM, Lab, Wire, client_port, free_port, leafs
from tests.slow import one_in, slow
from tests.waiting import until, until_state

RATE = 256 * 1024
MIB = 1 << 20


class Line:
    """A Headwater that copies a stream `S` of a nats-server over a wire."""

    def __init__(self, lab: Lab, edge: Node, wire: Wire, port: int) -> None:
        self.lab, self.edge, self.wire, self.port = lab, edge, wire, port

    async def origin(self) -> JetStreamContext:
        """The origin's JetStream."""
        return (await self.lab.client(self.port)).jetstream(timeout=10)

    async def copy(self, kind: str, name: str = "C", origin: str = "S") -> JetStreamContext:
        """Make a mirror, or a stream with a source."""
        js = (await self.lab.client(client_port(self.edge))).jetstream(timeout=30)
        of = StreamSource(name=origin, external=ExternalStream(api="$JS.hub.API"))
        config: dict[str, Any] = {"mirror": of} if kind == "mirror" else {"sources": [of]}
        await js.add_stream(StreamConfig(name=name, **config))
        return js

    def held(self, name: str = "C") -> int:
        """Messages of a copy."""
        return int(self.edge.jetstream.accounts["$G"].streams[name].store.messages)

    @property
    def follower(self) -> OriginFollower:
        """What fills the copy."""
        found: OriginFollower = (
            self.edge.jetstream.accounts["$G"].streams["C"].origin_driver.followers[0]
        )
        return found


async def line(lab: Lab) -> Line:
    """A wire of unlimited speed."""
    listener = free_port()
    real = await lab.real(
        JETSTREAM.format(store="{store}", domain="hub").replace("server_name: hub\n", "")
        + f"leafnodes {{ listen: 127.0.0.1:{listener} }}"
    )
    wire = await lab.wire(listener)
    edge = await lab.node(
        JETSTREAM.format(store=lab.directory / "edge", domain="edge")
        + 'leafnodes { reconnect: "50ms", remotes [ '
        f'{{ url: "nats://127.0.0.1:{wire.port}" }} ] }}'
    )
    await until(lambda: leafs(edge), "the link is up")
    return Line(lab, edge, wire, real.port)


async def filled(line: Line, count: int, size: Callable[[], int], **config: Any) -> None:
    """Messages of random content in the origin."""
    js = await line.origin()
    await js.add_stream(StreamConfig(name="S", subjects=["s"], **config))
    for first in range(0, count, 500):
        some = range(first, min(first + 500, count))
        await asyncio.gather(*(js.publish("s", os.urandom(size())) for _ in some))


async def same(line: Line, js: JetStreamContext, count: int) -> None:
    """The copy has what the origin has, each message once and in order."""
    origin = await line.origin()
    for sequence in sorted({1, count, *random.sample(range(1, count + 1), min(60, count))}):
        there = await origin.get_msg("S", sequence)
        here = await js.get_msg("C", sequence)
        assert here.data == there.data, sequence


@pytest.mark.parametrize("kind", one_in(2, ["mirror", "source"]))
async def test_requests_and_small_streams_pass_bulk(lab: Lab, kind: str) -> None:
    """They wait for two seconds' worth, not for 2 MiB."""
    made = await line(lab)
    await filled(made, 4000, lambda: 1000)
    origin = await made.origin()
    await origin.add_stream(name="FEW", subjects=["few"])
    for _ in range(10):
        await origin.publish("few", b"few")
    service = await lab.client(made.port)

    async def echo(message: Msg) -> None:
        await message.respond(message.data)

    await service.subscribe("echo", cb=echo)
    client = await lab.client(client_port(made.edge))
    await until(lambda: made.edge.account("$G").has_interest(b"echo"), "the echo is known")
    made.wire.bytes_per_s = RATE
    await made.copy(kind)
    await until(lambda: made.held() > 20, "bulk flows")
    for _ in range(3):
        before = made.wire.passed
        await client.request("echo", b"hello", timeout=60)
        assert made.wire.passed - before < MIB
    before = made.wire.passed
    await made.copy("mirror", "FEW", "FEW")
    await until(lambda: made.held("FEW") == 10, "the small one is complete", 60)
    assert made.wire.passed - before < 4 * MIB
    assert made.held() < 4000


async def test_it_is_fitted_to_the_line(lab: Lab) -> None:
    """A fast line opens it, one that becomes slow closes it, and the copy is the origin's. A
    consumer is asked for only where the window is another one."""
    made = await line(lab)
    await filled(made, 15_000, lambda: 1000)
    windows: list[int] = []

    def read(data: bytes) -> bytes:
        for request in data.split(b"$JS.hub.API.CONSUMER.CREATE")[1:]:
            found = re.search(rb'"max_ack_pending": ?(\d+)', request.partition(b"\r\n")[2])
            windows.append(int(found[1]) if found else 0)
        return data

    made.wire.alter = read
    js = await made.copy("source")
    made.wire.bytes_per_s = 16 * MIB
    await until(lambda: made.follower.window.size == 0, "it is open")
    assert made.follower.recreations == 0
    made.wire.bytes_per_s = RATE
    await until(lambda: 0 < made.follower.window.size < OPEN, "it is bounded again", 60)
    assert made.follower.recreations == 0
    made.wire.bytes_per_s = 0
    await until_state(js, "C", lambda state: state.messages == 15_000)
    await same(made, js, 15_000)
    assert 0 in windows
    assert all(one != other for one, other in pairwise(windows)), windows


@pytest.mark.parametrize("kind", ["mirror", "source"])
async def test_nothing_is_lost_or_repeated(lab: Lab, kind: str) -> None:
    """Messages of any size, with cuts, and answers to flow control that are lost."""
    made = await line(lab)
    await filled(made, 1500, lambda: random.choice((0, 50, 500, 5000, 50_000)))
    lost = []

    def lose(data: bytes) -> bytes:
        if b"$JS.FC." in data and random.random() < 0.2 and len(lost) < 5:
            lost.append(data)
            data = data.replace(b"$JS.FC.", b"$JS.XX.")
        return data

    made.wire.alter = lose
    made.wire.bytes_per_s = 8 * MIB
    js = await made.copy(kind)
    for share in (100, 300, 600, 1000):
        await until(lambda share=share: made.held() >= share, f"{share} are there", 60)  # type: ignore[misc]
        made.wire.cut()
    await until_state(js, "C", lambda state: state.messages == 1500)
    await same(made, js, 1500)


@pytest.mark.parametrize(
    "config",
    [
        {"retention": RetentionPolicy.INTEREST},
        {"retention": RetentionPolicy.WORK_QUEUE},
        {"consumer_limits": StreamConsumerLimits(max_ack_pending=5)},
    ],
    ids=["interest", "work queue", "limits"],
)
async def test_origins_that_bound_their_consumers(lab: Lab, config: dict[str, Any]) -> None:
    """The server makes another consumer of it, or refuses the window."""
    made = await line(lab)
    origin = await made.origin()
    await origin.add_stream(StreamConfig(name="S", subjects=["s"], **config))
    js = await made.copy("source")
    await until(lambda: made.follower.phase == "flowing", "it flows")
    for first in range(0, 2000, 500):
        await asyncio.gather(*(origin.publish("s", b"%d" % (first + n)) for n in range(500)))
    await until_state(js, "C", lambda state: state.messages == 2000)
    found = [int((await js.get_msg("C", n)).data or b"") for n in (1, 500, 1999, 2000)]
    assert found == [0, 499, 1998, 1999]


def test_a_window_is_two_seconds_and_one_message() -> None:
    window = OriginWindow()
    assert not window.messages(1000), "nobody has said that it is foreign"
    window.meet(True, b"", {"retention": "limits"})
    assert window.messages(1000) == LEAST // (1000 + FRAME) + 1
    assert window.messages(1_000_000) == 1
    window.begin(0.0, 0, 0)
    assert not window.asked(1.0, 15, 15_000, 0), "nothing is behind"
    assert window.asked(2.0, 115, 115_000, 1 << 30)
    assert window.size == 2 * 100 * (1000 + FRAME)
    window.begin(2.0, 0, 0)
    assert not window.asked(4.0, 200, 200_000, 1 << 30), "it fits"
    window.begin(4.0, 0, 0)
    assert window.asked(4.1, 200, 200_000, 1 << 30)
    assert window.messages(1000) == 0, "open"
    window.begin(5.0, 0, 0)
    assert not window.asked(25.0, 1000, 1_000_000, 1000), "it has all"
    assert window.asked(45.0, 2000, 2_000_000, 1 << 30)
    assert window.size == 2 * 50 * (1000 + FRAME)
    window.begin(45.0, 0, 0)
    assert window.asked(100.0, 1, 1000, 1 << 30)
    assert window.size == LEAST


@pytest.mark.parametrize("limits", ["x", [1], 7, {"max_ack_pending": "9"}, {"max_ack_pending": -1}])
def test_an_origin_may_say_anything_of_its_limits(limits: object) -> None:
    window = OriginWindow()
    window.meet(True, b"", {"retention": "limits", "consumer_limits": limits})
    assert (window.foreign, window.most) == (True, 0)


@slow
async def test_a_distant_origin_is_not_taken_for_a_slow_one(lab: Lab) -> None:
    """Of 16 KiB and the time there and back, 600 messages would take 60 s."""
    made = await line(lab)
    await filled(made, 600, lambda: 1000)
    made.wire.delay_s = 0.8
    await made.copy("mirror")
    await until(lambda: made.held() == 600, "all is there", 40)


def test_the_distance_counts_beside_the_line() -> None:
    """A window that is confirmed once in the time there and back grows, at any distance."""
    for distance in (0.0, 0.3, 1.0, 1.6, 2.5):
        window = OriginWindow()
        window.foreign, window.distance_s = True, min(distance, DISTANCE_MAX_S)
        window.begin(0.0, 0, 0)
        assert window.asked(max(distance, 0.01), 0, LEAST, 1 << 30), distance
        assert window.size == 0 or window.size > LEAST


@pytest.mark.parametrize("distance", [0.0, 1.6])
def test_a_slow_line_is_told_from_a_distant_origin(distance: float) -> None:
    """8 KiB a second have two seconds' worth under way, or twice the distance and one second."""
    window = OriginWindow()
    window.foreign, window.distance_s, window.size = True, distance, 256 << 10
    window.begin(0.0, 0, 0)
    assert window.asked(10.0, 0, 80 << 10, 1 << 30)
    assert window.size == int((8 << 10) * max(2.0, 1.0 + 2 * distance))
