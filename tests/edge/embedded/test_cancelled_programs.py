"""Programs that are cancelled while they open a node, use it, or close it."""

import asyncio
import gc
from pathlib import Path

import pytest

import headwater.edge
from headwater.edge.embedded.embedded_node import EmbeddedNode
from tests.slow import one_in


class Program:
    """Publishes and reads without end, and counts what was acknowledged."""

    def __init__(self, folder: Path) -> None:
        self.config = {"jetstream": {"store_dir": folder / "store"}}
        self.acknowledged = 0
        self.readers: list[asyncio.Task[None]] = []

    async def run(self) -> None:
        async with headwater.edge.open_node(self.config, listen=False) as node:
            await node.stream("S", ["s"])
            reader = asyncio.create_task(self.read(node))
            self.readers.append(reader)
            try:
                while True:
                    await node.publish("s", b"x")
                    self.acknowledged += 1
            finally:
                reader.cancel()

    async def read(self, node: EmbeddedNode) -> None:
        async for message in node.consume("S", "D"):
            await message.ack()

    async def cancelled_after(self, *steps: int) -> asyncio.Task[None]:
        """Run, and be cancelled after so many steps of the loop, and so many more each time."""
        task = asyncio.create_task(self.run())
        for count in steps:
            for _ in range(count):
                await asyncio.sleep(0)
            task.cancel()
        await asyncio.wait((task, *self.readers), timeout=60)
        gc.collect()  # forty nodes in one process: on a small machine each has to go at once
        return task


@pytest.mark.parametrize(
    ("first", "again"),
    one_in(3, [(0, ()), (5, (3,)), (10, (1, 1, 1, 20))]),
    ids=["once", "twice", "often"],
)
async def test_a_program_is_cancelled_at_any_step(
    tmp_path: Path, first: int, again: tuple[int, ...]
) -> None:
    """It ends, its readers end, its store can be opened, and what was acknowledged is there."""
    program = Program(tmp_path)
    for steps in range(first, 200, 25):
        task = await program.cancelled_after(steps, *again)
        assert task.cancelled(), f"cancelled after {steps} steps"
        assert all(reader.done() for reader in program.readers)
        program.readers.clear()
    while not program.acknowledged:
        # Where the disk is slow, an ack takes more steps.
        steps *= 2
        await program.cancelled_after(steps, *again)
    async with headwater.edge.open_node(program.config, listen=False) as node:
        await node.stream("S", ["s"])
        stored = (await node.jetstream.stream_info("S")).state.messages
    assert stored >= program.acknowledged > 0


async def test_a_program_is_cancelled_while_it_closes(tmp_path: Path) -> None:
    """The node ends nevertheless, and another one has its store at once."""
    config = {"jetstream": {"store_dir": tmp_path / "store"}}

    async def short() -> None:
        async with headwater.edge.open_node(config, listen=False) as node:
            opened.set_result(node)

    for steps in range(40):
        opened: asyncio.Future[EmbeddedNode] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(short())
        node = await opened
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait((task,), timeout=60)
        assert task.done()
        assert node.client.is_closed
