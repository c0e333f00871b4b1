"""Waiting for what nobody announces.

A test waits for events: an answer, a message, a PONG, a line of a log, a callback, the end of a
process. Some things tell nobody: a field of an object on the same loop, another process that is
not there yet, what an expired message leaves, the silence after the last message. They are looked
at again and again, here and nowhere else; `tests/house/test_waits.py` says so.
"""

import asyncio
import contextlib
import inspect
import time
from collections.abc import Callable
from itertools import chain, repeat
from typing import Any

import nats
from nats.aio.client import Client

TICKS_S = (0.001, 0.001, 0.002, 0.003, 0.005, 0.01, 0.02)
"""Between two looks: what comes soon is seen soon, what takes long is not asked all the time."""

WAIT_S = 40.0
"""Ample for what comes at once where the machine has time to spare."""


async def until(true: Callable[[], Any], what: object = "", seconds: float = WAIT_S) -> Any:
    """What `true()` returns, or what that returns when awaited, once it is something."""
    end = time.monotonic() + seconds
    ticks = chain(TICKS_S, repeat(TICKS_S[-1]))
    while True:
        found = true()
        if inspect.isawaitable(found):
            found = await found
        if found:
            return found
        assert time.monotonic() < end, f"not within {seconds:g} s: {what}"
        if (task := asyncio.current_task()) and task.cancelling():
            # nats-py makes a time-out of a cancellation, and `true` may be made to go on after one.
            raise asyncio.CancelledError
        await asyncio.sleep(next(ticks))


def until_seen(true: Callable[[], Any], what: object = "", seconds: float = WAIT_S) -> Any:
    """The same without a loop, for another process or thread."""
    end = time.monotonic() + seconds
    ticks = chain(TICKS_S, repeat(TICKS_S[-1]))
    while not (found := true()):
        assert time.monotonic() < end, f"not within {seconds:g} s: {what}"
        time.sleep(next(ticks))
    return found


async def silence(seconds: float) -> None:
    """Let time pass in which something should not happen, or that something takes by itself."""
    await asyncio.sleep(seconds)


def stand_by(seconds: float) -> None:
    """The same without a loop."""
    time.sleep(seconds)


async def connected(url: str, **options: Any) -> Client:
    """A client of a server that may not accept yet."""

    async def attempt() -> Client | None:
        with contextlib.suppress(OSError, nats.errors.Error):
            return await nats.connect(url, allow_reconnect=False, **options)
        return None

    found: Client = await until(attempt, f"{url} accepts")
    return found


async def until_state(js: Any, stream: str, true: Callable[[Any], Any], what: object = "") -> None:
    """Until the state of a stream is so, as STREAM.INFO says; `js` is a context of nats-py."""

    async def look() -> Any:
        return true((await js.stream_info(stream)).state)

    await until(look, what or f"the state of {stream}")
