"""Whoever waits for a deletion hears of it, even when the request that began it was broken off."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from headwater.edge.jetstream.api import api_consumer


@pytest.mark.parametrize("begun", [False, True])
async def test_a_deletion_that_is_broken_off_leaves_nobody_waiting(
    disk_worlds: Callable[[], Any], begun: bool
) -> None:
    world = disk_worlds()
    await world.stream(storage="file")
    await world.consumer()
    deleting = asyncio.ensure_future(api_consumer.delete(world.js, ["S", "C"], b"", None))
    waits = asyncio.ensure_future(api_consumer.HANDLERS["NAMES"](world.js, ["S"], b"", None))
    if begun:
        await asyncio.sleep(0)
    deleting.cancel()
    await world.until(waits.done)
    assert deleting.cancelled()
    assert waits.result().consumers == []
    assert world.js.leaving == {}


async def test_one_who_waits_and_goes_takes_nothing_from_the_others(
    disk_worlds: Callable[[], Any],
) -> None:
    world = disk_worlds()
    await world.stream(storage="file")
    await world.consumer()
    deleting = asyncio.ensure_future(api_consumer.delete(world.js, ["S", "C"], b"", None))
    waits = asyncio.ensure_future(api_consumer.HANDLERS["NAMES"](world.js, ["S"], b"", None))
    await asyncio.sleep(0)
    waits.cancel()
    await world.until(deleting.done)
    assert deleting.result().success
    assert waits.cancelled()
