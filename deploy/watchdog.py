"""Tells systemd's watchdog that the node lives: only while the event loop and the writer do.

The loop shows that it lives by running this at all; the writer, by writing what is handed over to
it. A store that refuses writes (a full device) is no reason to start again: it says so itself.
"""

import asyncio
import os
from typing import Any

from headwater.deploy.notify import Notifier

SIGNS_PER_PERIOD = 3


def period_s() -> float:
    """Seconds in which systemd wants to hear something (sd_watchdog_enabled(3)); 0: never."""
    meant = os.environ.get("WATCHDOG_PID", "")
    if meant and meant != str(os.getpid()):
        return 0.0
    text = os.environ.get("WATCHDOG_USEC", "")
    return int(text) / 1e6 if text.isdigit() else 0.0


async def keep_alive(notifier: Notifier, node: Any, period: float) -> None:
    """Tell it for ever; ends with its task."""
    while True:
        if await writer_lives(node, period):
            notifier.send(WATCHDOG=1)
        await asyncio.sleep(period / SIGNS_PER_PERIOD)


async def writer_lives(node: Any, patience: float) -> bool:
    """Whether what the node wants to store gets written within `patience` seconds."""
    storage = None if node.jetstream is None else node.jetstream.storage
    if storage is None or storage.log.failure is not None:
        return True
    log = storage.log
    try:
        async with asyncio.timeout(patience):
            await log.wait_durable(log.hand_over(True), True)
    except TimeoutError:
        return log.failure is not None
    return True
