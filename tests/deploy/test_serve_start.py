"""Starting a node: what goes wrong ends in one clear sentence and status 1."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import nats
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


@pytest.mark.parametrize(("profile", "unit"), [("default", 1), ("edge", 1000)])
async def test_a_gateway_counts_microseconds(profile: str, unit: int) -> None:
    """Its index keeps less of each time. Others give nanoseconds, as nats-server does."""
    config = 'server_name: N\njetstream { store_dir: "{dir}" }\n'
    if profile == "edge":
        config += "headwater { profile: edge }\n"
    with Server(Recipe("headwater", SERVE, config)) as server:
        client = await nats.connect(f"nats://127.0.0.1:{server.port}")
        js = client.jetstream()
        await js.add_stream(name="S", subjects=["s"])
        for _ in range(20):
            await js.publish("s")
        states = []
        for sequence in range(1, 21):
            await js.purge_stream("S", seq=sequence)
            answer = await client.request("$JS.API.STREAM.INFO.S")
            states.append(json.loads(answer.data)["state"]["first_ts"])
        await client.close()
    parts = [int(time.rstrip("Z").partition(".")[2].ljust(9, "0")) for time in states]
    assert all(part % unit == 0 for part in parts)
    assert any(part % (10 * unit) for part in parts)


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


def cpu_seconds(command: list[str], until: str) -> float:
    """Processor time of the main thread of a process until it says `until`."""
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if until in line:
                break
        fields = Path(f"/proc/{process.pid}/schedstat").read_text().split()
        process.kill()
    return int(fields[0]) / 1e9


def test_ready_soon_after_launch() -> None:
    """In processor time, which others on the machine do not take, and measured beside a Python
    that imports what every node needs, so that the machine's speed does not matter either."""
    bare = [sys.executable, "-c", "import asyncio, logging, ssl, uvloop, msgspec, time, sys;"
            "print('ready', file=sys.stderr, flush=True); time.sleep(60)"]
    node = [*SERVE, "-a", "127.0.0.1", "-p", "-1"]
    pairs = [
        (cpu_seconds(bare, "ready"), cpu_seconds(node, "Server is ready")) for _ in range(4)
    ]
    floor, ours = (min(column) for column in zip(*pairs, strict=True))
    assert ours < 2.5 * floor, f"{ours:.3f} s, where Python and its libraries take {floor:.3f} s"


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("none.pid", "invalid pid: none.pid"),
        ("-1", "invalid pid: -1"),
        ("0", "invalid pid: 0"),
        ("all.pid", "invalid pid: all.pid"),
        ("99999999999999999999", "invalid pid: "),
        ("4194304", "no nats-server processes running"),
    ],
)
def test_a_signal_without_a_process_is_refused(tmp_path: Path, target: str, told: str) -> None:
    """-1 is the whole machine to the system. A file may say so."""
    (tmp_path / "all.pid").write_text("-1\n")
    refused(run("--signal", f"reload={target}", cwd=tmp_path), told)


def test_a_signal_finds_the_process_of_a_pid_file(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        (tmp_path / "node.pid").write_text(f"{child.pid}\n")
        assert run("--signal", "stop=node.pid", cwd=tmp_path).returncode == 0
        assert child.wait(20) == -signal.SIGKILL
