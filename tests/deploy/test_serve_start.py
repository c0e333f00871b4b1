"""Starting a node: what goes wrong ends in one clear sentence and status 1."""

import json
import os
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from bench.servers import Recipe, Server, free_port, program

SERVE = (program("headwater"), "serve")


def run(*flags: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*SERVE, *flags], capture_output=True, text=True, timeout=20, check=False, cwd=cwd
    )


def refused(done: subprocess.CompletedProcess[str], *words: str) -> None:
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr, done.stderr


def test_version_is_the_nats_level() -> None:
    done = run("-v")
    assert done.returncode == 0
    assert done.stdout.startswith("nats-server: v2.14")


def test_a_port_in_use() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        refused(run("-a", "127.0.0.1", "-p", str(port)), str(port), "address already in use")


def test_an_unknown_flag() -> None:
    refused(run("--prot", "4222"), "flag provided but not defined: -prot")


def test_all_mistakes_of_a_configuration_at_once(tmp_path: Path) -> None:
    config = tmp_path / "node.conf"
    config.write_text('port: "abc"\njetstraem: {}\nmax_payload: many\n')
    refused(run("-c", str(config)), "node.conf:1:", "node.conf:2:", "jetstraem", "node.conf:3:")


def test_a_configuration_that_is_not_there(tmp_path: Path) -> None:
    refused(run("-c", str(tmp_path / "no.conf")), "no.conf")


def test_a_checked_configuration(tmp_path: Path) -> None:
    config = tmp_path / "node.conf"
    config.write_text("port: 4222\n")
    done = run("-t", "-c", str(config))
    assert done.returncode == 0 and "is valid" in done.stderr


def test_a_store_directory_that_is_a_file(tmp_path: Path) -> None:
    file = tmp_path / "store"
    file.write_text("no directory")
    refused(run("-a", "127.0.0.1", "-p", "-1", "-js", "-sd", str(file)), str(file))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_store_directory_that_cannot_be_written(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    refused(run("-a", "127.0.0.1", "-p", "-1", "-js", "-sd", str(tmp_path / "s")), str(tmp_path))


def test_a_store_directory_on_a_read_only_file_system() -> None:
    refused(run("-a", "127.0.0.1", "-p", "-1", "-js", "-sd", "/proc/headwater"), "/proc/headwater")


def test_two_nodes_never_share_a_store(tmp_path: Path) -> None:
    with Server(Recipe("headwater", SERVE), tmp_path):
        refused(run("-a", "127.0.0.1", "-p", "-1", "-js", "-sd", str(tmp_path)), "in use by")


def test_tls_files_that_are_missing(tmp_path: Path) -> None:
    cert = str(tmp_path / "cert.pem")
    refused(run("-p", "-1", "--tls", "--tlscert", cert, "--tlskey", cert), "cert.pem")


def test_files_for_launchers_come_and_go(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    port = free_port()
    flags = ["-a", "127.0.0.1", "-p", str(port), "-m", "-1", "-P", str(pid)]
    with subprocess.Popen(
        [*SERVE, *flags, "--ports_file_dir", str(tmp_path)], stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "Server is ready" in line:
                break
        assert int(pid.read_text()) == process.pid
        ports = json.loads((tmp_path / f"nats-server_{process.pid}.ports").read_text())
        assert ports["nats"] == [f"nats://127.0.0.1:{port}"]
        assert ports["monitoring"][0].startswith("http://127.0.0.1:")
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
    assert list(tmp_path.iterdir()) == []


def test_ready_soon_after_launch() -> None:
    best = 9.0
    for _ in range(3):
        began = time.monotonic()
        with Server(Recipe("headwater", SERVE)):
            best = min(best, time.monotonic() - began)
    assert best < 1.0, "the bound is 0.3 s on an idle machine; this only notices a collapse"
