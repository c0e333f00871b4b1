"""The monitoring port answers while a node recovers."""

import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

# Serves as usual, but its recovery stands still until something is written to a pipe.
HELD_UP = """
import sys
from headwater.deploy.serve import serve
from headwater.edge.storage.node.node_store import NodeStore
recover = NodeStore._recover
def held_up(self):
    self.options.progress(3, 8)
    open(sys.argv[1]).read()
    return recover(self)
NodeStore._recover = held_up
sys.exit(serve(sys.argv[2:]))
"""


@pytest.fixture
def recovering(tmp_path: Path) -> Iterator[tuple[str, Path, "subprocess.Popen[str]"]]:
    """URL of a node's monitoring, the pipe that lets its recovery end, and the process."""
    pipe = tmp_path / "go on"
    os.mkfifo(pipe)
    words = [sys.executable, "-c", HELD_UP, str(pipe), "-a", "127.0.0.1", "-p", "-1", "-m", "-1"]
    words += ["-js", "-sd", str(tmp_path / "store")]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            for line in process.stderr:
                found = re.search(r"monitor on 127.0.0.1:(\d+)", line)
                if found:
                    break
            else:
                raise AssertionError("no monitoring")
            yield f"http://127.0.0.1:{found.group(1)}", pipe, process
        finally:
            process.kill()


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_health_and_metrics_tell_of_a_recovery(
    recovering: tuple[str, Path, "subprocess.Popen[str]"],
) -> None:
    url, pipe, process = recovering
    status, text = get(url + "/healthz?js-enabled-only=true")
    answer = json.loads(text)
    while answer["error"] == "recovering: 0 of 0 segments":
        status, text = get(url + "/healthz?js-enabled-only=true")
        answer = json.loads(text)
    assert (status, answer["status"], answer["status_code"]) == (503, "unavailable", 503)
    assert answer["error"] == "recovering: 3 of 8 segments"
    assert answer["headwater"]["recovered_segments"] == 3
    assert get(url + "/varz")[0] == 503
    status, text = get(url + "/metrics")
    assert status == 200
    assert re.search(r"^headwater_storage_recovered_segments\{.*\} 3$", text, re.MULTILINE)
    assert re.search(r"^headwater_storage_recovering\{.*\} 1$", text, re.MULTILINE)
    pipe.write_text("")
    assert process.stderr is not None
    assert any("Server is ready" in line for line in process.stderr)
    status, text = get(url + "/healthz")
    assert (status, json.loads(text)["status"]) == (200, "ok")
    assert "headwater_storage_recovery_seconds" in get(url + "/metrics")[1]


def test_a_silent_client_holds_up_nobody(
    recovering: tuple[str, Path, "subprocess.Popen[str]"],
) -> None:
    import socket

    url, pipe, process = recovering
    port = int(url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port)):
        assert get(url + "/healthz")[0] == 503
        pipe.write_text("")
        assert process.stderr is not None
        assert any("Server is ready" in line for line in process.stderr)
