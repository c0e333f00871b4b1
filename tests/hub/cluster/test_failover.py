"""Everything of JetStream goes on while each node of a cluster is killed, one after the other."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

import pytest

from bench.cluster.nodes import SERVERS, ClusterNodes, leader_of, whole
from bench.servers import Server
from tests.hub.cluster import consumer_stories, stream_stories
from tests.hub.cluster.failover_world import World, until
from tests.hub.cluster.stream_stories import Story
from tests.slow import one_in

Fault = Callable[[ClusterNodes, int], Awaitable[None]]


async def kill(nodes: ClusterNodes, index: int) -> None:
    """The process ends as in a power cut."""
    nodes.kill(index)


async def play(
    path: Path, classes: Iterable[type[Story]], count: int, fault: Fault = kill
) -> World:
    """Let stories work while so many nodes have the fault in turn, and judge them at the end."""
    with ClusterNodes(SERVERS["headwater"], parent=path) as nodes:
        nodes.start_all()
        await nodes.ready()
        world = World(nodes)
        with Server(nodes.leaf(), parent=path) as world.edge:
            stories = [one(world, number % 3) for number, one in enumerate(classes)]
            try:
                for story in stories:
                    await story.begin()
                async with asyncio.TaskGroup() as group:
                    for story in stories:
                        group.create_task(story.work())
                    for index in range(count):
                        await hurt(world, stories, index, fault)
                    world.halt.set()
                for story in stories:
                    await story.check()
            finally:
                world.halt.set()
                # nats-py makes a time-out of a cancellation: who reads until told goes on for ever.
                await asyncio.gather(*(story.end() for story in stories), return_exceptions=True)
                await world.close()
    return world


async def hurt(world: World, stories: list[Story], index: int, fault: Fault) -> None:
    """One node has the fault; then everything goes on, and the node comes back."""
    nodes = world.nodes
    await fault(nodes, index)
    watcher = await world.client((index + 1) % nodes.size)
    for story in stories:
        assert await leader_of(watcher, story.stream) != index
    await goes_on(stories)
    nodes.start(index)
    await nodes.ready()
    for story in stories:
        await whole(watcher, story.stream)
    await goes_on(stories)


async def goes_on(stories: list[Story]) -> None:
    """Every story does something more."""
    before = [story.rounds for story in stories]

    async def more() -> bool:
        return all(now.rounds > then + 1 for now, then in zip(stories, before, strict=True))

    await until(more)


@pytest.mark.parametrize("killed", one_in(2, [1, 3]))
async def test_streams(tmp_path: Path, killed: int) -> None:
    world = await play(tmp_path, stream_stories.STORIES, killed)
    assert world.reconnects >= len(world.clients) * killed // 6


@pytest.mark.parametrize("killed", one_in(2, [1, 3]))
async def test_consumers(tmp_path: Path, killed: int) -> None:
    await play(tmp_path, consumer_stories.STORIES, killed)
