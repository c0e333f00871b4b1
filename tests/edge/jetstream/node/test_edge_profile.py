"""What a store takes of its device with `headwater { profile: edge }`."""

import asyncio
import os
from pathlib import Path

import pytest

import headwater.edge

MIB = 1 << 20


def taken(folder: Path) -> int:
    """Bytes that are allocated for the files of a folder."""
    found = 0
    for path in folder.rglob("*"):
        try:
            found += path.stat().st_blocks * 512
        except FileNotFoundError:
            continue
    return found


@pytest.mark.parametrize("profile", ["edge", ""])
async def test_an_empty_store_takes_little_of_the_device(tmp_path: Path, profile: str) -> None:
    more = {"headwater": {"profile": profile}} if profile else {}
    async with headwater.edge.open_node(
        {"jetstream": {"store_dir": tmp_path}, **more}, listen=False
    ) as node:
        await node.stream("S", ["s"])
        assert (taken(tmp_path) <= 2 * MIB) is (profile == "edge")


async def test_a_full_store_takes_little_more_than_its_messages(tmp_path: Path) -> None:
    """The bound is max_file, and a fifth of it; and a message may be longer than a segment."""
    config = {
        "jetstream": {"store_dir": tmp_path, "max_file": 16 * MIB},
        "headwater": {"profile": "edge"},
    }
    most = 0
    async with headwater.edge.open_node(config, listen=False) as node:
        await node.stream("S", ["s"], max_bytes=15 * MIB, discard="old")
        for _ in range(50):
            await asyncio.gather(*(node.publish("s", os.urandom(900)) for _ in range(500)))
            most = max(most, taken(tmp_path))
        assert most < 16 * MIB * 6 // 5
        large = os.urandom(MIB)
        ack = await node.publish("s", large)
    async with headwater.edge.open_node(config, listen=False) as node:
        assert (await node.jetstream.get_msg("S", ack.seq)).data == large
