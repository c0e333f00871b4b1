"""Streams that are made do not have the loop wait for a device."""

import threading
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from headwater.edge.ports import files
from tests.hub.lab import Lab, api

SYNCS = ("sync", "sync_data", "sync_directory")


async def test_no_file_is_synced_on_the_loop_when_a_stream_is_made(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    await lab.formed()
    client = await lab.connect(0)
    found: list[str] = []

    def noted(original: Callable[..., Any]) -> Callable[..., Any]:
        def sync(*arguments: Any) -> Any:
            if threading.current_thread() is threading.main_thread():
                found.append("".join(traceback.format_stack(limit=6)))
            return original(*arguments)

        return sync

    for name in SYNCS:
        monkeypatch.setattr(files, name, noted(getattr(files, name)))
    for name in ("A", "B"):
        made = await api(client, f"STREAM.CREATE.{name}", name=name, num_replicas=3)
        assert "error" not in made
        await api(client, f"STREAM.INFO.{name}")
    assert found == []
