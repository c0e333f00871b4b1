"""Lame duck mode: send clients away gently, then stop (NATS `lame_duck_duration`)."""

import asyncio
import logging
from typing import Any

from headwater.edge.node.parting import Parting
from headwater.edge.ports.draws import draw_between
from headwater.edge.view.node_view import NodeView

log = logging.getLogger("headwater.node")

INTERVAL_S_MAX = 1.0
"""Longest pause between two clients: few clients need not take the whole duration."""


TOGETHER_S = 0.05
"""Clients whose moments are no further apart leave together: others hear of them at once."""


async def lame_duck(node: NodeView) -> None:
    """Take no more clients, tell those that are there, close them one by one, and stop.

    Ends early when the node is stopped meanwhile.
    """
    log.info("Entering lame duck mode, stop accepting new clients")
    for listener in node.listeners:
        listener.close()
    for farewell in node.farewells:
        farewell()
    options = node.options
    if node.sessions.conns:
        node.facts.lame_duck = True
        node.sessions.announce()
        if not await _pause(node, options.lame_duck_grace):
            log.info("Closing existing clients")
            await _close_clients(node, options.lame_duck_duration - options.lame_duck_grace)
    await node.stop()


async def _close_clients(node: NodeView, duration: float) -> None:
    """Each client at its moment, or with those whose moments are near. Meanwhile other nodes hear
    of those before: what they take to answer does not add up."""
    conns = list(node.sessions.conns.values())
    parting = Parting(node)
    interval = min(INTERVAL_S_MAX, max(duration, INTERVAL_S_MAX) / max(1, len(conns)))
    due = node.loop.time()
    leaving: list[Any] = []
    async with asyncio.TaskGroup() as group:
        for conn in conns:
            leaving.append(conn)
            due += interval * draw_between(node.kernel.chance, 0.5, 1)
            wait = due - node.loop.time()
            if conn is not conns[-1] and wait < TOGETHER_S:
                continue
            group.create_task(parting.part(leaving))
            leaving = []
            if conn is not conns[-1] and await _pause(node, wait):
                return
    await parting.wait()


async def _pause(node: NodeView, seconds: float) -> bool:
    """Wait; True when the node was stopped meanwhile."""
    try:
        async with asyncio.timeout(seconds):
            await node.stopped()
    except TimeoutError:
        return False
    return True
