"""What is measured of links. Each row gives figures by name for one pair (hub, edge) of servers."""

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from nats.aio.msg import Msg

from bench.links.lab import (
    Hub,
    Line,
    ask,
    connected,
    cpu_seconds,
    fill,
    held,
    holds,
    payloads,
)

Figures = dict[str, float]
FAR = {"api": "$JS.hub.API"}
LINE_RATE = 8000
"""Bytes a second of 64 kbit/s."""
FRAME = 110
"""Bytes of the frame and reply subject of a delivery, about."""


@dataclass(frozen=True)
class Amounts:
    """How much is done."""

    messages: int = 2_000_000
    size: int = 128
    sources: int = 100
    sourced: int = 500_000
    slow_seconds: float = 90.0
    echoes: int = 100
    telemetry: int = 40_000
    edges: int = 60


async def _copied(kind: str, hub_kind: str, edge_kind: str, amounts: Amounts) -> Figures:
    with Hub(hub_kind) as hub:
        await fill(hub.server, ["BULK"], amounts.messages, amounts.size)
        edge = hub.edge(edge_kind)
        client = await connected(edge)
        await _linked(client)
        pids = (hub.server.pid, edge.pid)
        cpu, begun = sum(map(cpu_seconds, pids)), time.monotonic()
        origin: dict[str, Any] = {"name": "BULK", "external": FAR}
        config = {"mirror": origin} if kind == "mirror" else {"sources": [origin]}
        await ask(client, "$JS.API.STREAM.CREATE.COPY", {"name": "COPY", **config})
        await holds(client, "COPY", amounts.messages)
        took = time.monotonic() - begun
        used = sum(map(cpu_seconds, pids)) - cpu
        await client.close()
    return {
        f"{kind}, messages/s": amounts.messages / took,
        f"{kind}, CPU us a message": used / amounts.messages * 1e6,
    }


async def _linked(client: Any) -> None:
    """Wait until the hub's API answers an edge's client."""
    for _ in range(200):
        try:
            await ask(client, "$JS.hub.API.INFO", timeout=0.5)
            return
        except Exception:
            await asyncio.sleep(0.05)
    raise TimeoutError("there is no link")


async def mirror(hub_kind: str, edge_kind: str, amounts: Amounts) -> Figures:
    """A mirror catches up."""
    return await _copied("mirror", hub_kind, edge_kind, amounts)


async def source(hub_kind: str, edge_kind: str, amounts: Amounts) -> Figures:
    """A stream with one source catches up."""
    return await _copied("source", hub_kind, edge_kind, amounts)


async def sources(hub_kind: str, edge_kind: str, amounts: Amounts) -> Figures:
    """A stream with many sources catches up."""
    names = [f"S{n}" for n in range(amounts.sources)]
    with Hub(hub_kind) as hub:
        await fill(hub.server, names, amounts.sourced, amounts.size)
        client = await connected(hub.edge(edge_kind))
        await _linked(client)
        begun = time.monotonic()
        wanted = [{"name": name, "external": FAR} for name in names]
        await ask(client, "$JS.API.STREAM.CREATE.ALL", {"name": "ALL", "sources": wanted})
        await holds(client, "ALL", amounts.sourced)
        took = time.monotonic() - begun
        await client.close()
    return {f"{amounts.sources} sources, messages/s": amounts.sourced / took}


async def slow(hub_kind: str, edge_kind: str, amounts: Amounts) -> Figures:
    """A mirror catches up over 64 kbit/s, while an echo and the hub's API are asked."""
    off = ", compression: off"
    with Hub(hub_kind, off) as hub:
        count = int(amounts.slow_seconds * LINE_RATE / amounts.size) + 500
        await fill(hub.server, ["BULK"], count, amounts.size)
        service = await connected(hub.server)

        async def echo(message: Msg) -> None:
            await message.respond(message.data)

        await service.subscribe("echo", cb=echo)
        async with Line(hub.leaf_port, LINE_RATE) as line:
            edge = hub.edge(edge_kind, port=line.port, more=off)
            client = await connected(edge)
            await _linked(client)
            mirror = {"name": "COPY", "mirror": {"name": "BULK", "external": FAR}}
            await ask(client, "$JS.API.STREAM.CREATE.COPY", mirror)
            await holds(client, "COPY", 20)
            begun, first = time.monotonic(), await held(client, "COPY")
            waits: dict[str, list[float]] = {"echo": [], "API": []}
            pause = amounts.slow_seconds / amounts.echoes
            for number in range(amounts.echoes):
                for name, subject in (("echo", "echo"), ("API", "$JS.hub.API.INFO")):
                    asked = time.monotonic()
                    await client.request(subject, b"", timeout=120)
                    waits[name].append(time.monotonic() - asked)
                left = begun + (number + 1) * pause - time.monotonic()
                await asyncio.sleep(max(0.0, left))
            share = (await held(client, "COPY") - first) * (amounts.size + FRAME)
            share /= LINE_RATE * (time.monotonic() - begun)
            await client.close()
        await service.close()
    found = {
        f"64 kbit/s, {name}, p99 s": sorted(rows)[int(len(rows) * 0.99)]
        for name, rows in waits.items()
    }
    return {**found, "64 kbit/s, % of the line for bulk": 100 * share}


async def telemetry(hub_kind: str, edge_kind: str, amounts: Amounts) -> Figures:
    """A mirror of JSON: bytes on the line with compression, and without."""
    passed, took = {}, {}
    for mode in ("off", "s2_fast"):
        with Hub(hub_kind, f", compression: {mode}") as hub:
            await fill(hub.server, ["BULK"], amounts.telemetry, 0, telemetry=True)
            async with Line(hub.leaf_port) as line:
                edge = hub.edge(edge_kind, port=line.port, more=f", compression: {mode}")
                client = await connected(edge)
                await _linked(client)
                before, begun = line.passed, time.monotonic()
                mirror = {"name": "COPY", "mirror": {"name": "BULK", "external": FAR}}
                await ask(client, "$JS.API.STREAM.CREATE.COPY", mirror)
                await holds(client, "COPY", amounts.telemetry)
                took[mode], passed[mode] = time.monotonic() - begun, line.passed - before
                await client.close()
    plain = sum(map(len, payloads(amounts.telemetry, 0, True)))
    return {
        "JSON, % of the bytes without compression": 100 * passed["s2_fast"] / passed["off"],
        "JSON, % of the payloads": 100 * passed["s2_fast"] / plain,
    }


async def fast(hub_kind: str, edge_kind: str, amounts: Amounts) -> Figures:
    """A mirror of JSON on a fast network, with compression by the round trip and without."""
    took = {}
    for mode in ("off", "s2_auto"):
        with Hub(hub_kind, f", compression: {mode}") as hub:
            await fill(hub.server, ["BULK"], amounts.messages // 4, 0, telemetry=True)
            client = await connected(hub.edge(edge_kind, more=f", compression: {mode}"))
            await _linked(client)
            begun = time.monotonic()
            mirror = {"name": "COPY", "mirror": {"name": "BULK", "external": FAR}}
            await ask(client, "$JS.API.STREAM.CREATE.COPY", mirror)
            await holds(client, "COPY", amounts.messages // 4)
            took[mode] = time.monotonic() - begun
            await client.close()
    return {"JSON on a fast network, % of the rate without": 100 * took["off"] / took["s2_auto"]}


async def heal(hub_kind: str, edge_kind: str, amounts: Amounts) -> Figures:
    """A hub is killed and started again: until each edge has the next message of its mirror."""
    with Hub(hub_kind) as hub:
        await fill(hub.server, ["TICK"], 10, amounts.size)
        clients = []
        for number in range(amounts.edges):
            client = await connected(hub.edge(edge_kind, f"e{number}"))
            clients.append(client)
            await _linked(client)
            mirror = {"name": "COPY", "mirror": {"name": "TICK", "external": FAR}}
            await ask(client, "$JS.API.STREAM.CREATE.COPY", mirror)
        await asyncio.gather(*(holds(client, "COPY", 10) for client in clients))
        hub.server.kill()
        hub.server.start()
        begun = time.monotonic()
        sender = await connected(hub.server)
        await sender.request("TICK", b"again", timeout=30)

        async def healed(client: Any) -> float:
            await holds(client, "COPY", 11, 120)
            return time.monotonic() - begun

        waits = await asyncio.gather(*map(healed, clients))
        for client in [*clients, sender]:
            await client.close()
    return {"heal, median s": statistics.median(waits), "heal, longest s": max(waits)}


Row = Callable[[str, str, Amounts], Awaitable[Figures]]
ROWS: dict[str, Row] = {
    "mirror": mirror,
    "source": source,
    "sources": sources,
    "slow": slow,
    "telemetry": telemetry,
    "fast": fast,
    "heal": heal,
}
MIXED = ("mirror", "source")
"""Rows that are also run with a server of each kind."""
