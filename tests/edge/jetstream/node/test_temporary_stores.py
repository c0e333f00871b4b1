"""Nodes that are told no store_dir, as launchers of tests start them beside each other."""

from pathlib import Path
from typing import Any

import nats
import pytest

from bench.servers import Recipe, Server, program

RECIPE = Recipe("headwater", (program("headwater"), "serve"), "jetstream: enabled\n")


async def streams(server: Server, made: str = "") -> list[str]:
    connection: Any = await nats.connect(f"nats://127.0.0.1:{server.port}")
    jetstream = connection.jetstream()
    if made:
        await jetstream.add_stream(name=made, subjects=[made])
        await jetstream.publish(made, b"x")
    names = [found.config.name for found in await jetstream.streams_info()]
    await connection.close()
    return names


async def test_each_has_a_folder_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with Server(RECIPE) as first:
        assert await streams(first, "A") == ["A"]
        with Server(RECIPE) as second:
            assert await streams(second, "B") == ["B"]
            told = [line for line in second.complaints if "set store_dir" in line]
            assert len(told) == 1
            assert str(tmp_path / "nats-2" / "jetstream") in told[0]
        assert await streams(first) == ["A"]
    with Server(RECIPE) as again:
        assert await streams(again) == ["A"]
