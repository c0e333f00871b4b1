"""Killed without warning while messages flow: nothing may be lost, nothing may come twice."""

import asyncio

import pytest
from nats.js.api import ExternalStream, StreamConfig, StreamSource

from tests.federation.lab import Lab, RealServer, free_port
from tests.waiting import until

MESSAGES = 3000
CHUNK = 100


@pytest.mark.parametrize("victim", ["copy", "origin"])
@pytest.mark.parametrize("program", ["headwater", "real"])
async def test_killed_while_messages_flow(lab: Lab, program: str, victim: str) -> None:
    """`program` is the origin; the copy is always this project's. `victim` dies three times."""
    port = free_port()
    origin = await lab.real(
        'jetstream { store_dir: "{store}", domain: edge }\n'
        f"leafnodes {{ listen: 127.0.0.1:{port} }}",
        "origin",
        program,
    )
    copy = await lab.real(
        'jetstream { store_dir: "{store}", domain: hub }\n'
        f'leafnodes {{ reconnect: "100ms", remotes [ {{ url: "nats://127.0.0.1:{port}" }} ] }}',
        "copy",
        "headwater",
    )
    there = (await lab.client(origin.port)).jetstream(timeout=5)
    here = (await lab.client(copy.port)).jetstream(timeout=5)
    await there.add_stream(name="ORIGIN", subjects=["data"])
    source = StreamSource(name="ORIGIN", external=ExternalStream(api="$JS.edge.API"))
    await here.add_stream(StreamConfig(name="ALL", sources=[source]))
    await here.add_stream(StreamConfig(name="MIRROR", mirror=source))
    dying = copy if victim == "copy" else origin
    acked = 0
    for round_ in range(3):
        acked = await publish_and_kill(lab, origin, dying, acked, (round_ + 1) * MESSAGES // 3)
    here = (await lab.client(copy.port)).jetstream(timeout=5)
    there = (await lab.client(origin.port)).jetstream(timeout=5)
    total = (await there.stream_info("ORIGIN")).state.messages
    assert total >= acked

    async def complete() -> bool:
        found = [await here.stream_info(name) for name in ("ALL", "MIRROR")]
        return all(each.state.messages >= total for each in found)

    await until(complete, "everything has arrived", 30)
    for name in ("ALL", "MIRROR"):
        assert (await here.stream_info(name)).state.messages == total
    for sequence in range(1, total + 1, 7):
        wanted = (await there.get_msg("ORIGIN", sequence)).data
        for name in ("ALL", "MIRROR"):
            assert (await here.get_msg(name, sequence)).data == wanted


async def publish_and_kill(
    lab: Lab, origin: RealServer, dying: RealServer, start: int, end: int
) -> int:
    """Publish up to number `end` while `dying` is killed; returns how many were acknowledged."""
    js = (await lab.client(origin.port)).jetstream(timeout=5)
    acked = start
    try:
        for first in range(start, end, CHUNK):
            await asyncio.gather(
                *(js.publish("data", b"%d" % i, timeout=2) for i in range(first, first + CHUNK))
            )
            acked = first + CHUNK
            if first == start + 4 * CHUNK:
                dying.kill()
                await dying.start()
    except Exception:
        if dying is not origin:
            raise
    return acked
