"""Lame duck mode: send clients away gently, then stop (NATS `lame_duck_duration`)."""

import asyncio
import logging

from headwater.edge.node.parting import Parting
from headwater.edge.ports.draws import draw_between
from headwater.edge.view.node_view import NodeView

log = logging.getLogger("headwater.node")

INTERVAL_S_MAX = 1.0
"""Longest pause between two clients: few clients need not take the whole duration."""


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
    conns = list(node.sessions.conns.values())
    parting = Parting(node)
    interval = min(INTERVAL_S_MAX, max(duration, INTERVAL_S_MAX) / max(1, len(conns)))
    for conn in conns:
        await parting.part([conn])
        share = draw_between(node.kernel.chance, 0.5, 1)
        if conn is not conns[-1] and await _pause(node, interval * share):
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
