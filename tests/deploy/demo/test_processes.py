"""Nodes of the demo say why they do not start."""

import socket
from pathlib import Path

import pytest

from headwater.deploy.demo import processes
from headwater.deploy.demo.processes import FleetError, NodeProcess


async def test_a_port_that_is_taken_by_somebody_silent_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "GREETS_WITHIN_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        node = NodeProcess("n", tmp_path, port)
        node.configure(f"listen: 127.0.0.1:{port}\n")
        with pytest.raises(FleetError, match="n ended at once; see"):
            await node.start()
    assert "address already in use" in node.log.read_text()


def test_no_port_is_given_twice() -> None:
    found = [port for _ in range(200) for port in processes.free_ports(20)]
    assert len(set(found)) == len(found)
