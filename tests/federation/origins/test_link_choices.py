"""What a stream's metadata chooses for links: who goes first, how fast, and what is left out."""

import asyncio
import json
import os
import time
from typing import Any

import pytest
from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.api import ExternalStream, StreamConfig, StreamSource
from nats.js.errors import BadRequestError, ServerError

from headwater.edge.node.node import Node
from tests.federation.lab import JETSTREAM, Lab, client_port, free_port, leafs, wired
from tests.measuring import within
from tests.slow import slow
from tests.waiting import until, until_state

RATE = 256 * 1024
LAST = {"headwater.catch_up": "last_per_subject"}
SUBJECTS = 20


def of(name: str) -> StreamSource:
    return StreamSource(name=name, external=ExternalStream(api="$JS.hub.API"))


async def report(client: Client, stream: str) -> dict[str, Any]:
    """What INFO tells of a mirror or of its first source."""
    answer = json.loads((await client.request(f"$JS.API.STREAM.INFO.{stream}")).data)
    place = "mirror" if "mirror" in answer else "sources.0"
    found: dict[str, Any] = json.loads(answer["config"]["metadata"][f"_headwater.{place}"])
    return found


BULK = [f"BULK{n}" for n in range(6)]


class Busy:
    """A slow line that six mirrors keep busy, and two more streams that are mirrored over it."""

    def __init__(self, origin: JetStreamContext, edge: Node) -> None:
        self.origin = origin
        self.streams = edge.jetstream.accounts["$G"].streams

    @property
    def bulk(self) -> list[int]:
        """How many messages each of the six has."""
        return [self.streams[name].store.messages for name in BULK]

    async def there_after(self, name: str, count: int, size: int) -> float:
        """Seconds until so many messages of so many bytes have come over the line."""
        wanted = self.streams[name].store.messages + count
        begun = time.monotonic()
        await asyncio.gather(*(self.origin.publish(name, os.urandom(size)) for _ in range(count)))
        await until(lambda: self.streams[name].store.messages == wanted, "they are there", 60)
        return time.monotonic() - begun

    def made_anew(self) -> int:
        """How often a mirror had to ask for a stream again."""
        rows = [row for each in self.streams.values() for row in each.origin_driver.followers]
        return sum(row.recreations for row in rows)


async def busy(lab: Lab, chosen_by: str) -> Busy:
    """The line of a lab, busy; the stream `FIRST` has a high priority."""
    hub, edge, wire = await wired(lab)
    here, there = await lab.client(client_port(edge)), await lab.client(client_port(hub))
    js, origin = here.jetstream(timeout=30), there.jetstream(timeout=30)
    chosen = {"headwater.link_priority": "high"}
    for name in BULK:
        await origin.add_stream(name=name, subjects=[name])
        await asyncio.gather(*(origin.publish(name, os.urandom(1000)) for _ in range(1500)))
    for name in ("FIRST", "OTHER"):
        first = name == "FIRST"
        at = {"metadata": chosen} if first and chosen_by == "origin" else {}
        await origin.add_stream(StreamConfig(name=name, subjects=[name], **at))
        to = {"metadata": chosen} if first and chosen_by == "mirror" else {}
        await js.add_stream(StreamConfig(name=name, mirror=of(name), **to))
    wire.bytes_per_s = RATE
    for name in BULK:
        await js.add_stream(StreamConfig(name=name, mirror=of(name)))
    line = Busy(origin, edge)
    await until(lambda: all(count > 50 for count in line.bulk), "bulk flows")
    return line


@slow
@pytest.mark.alone
@pytest.mark.parametrize("chosen_by", ["origin", "mirror"])
async def test_alarms_pass_bulk(lab: Lab, chosen_by: str) -> None:
    """Bursts of alarms are there at once when somebody says that they go first, and wait for what
    the line holds otherwise."""
    line = await busy(lab, chosen_by)
    waited: dict[str, list[float]] = {"FIRST": [], "OTHER": []}
    for _ in range(2):
        for name, waits in waited.items():
            waits.append(await line.there_after(name, 30, 1000))
    assert any(count < 1500 for count in line.bulk)
    assert within(max(waited["FIRST"]), 3.0), waited
    assert sum(waited["FIRST"]) < sum(waited["OTHER"]), waited
    assert line.made_anew() == 0


@slow
@pytest.mark.alone
async def test_what_is_fresh_passes_history(lab: Lab) -> None:
    """A mirror that has all but the newest message does not wait for others that catch up, and one
    that is made now begins at once: nobody has chosen anything."""
    line = await busy(lab, "")
    waits = [await line.there_after("OTHER", 1, 100) for _ in range(8)]
    # A burst is bulk, and so may be the first message behind it; then all is fresh again.
    await line.there_after("OTHER", 30, 1000)
    await line.there_after("OTHER", 1, 100)
    await line.there_after("OTHER", 1, 100)
    waits += [await line.there_after("OTHER", 1, 100) for _ in range(4)]
    assert any(count < 1500 for count in line.bulk)
    assert within(max(waits), 2.0), waits
    assert line.made_anew() == 0


@pytest.mark.parametrize("kind", ["mirror", "sources"])
@pytest.mark.parametrize("program", ["headwater", "nats-server"])
async def test_only_the_last_of_each_subject(lab: Lab, program: str, kind: str) -> None:
    """What is left out while a stream is behind is told; what comes while it is not is complete."""
    port, hub_port = await two(lab, program)
    here, there = await lab.client(port), await lab.client(hub_port)
    js, origin = here.jetstream(timeout=10), there.jetstream(timeout=10)
    await origin.add_stream(name="S", subjects=["s.*"])

    async def publish(first: int, count: int, subjects: int) -> None:
        sent = (
            origin.publish(f"s.{n % subjects}", b"%d" % n) for n in range(first, first + count)
        )
        await asyncio.gather(*sent)

    await publish(0, 2000, SUBJECTS)
    made = {"mirror": of("S")} if kind == "mirror" else {"sources": [of("S")]}
    await js.add_stream(StreamConfig(name="M", metadata=LAST, **made))

    async def held(count: int) -> None:
        await until_state(js, "M", lambda state: state.messages == count)

    await held(SUBJECTS)
    found = [await js.get_last_msg("M", f"s.{n}") for n in range(SUBJECTS)]
    assert [int(one.data or b"") for one in found] == list(range(1980, 2000))
    assert (await report(here, "M"))["left_out"] == 1980
    for n in range(10):
        await origin.publish("s.0", b"%d" % n)
    await held(SUBJECTS + 10)
    assert (await report(here, "M"))["left_out"] == 1980


async def two(lab: Lab, program: str) -> tuple[int, int]:
    """Ports of clients of an edge and a hub that are linked."""
    if program == "headwater":
        hub, edge, _ = await wired(lab)
        return client_port(edge), client_port(hub)
    listener = free_port()
    real = await lab.real(
        JETSTREAM.format(store="{store}", domain="hub").replace("server_name: hub\n", "")
        + f"leafnodes {{ listen: 127.0.0.1:{listener} }}"
    )
    edge = await lab.node(
        JETSTREAM.format(store=lab.directory / "edge", domain="edge")
        + f'leafnodes {{ remotes [ {{ url: "nats://127.0.0.1:{listener}" }} ] }}'
    )
    await until(lambda: leafs(edge), "the link is up")
    return client_port(edge), real.port


async def test_a_cut_leaves_out_what_has_a_successor(lab: Lab) -> None:
    """And what was there before the cut does not cross the line again."""
    hub, edge, wire = await wired(lab)
    here, there = await lab.client(client_port(edge)), await lab.client(client_port(hub))
    js, origin = here.jetstream(timeout=10), there.jetstream(timeout=10)
    await origin.add_stream(name="S", subjects=["s.*"])
    await js.add_stream(StreamConfig(name="M", mirror=of("S"), metadata=LAST))
    sent = (origin.publish(f"s.{n}", bytes(1000)) for n in range(300))
    await asyncio.gather(*sent)
    await until_state(js, "M", lambda state: state.last_seq == 300)
    before = (await report(here, "M"))["left_out"]
    wire.silence(True)
    wire.cut()
    await asyncio.gather(*(origin.publish(f"s.{n % 5}", b"%d" % n) for n in range(500)))
    passed = wire.passed
    wire.silence(False)
    await until_state(js, "M", lambda state: state.last_seq == 800)
    state = (await js.stream_info("M")).state
    told = await report(here, "M")
    assert told["left_out"] - before == 495
    assert state.messages == 300 - before + 5
    assert wire.passed - passed < 100_000
    for n in range(5):
        assert (await js.get_last_msg("M", f"s.{n}")).data == b"%d" % (495 + n)


async def test_few_messages_behind_are_all_taken(lab: Lab) -> None:
    hub, edge, _ = await wired(lab)
    here, there = await lab.client(client_port(edge)), await lab.client(client_port(hub))
    js, origin = here.jetstream(timeout=10), there.jetstream(timeout=10)
    await origin.add_stream(name="S", subjects=["s"])
    for n in range(10):
        await origin.publish("s", b"%d" % n)
    await js.add_stream(StreamConfig(name="M", mirror=of("S"), metadata=LAST))
    await until_state(js, "M", lambda state: state.messages == 10)
    assert (await report(here, "M"))["left_out"] == 0


async def test_a_mirror_takes_no_more_than_it_may(lab: Lab) -> None:
    port, hub_port = await two(lab, "headwater")
    here, there = await lab.client(port), await lab.client(hub_port)
    js, origin = here.jetstream(timeout=10), there.jetstream(timeout=10)
    await origin.add_stream(name="S", subjects=["s"])
    await asyncio.gather(*(origin.publish("s", bytes(1000)) for _ in range(120)))
    begun = time.monotonic()
    rate = {"headwater.link_rate": "30KB"}
    await js.add_stream(StreamConfig(name="M", mirror=of("S"), metadata=rate))
    await until_state(js, "M", lambda state: state.messages == 120)
    assert time.monotonic() - begun > 2.0


REFUSED = [
    ({"headwater.link_priority": "urgent"}, {}, "must be high or normal"),
    ({"headwater.link_rate": "16KB"}, {}, "requires a mirror or sources"),
    ({"headwater.link_rate": "fast"}, {"mirror": of("S")}, "a size a second like 16KB"),
    ({"headwater.link_rate": "9" * 30}, {"mirror": of("S")}, "a size a second like 16KB"),
    ({"headwater.catch_up": "some"}, {"mirror": of("S")}, "must be all or last_per_subject"),
    (LAST, {}, "requires a mirror or sources"),
    (LAST, {"sources": [StreamSource(name="S", opt_start_seq=5)]}, "cannot begin at a sequence"),
]


@pytest.mark.parametrize(("metadata", "more", "reason"), REFUSED)
async def test_what_makes_no_sense_is_refused(
    lab: Lab, metadata: dict[str, str], more: dict[str, Any], reason: str
) -> None:
    node = await lab.node(JETSTREAM.format(store=lab.directory / "s", domain="hub"))
    js = (await lab.client(client_port(node))).jetstream()
    with pytest.raises((BadRequestError, ServerError), match=reason):
        await js.add_stream(StreamConfig(name="M", metadata=metadata, **more))
