"""Fixtures of pytest for programs that use Headwater; pytest finds them by their entry point.

    def test_ingest(headwater_node):                       # any client, in any process
        program.run(headwater_node.url)

    async def test_store(headwater_config):                # a node in the test's own loop
        async with headwater.edge.open_node(headwater_config) as node: ...

`@pytest.mark.headwater_config(...)` adds settings, by name, to those of both.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from headwater.edge.embedded.node_thread import NodeThread

MARK = "headwater_config"


def pytest_configure(config: pytest.Config) -> None:
    """Make the mark known."""
    config.addinivalue_line(
        "markers", f"{MARK}(**settings): settings of the nodes of headwater's fixtures"
    )


@pytest.fixture
def headwater_config(tmp_path: Path, request: pytest.FixtureRequest) -> dict[str, Any]:
    """Settings of a node of this test's own: a free port of loopback, JetStream in `tmp_path`."""
    settings: dict[str, Any] = {
        "listen": "127.0.0.1:-1",
        "jetstream": {"store_dir": str(tmp_path / "headwater")},
    }
    for mark in reversed(list(request.node.iter_markers(MARK))):
        settings.update(mark.kwargs)
    return settings


@pytest.fixture
def headwater_node(headwater_config: dict[str, Any]) -> Iterator[NodeThread]:
    """A running node, on a thread and a loop of its own. It ends with the test."""
    # The import waits for whoever uses it: pytest loads this plugin in every project.
    from headwater.edge.embedded.node_thread import NodeThread

    with NodeThread(headwater_config) as node:
        yield node
