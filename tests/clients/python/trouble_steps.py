"""What both programs of Python do alike while servers come and go (tests/clients/troubles.py)."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Any

WINDOW = 8
stopping = asyncio.Event()


def say(*words: object) -> None:
    """One line for the driver."""
    print(*words, flush=True)


def failed(what: str, error: BaseException) -> None:
    """An error reached the program."""
    say("ERROR", what, type(error).__name__, " ".join(str(error).split()))


async def insist(who: str, number: int, work: Callable[[], Awaitable[Any]]) -> None:
    """Until it is done."""
    while True:
        try:
            await work()
            say("ACKED", who, number)
            return
        except Exception as error:  # Whatever the library raises is told.
            failed(who, error)
            await asyncio.sleep(0.1)


async def repeat(pause: float, work: Callable[[int], Awaitable[Any]]) -> None:
    """Number after number, until the driver says stop."""
    number = 0
    while not stopping.is_set():
        await work(number)
        await asyncio.sleep(pause)
        number += 1


async def in_window(work: Callable[[int], Awaitable[Any]]) -> None:
    """Numbers that wait beside each other, `WINDOW` at a time, until the driver says stop."""
    room = asyncio.Semaphore(WINDOW)

    async def one(number: int) -> None:
        try:
            await insist("async", number, lambda: work(number))
        finally:
            room.release()

    async with asyncio.TaskGroup() as group:

        async def start(number: int) -> None:
            await room.acquire()
            group.create_task(one(number))

        await repeat(0.005, start)


async def run(
    user: Callable[[], Awaitable[Any]],
    receivers: Callable[[Any], Awaitable[list[asyncio.Task[None]]]],
    publishers: Callable[[Any], Awaitable[None]],
) -> None:
    """Until the driver says the end. `user` connects; one connection receives, one sends."""
    sender, receiver = await user(), await user()
    running = await receivers(receiver)
    await receiver.flush()
    say("READY")
    sending = asyncio.ensure_future(publishers(sender))
    loop = asyncio.get_running_loop()
    await loop.run_in_executor(None, sys.stdin.readline)
    stopping.set()
    await sending
    say("STOPPED")
    await loop.run_in_executor(None, sys.stdin.readline)
    for each in running:
        each.cancel()
