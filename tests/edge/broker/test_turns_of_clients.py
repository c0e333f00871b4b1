"""Who changes much interest at once leaves others their turn."""

import asyncio
from typing import Any

import headwater.edge
from tests.waiting import until

LINES = 30_000
ROUND_TRIPS = 20
"""Ample: others have hundreds of turns meanwhile, and had one for each read."""
LEAF = b'CONNECT {"name":"L","version":"2.10.0","headers":true}\r\nPING\r\n'
LONG = 4000
"""Bytes of a subject: tens of megabytes of interest for a link, which then has room for less."""
Link = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def connect(address: str) -> Link:
    host, _, port = address.removeprefix("nats://").rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b'CONNECT {"verbose":false}\r\n')
    await reader.readline()
    await round_trip((reader, writer))
    return reader, writer


async def round_trip(link: Link) -> None:
    link[1].write(b"PING\r\n")
    assert await link[0].readline() == b"PONG\r\n"


async def turns_while(others: Link, link: Link, lines: bytes) -> int:
    """Round trips of others until a link's lines are acted on."""
    link[1].write(lines)
    acted_on = asyncio.ensure_future(round_trip(link))
    turns = 0
    while not acted_on.done():
        await round_trip(others)
        turns += 1
    await acted_on
    return turns


async def test_others_have_their_turn_while_a_client_subscribes_and_unsubscribes() -> None:
    async with headwater.edge.open_node({"port": -1}) as node:
        address = node.node.ports()["nats"][0]
        busy, others = await connect(address), await connect(address)
        subscribe = b"".join(b"SUB s.%d %d\r\n" % (n, n) for n in range(LINES))
        unsubscribe = b"".join(b"UNSUB %d\r\n" % n for n in range(LINES))
        assert await turns_while(others, busy, subscribe) >= ROUND_TRIPS
        assert await turns_while(others, busy, unsubscribe) >= ROUND_TRIPS
        for _, writer in (busy, others):
            writer.close()


async def test_who_changes_interest_waits_for_a_link_without_room() -> None:
    """All of it was queued for the link at once, which is cut when too much waits for it."""
    settings: dict[str, Any] = {"port": -1, "leafnodes": {"host": "127.0.0.1", "port": -1}}
    async with headwater.edge.open_node(settings) as node:
        ports = node.node.ports()
        conns = node.node.sessions.conns
        host, _, port = ports["leafnodes"][0].rpartition("/")[2].rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port), limit=LONG + 100)
        writer.write(LEAF)
        await reader.readuntil(b"PONG\r\n")
        (link,) = conns.values()
        busy = await connect(ports["nats"][0])
        (client,) = (conns[cid] for cid in set(conns) - {link.cid})
        writer.transport.pause_reading()
        most = link.max_pending >> 1
        count = link.max_pending // LONG
        pad = b"x" * LONG
        for verb in (b"SUB %s.%d %d\r\n", b"UNSUB %d\r\n"):
            stalls = client.stalls
            for n in range(count):
                busy[1].write(verb % ((pad, n, n) if verb.startswith(b"SUB") else n))
            busy[1].write(b"PING\r\n")
            acted_on = asyncio.ensure_future(busy[0].readuntil(b"PONG\r\n"))
            await until(lambda stalls=stalls: client.stalls > stalls, "it waits for the link")
            assert link.pending < most and not link.closed and not acted_on.done()
            writer.transport.resume_reading()
            last = b"%s %s.%d\r\n" % (b"LS+" if verb.startswith(b"SUB") else b"LS-", pad, count - 1)
            async for line in reader:
                if line == last:
                    break
            await acted_on
            writer.transport.pause_reading()
        for each in (busy[1], writer):
            each.close()
