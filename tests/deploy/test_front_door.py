"""Clients may knock while a node starts, and wait for INFO; not when a start takes long."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench.servers import free_port

# Serves as usual, but its recovery stands still until something is written to a pipe.
HELD_UP = """
import sys
from headwater.deploy import front_door
from headwater.deploy.serve import serve
from headwater.edge.storage.node.node_store import NodeStore
front_door.PATIENCE_S = float(sys.argv[2])
front_door.YOUNG_S = 600.0
recover = NodeStore._recover
def held_up(self):
    self.options.progress(3, 8)
    print("held up", file=sys.stderr, flush=True)
    open(sys.argv[1]).read()
    return recover(self)
NodeStore._recover = held_up
sys.exit(serve(sys.argv[3:]))
"""


def knocking(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), 40)


@contextmanager
def starting(folder: Path, patience_s: float) -> Iterator[tuple[int, Path]]:
    """A node that stands still in the middle of its start: its port, and the pipe that frees it."""
    pipe, port = folder / "go on", free_port()
    os.mkfifo(pipe)
    words = [sys.executable, "-c", HELD_UP, str(pipe), str(patience_s), "-a", "127.0.0.1"]
    words += ["-p", str(port), "-js", "-sd", str(folder / "store")]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            assert any("held up" in line for line in process.stderr)
            yield port, pipe
            assert any("Server is ready" in line for line in process.stderr)
            with knocking(port) as client:
                assert client.recv(5) == b"INFO "
        finally:
            process.terminate()
    assert process.returncode == 0


def test_who_knocks_during_the_start_is_let_in(tmp_path: Path) -> None:
    with starting(tmp_path, 600) as (port, pipe), knocking(port) as client:
        client.setblocking(False)
        with pytest.raises(BlockingIOError):
            client.recv(5)
        client.settimeout(40)
        pipe.write_text("")
        assert client.recv(5) == b"INFO "


def test_nobody_waits_long(tmp_path: Path) -> None:
    with starting(tmp_path, 0) as (port, pipe):
        with pytest.raises(ConnectionRefusedError):
            knocking(port)
        pipe.write_text("")


def test_a_process_knows_its_age() -> None:
    text = "from headwater.deploy.front_door import _age_s\nprint(_age_s())"
    began = time.monotonic()
    told = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert 0 < float(told.stdout) < time.monotonic() - began + 1
