"""Who changes much interest at once leaves others their turn."""

import asyncio

import headwater.edge

LINES = 30_000
ROUND_TRIPS = 20
"""Ample: others have hundreds of turns meanwhile, and had one for each read."""
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
