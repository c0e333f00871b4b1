"""Suites of clients find Headwater where they look for nats-server."""

import subprocess
from pathlib import Path

from tests.clients.client_suite import run, stand_in


def test_nats_server_is_headwater(tmp_path: Path) -> None:
    environment = stand_in(tmp_path)
    command = ["sh", "-c", "nats-server --help"]
    ours = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert "headwater serve" in ours.stdout


def test_the_status_is_the_suite_s(tmp_path: Path) -> None:
    assert run(tmp_path, ["sh", "-c", "nats-server -v && touch seen && exit 3"]) == 3
    assert (tmp_path / "seen").exists()
