"""Answers overtake bulk on a real link, whatever stands between the link and its wire."""

import asyncio
import os

import pytest
from nats.aio.msg import Msg
from nats.js.api import ExternalStream, StreamConfig, StreamSource

from tests.certificates import certificate
from tests.federation.lab import Lab, client_port, wired
from tests.slow import one_in
from tests.waiting import until

MESSAGES, SIZE = 3000, 2000
RATE = 512 * 1024
WAITING_MAX = 512 * 1024
"""Bytes that may go ahead of an answer: what the sockets of both ends and of the wire hold. The
window of the bulk is twice as much."""


@pytest.mark.parametrize("mode", ["off", "s2_fast"])
@pytest.mark.parametrize("secured", one_in(2, [True, False]), ids=["tls", "plain"])
async def test_an_answer_does_not_wait_for_bulk(lab: Lab, secured: bool, mode: str) -> None:
    """Counted in bytes of the wire between a request and its answer, and with a mirror that is
    added meanwhile."""
    hub_more = edge_more = f"compression: {mode}"
    if secured:
        certificate(lab.directory)
        pair = f'cert_file: "{lab.directory}/cert.pem", key_file: "{lab.directory}/key.pem"'
        hub_more += f", tls {{ {pair} }}"
        edge_more += f', tls {{ ca_file: "{lab.directory}/cert.pem" }}'
    hub, edge, wire = await wired(lab, hub_more, edge_more)
    there = await lab.client(client_port(hub))
    js = there.jetstream(timeout=10)
    await js.add_stream(name="BULK", subjects=["bulk"])
    await js.add_stream(name="FEW", subjects=["few"])
    await asyncio.gather(*(js.publish("bulk", os.urandom(SIZE)) for _ in range(MESSAGES)))
    await asyncio.gather(*(js.publish("few", b"%d" % n) for n in range(10)))

    async def echo(message: Msg) -> None:
        await message.respond(message.data)

    await there.subscribe("echo", cb=echo)
    here = await lab.client(client_port(edge))
    await until(lambda: edge.account("$G").has_interest(b"echo"), "the echo is known")
    wire.bytes_per_s = RATE
    near = here.jetstream(timeout=30)
    far = ExternalStream(api="$JS.hub.API")
    await near.add_stream(StreamConfig(name="BULK", mirror=StreamSource(name="BULK", external=far)))
    streams = edge.jetstream.accounts["$G"].streams
    await until(lambda: streams["BULK"].store.messages > 200, "bulk flows")
    for subject in ("echo", "$JS.hub.API.INFO", "echo"):
        before = wire.passed
        await here.request(subject, b"hello", timeout=30)
        assert wire.passed - before < WAITING_MAX
    await near.add_stream(StreamConfig(name="FEW", mirror=StreamSource(name="FEW", external=far)))
    await until(lambda: streams["FEW"].store.messages == 10, "the small mirror is complete")
    assert (MESSAGES - streams["BULK"].store.messages) * SIZE > WAITING_MAX, "bulk still waits"
