"""Who sends alone and waits has its batches committed on the loop; who does not, by the thread."""

import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import nats
import pytest

import headwater.edge
from headwater.edge.storage.log import lone_commit
from tests.edge.storage.store_harness import Harness, contents

MEMORY = Path("/dev/shm")
"""A device that is fast everywhere."""


@pytest.fixture
async def node() -> AsyncIterator[Any]:
    """A node with a file stream, on a fast device."""
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as path:
        config = {"host": "127.0.0.1", "port": -1, "jetstream": {"store_dir": path}}
        async with headwater.edge.open_node(config) as opened:
            await opened.stream("S", ["s"])
            yield opened


def counted(node: Any) -> int:
    """Batches that the loop committed."""
    numbers: dict[str, int] = node.node.jetstream.store().log.numbers()
    return numbers["lone_syncs"]


async def test_only_a_publisher_alone_is_served_by_the_loop(node: Any) -> None:
    (url,) = node.node.ports()["nats"]
    first, second = [await nats.connect(url) for _ in range(2)]
    try:
        for _ in range(100):
            for client in (first, second):
                await client.jetstream().publish("s", b"in turn")
        assert counted(node) == 0
        for _ in range(200):
            await first.jetstream().publish("s", b"alone")
        assert counted(node) > 100
        assert (await first.jetstream().stream_info("S")).state.messages == 400
    finally:
        await first.close()
        await second.close()


def test_what_the_loop_commits_is_there_after_a_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lone_commit, "ALWAYS", True)
    harness = Harness(tmp_path)
    harness.open()
    store = harness.create()
    harness.commit()
    try:
        for n in range(1, 50):
            store.add_message(b"a", b"%d" % n)
            harness.commit()
        numbers = harness.node.log.numbers()
        assert numbers["lone_syncs"] >= 1
        want = contents(store)
        harness.crash()
        (store,) = harness.open()
        assert contents(store) == want
    finally:
        harness.end()
