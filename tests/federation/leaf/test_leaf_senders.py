"""Who sends little over a link does not wait for who sends much, nor for what the system holds."""

import asyncio
import os
import random
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from nats.aio.msg import Msg
from nats.js.api import ExternalStream, StreamConfig, StreamSource

from headwater.edge.kernel.kernel import Endpoint
from tests.federation.lab import Lab, client_port, wired
from tests.federation.one_end import OneEnd
from tests.waiting import silence, until

ACK = b"$JS.ACK.S.C.1.7.3.99.0"
PENDING_MAX = 64 << 20
AHEAD_MAX = 16 << 10
"""Bytes that one sender may have waiting ahead of bulk."""
CLIENT = 0


def connection(cid: int) -> Endpoint:
    """A client's, as far as a link knows it."""
    made = Endpoint()
    made.cid, made.kind = cid, CLIENT
    return made


@contextmanager
def shared_link() -> Iterator[tuple[OneEnd, socket.socket]]:
    """A link over TCP whose peer wants everything and takes little."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        ours = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
    theirs.setblocking(False)
    link = OneEnd(max_pending=PENDING_MAX)
    link.conn.attach(ours)
    link.conn.share_line(ours, 0)
    link.conn.feed(b"LS+ >\r\n")
    try:
        yield link, theirs
    finally:
        link.conn.close("Client Closed")
        theirs.close()


def drained(theirs: socket.socket, at_most: int) -> bytes:
    """What the peer has been sent, up to so many bytes."""
    try:
        return theirs.recv(at_most)
    except BlockingIOError:
        return b""


async def rest(theirs: socket.socket, size: int) -> bytes:
    """All `size` bytes that are to come."""
    got = bytearray()
    while len(got) < size:
        got += drained(theirs, 1 << 20)
        await asyncio.sleep(0)
    return bytes(got)


async def test_a_request_passes_what_another_client_publishes() -> None:
    with shared_link() as (link, theirs):
        much, little = connection(1), connection(2)
        for n in range(200):
            link.account.send(b"chunk", b"%060000d" % n, sender=much)
        link.kernel.turn()
        link.account.send(b"request", b"now", sender=little)
        link.kernel.turn()
        got = await rest(theirs, link.conn.passed + link.conn.pending)
        assert got.index(b"LMSG request 3\r\nnow\r\n") < 400_000
        assert got.count(b"LMSG chunk") == 200


@pytest.mark.parametrize("seed", range(12))
async def test_what_one_sender_publishes_keeps_its_order(seed: int) -> None:
    """Whatever the subjects and sizes, and beside deliveries, whose order is another."""
    chance = random.Random(seed)
    with shared_link() as (link, theirs):
        senders = [connection(cid) for cid in range(1, 5)]
        told: dict[int, list[int]] = {sender.cid: [] for sender in senders}
        got = bytearray()
        said = 0
        for n in range(600):
            sender = chance.choice(senders)
            size = chance.choice((0, 10, 300, 9000, 60_000) if sender.cid % 2 else (0, 10, 300))
            if chance.random() < 0.2:
                link.account.send(b"d.%d" % n, bytes(size), reply=ACK)
            else:
                link.account.send(b"s.%d.%d" % (sender.cid, n), bytes(size), sender=sender)
                told[sender.cid].append(n)
            if chance.random() < 0.5:
                link.kernel.turn()
            if chance.random() < 0.5:
                got += drained(theirs, chance.choice((100, 5000, 90_000)))
                await asyncio.sleep(0)
        link.kernel.turn()
        said = link.conn.passed + link.conn.pending
        got += await rest(theirs, said - len(got))
    heard: dict[int, list[int]] = {sender.cid: [] for sender in senders}
    at = 0
    while at < len(got):
        line = bytes(got[at : got.index(b"\r\n", at)])
        words = line.split()
        at += len(line) + 4 + int(words[-1])
        if words[1].startswith(b"s."):
            _, cid, n = words[1].split(b".")
            heard[int(cid)].append(int(n))
    assert heard == told


async def test_the_system_holds_little_of_a_slow_line() -> None:
    """What it holds cannot be overtaken: 128 KiB are 16 seconds of 64 kbit/s."""
    with shared_link() as (link, theirs):
        for n in range(40):
            link.account.send(b"bulk", b"%030000d" % n, reply=ACK)
        link.kernel.turn()
        got = bytearray()
        while len(got) < 150_000:
            got += drained(theirs, 2000)
            await silence(0.01)
        link.account.send(b"alarm", b"")
        link.kernel.turn()
        before = len(got)
        got += await rest(theirs, link.conn.passed + link.conn.pending - len(got))
        # The frame that has begun, what the system may hold, and both ends' TCP.
        assert got.index(b"LMSG alarm") - before < 100_000


async def test_a_fast_line_is_given_much_at_a_time() -> None:
    with shared_link() as (link, theirs):
        total = 0
        while link.conn.share_bytes < 128 << 10:
            link.account.send(b"bulk", bytes(500_000), reply=ACK)
            link.kernel.turn()
            total += len(drained(theirs, 1 << 20))
            await asyncio.sleep(0)
            assert total < 200 << 20


async def test_an_object_does_not_hold_requests_up(lab: Lab) -> None:
    """Chunks that a client publishes through a slow link, and an echo beside them."""
    hub, edge, wire = await wired(lab)
    there = await lab.client(client_port(edge))
    await there.jetstream().add_stream(name="OBJ", subjects=["chunk"])

    async def echo(message: Msg) -> None:
        await message.respond(message.data)

    await there.subscribe("echo", cb=echo)
    loader, asker = await lab.client(client_port(hub)), await lab.client(client_port(hub))
    account = hub.account("$G")
    await until(lambda: account.has_interest(b"echo") and account.has_interest(b"chunk"), "known")
    # Towards the edge the wire itself holds little.
    wire.bytes_per_s = 100_000
    for _ in range(30):
        await loader.publish("chunk", os.urandom(20_000))
    await loader.flush()
    store = edge.jetstream.accounts["$G"].streams["OBJ"].store
    for _ in range(3):
        before = wire.passed
        await asker.request("echo", b"hello", timeout=30)
        assert wire.passed - before < 160_000
    assert store.messages < 30, "chunks still wait"
    wire.bytes_per_s = 0.0
    await until(lambda: store.messages == 30, "the object is there")


async def test_little_waits_for_a_line_that_becomes_slow(lab: Lab) -> None:
    """A mirror has a large window from the time when the line was fast. What it sent then does not
    stand before a small one that is added when the line is slow."""
    hub, edge, wire = await wired(lab)
    there = await lab.client(client_port(hub))
    js = there.jetstream(timeout=10)
    await js.add_stream(name="BULK", subjects=["bulk"])
    await js.add_stream(name="FEW", subjects=["few"])
    for _ in range(6000):
        await there.publish("bulk", bytes(2000))
    await asyncio.gather(*(js.publish("few", bytes(20_000)) for n in range(3)))
    wire.bytes_per_s = 2_000_000
    near = (await lab.client(client_port(edge))).jetstream(timeout=30)
    far = ExternalStream(api="$JS.hub.API")
    await near.add_stream(StreamConfig(name="BULK", mirror=StreamSource(name="BULK", external=far)))
    streams = edge.jetstream.accounts["$G"].streams
    await until(lambda: streams["BULK"].store.messages > 1000, "bulk flows")
    wire.bytes_per_s = 400_000
    before = wire.passed
    await near.add_stream(StreamConfig(name="FEW", mirror=StreamSource(name="FEW", external=far)))
    await until(lambda: streams["FEW"].store.messages == 3, "the small one is complete")
    assert wire.passed - before < 1_500_000
    assert streams["BULK"].store.messages < 6000, "bulk still waits"
    wire.bytes_per_s = 0.0
    await until(lambda: streams["BULK"].store.messages == 6000, "all is there")
