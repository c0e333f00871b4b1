"""Ends that are nobody's fault print nothing: an early interrupt, a reader that has enough."""

import os
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from bench.servers import program

COMMAND = program("headwater")


def starting() -> subprocess.Popen[str]:
    """A node whose interpreter tells what it imports, and so when the command has begun."""
    return subprocess.Popen(
        [COMMAND, "serve", "-a", "127.0.0.1", "-p", "-1"],
        stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONVERBOSE": "1"},
    )  # fmt: skip


def test_an_interrupt_during_the_start_prints_no_traceback() -> None:
    with starting() as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("import 'headwater.deploy.serve'") or "edge.conf.options" in line:
                break
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
    assert "Traceback" not in rest
    assert process.returncode == -signal.SIGINT


def test_an_interrupt_while_a_command_is_loaded_prints_no_traceback() -> None:
    with subprocess.Popen(
        [COMMAND, "hub", "status"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONVERBOSE": "1"},
    ) as process:  # fmt: skip
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("import 'click"):
                break
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
    assert "Traceback" not in rest and "\ninterrupted\n" in rest
    assert process.returncode == 130


WAITS = {
    ("hub", "status", "--monitor", "http://{door}"): "interrupted",
    ("hub", "fleet", "--server", "nats://{door}"): "interrupted",
    ("hub", "drain", "n0", "--server", "nats://{door}", "--undo"): "interrupted",
    ("hub", "drain", "n0", "--server", "nats://{door}"): "interrupted: n0 goes on if it was asked"
    " already; headwater hub drain n0 --undo takes that back",
}
"""Commands that wait for a server, and their last line."""


GATEWAYS = """
[fleet]
name = "p"
hub = ["tls://127.0.0.1:7422"]
bundle = "any.bundle"
[[host]]
name = "gw-1"
address = "127.0.0.1"
port = {port}
user = "root"
password_file = "password"
"""


def interrupted_while_it_waits(words: tuple[str, ...], folder: Path) -> tuple[str, str, int]:
    """What a command prints, and its status, when it is interrupted before a server answers."""
    with socket.create_server(("127.0.0.1", 0)) as door:
        port = door.getsockname()[1]
        if words[0] == "fleet":
            (folder / "fleet.toml").write_text(GATEWAYS.format(port=port))
        command = [COMMAND, *(word.format(door=f"127.0.0.1:{port}") for word in words)]
        with subprocess.Popen(
            command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            peer, _ = door.accept()
            process.send_signal(signal.SIGINT)
            out, rest = process.communicate()
            peer.close()
    return out, rest, process.returncode


@pytest.mark.parametrize("words", WAITS)
def test_an_interrupt_of_what_waits_for_a_server_says_so(words: tuple[str, ...]) -> None:
    """Status 1 is an answer of theirs: that a cluster is not well, or that a node leads still."""
    found = interrupted_while_it_waits(words, Path.cwd())
    assert found == ("", f"\n{WAITS[words]}\n", 130)


@pytest.mark.parametrize("words", [("ls",), ("ls", "--json"), ("doctor", "--bundle", "archive")])
def test_an_interrupted_look_at_gateways_is_none_of_them_not_being_well(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    """Whom it did not reach it says, too; status 3 would be theirs."""
    (tmp_path / "password").write_text("p")
    out, rest, status = interrupted_while_it_waits(("fleet", *words), tmp_path)
    assert "interrupted" in out and status == 130
    archive = ": no archive was written" if "doctor" in words else ""
    assert rest.endswith(f"\ninterrupted{archive}\n")
    assert not (tmp_path / "archive").exists()


def test_a_reload_during_the_start_waits_for_its_end() -> None:
    with starting() as process:
        assert process.stderr is not None
        sent = False
        for line in process.stderr:
            if not sent and "edge.conf.options" in line:
                process.send_signal(signal.SIGHUP)
                sent = True
            if "Reloaded server configuration" in line or "Failed to reload" in line:
                process.send_signal(signal.SIGTERM)
        assert sent
    assert process.returncode == 0


def test_help_into_a_pipe_that_nobody_reads() -> None:
    near, far = os.pipe()
    os.close(near)
    found = subprocess.run(
        [COMMAND, "serve", "--help"], stdout=far, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(far)
    assert found.stderr == ""
