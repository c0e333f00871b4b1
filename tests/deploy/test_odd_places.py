"""Nodes where little is there: no standard files, and a sandbox that refuses calls."""

import json
import os
import platform
import signal
import subprocess
import sys
from pathlib import Path

import nats
import pytest

from bench.servers import Recipe, Server, program
from tests.deploy.refusing import NUMBERS
from tests.waiting import until

COMMAND = program("headwater")
SERVE = (COMMAND, "serve")
STORES = 'server_name: N\njetstream { store_dir: "{dir}" }\n'
REFUSING = (sys.executable, str(Path(__file__).with_name("refusing.py")))
refusing = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() not in NUMBERS, reason="no numbers of calls"
)


@pytest.mark.parametrize("closed", ["0<&-", "1>&- 2>&-", "0<&- 1>&- 2>&-"])
async def test_closed_standard_files(tmp_path: Path, closed: str) -> None:
    """No file or socket of the node has their numbers, and it ends as ever: it aborted."""
    words = [*SERVE, "-a", "127.0.0.1", "-p", "-1", "--ports_file_dir", str(tmp_path)]
    words += ["-js", "-sd", str(tmp_path / "store")]
    node = subprocess.Popen(["sh", "-c", f'exec "$@" {closed}', "sh", *words])
    try:
        await until(lambda: list(tmp_path.glob("*.ports")), "the node serves")
        held = {each.name: each.readlink() for each in Path(f"/proc/{node.pid}/fd").iterdir()}
        numbers = [word[0] for word in closed.split()]
        assert [str(held[number]) for number in numbers] == ["/dev/null"] * len(numbers)
        ports = json.loads(next(tmp_path.glob("*.ports")).read_text())
        client = await nats.connect(ports["nats"][0])
        js = client.jetstream()
        await js.add_stream(name="S", subjects=["s"])
        assert (await js.publish("s", b"x")).seq == 1
        await client.close()
    finally:
        node.send_signal(signal.SIGTERM)
        status = node.wait(20)
    assert status == 0


@refusing
@pytest.mark.parametrize(
    "call", ["sched_getaffinity", "fallocate", "prlimit64", "statfs,fstatfs", "sysinfo"]
)
async def test_a_call_that_a_sandbox_refuses(call: str) -> None:
    """What the node can do without keeps it from nothing: each of them ended the start."""
    launch = (*REFUSING, call, sys.executable, *SERVE)
    with Server(Recipe("headwater", launch, STORES)) as server:
        client = await nats.connect(f"nats://127.0.0.1:{server.port}")
        js = client.jetstream()
        await js.add_stream(name="S", subjects=["s"])
        for number in range(1, 101):
            assert (await js.publish("s", b"x" * 1000)).seq == number
        await client.close()
        server.kill()
        server.start()
        client = await nats.connect(f"nats://127.0.0.1:{server.port}")
        assert (await client.jetstream().get_msg("S", 100)).data == b"x" * 1000
        await client.close()


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    "words", [("serve", "-v"), ("serve", "--help"), ("--version",), ("keys", "--help")]
)
def test_output_that_nobody_can_write(words: tuple[str, ...], unbuffered: str) -> None:
    """One sentence says so: it was a traceback."""
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [COMMAND, *words], stdout=full, stderr=subprocess.PIPE, text=True, timeout=20,
            check=False, env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (
        1, "headwater: standard output: No space left on device\n",
    )  # fmt: skip


def refused(call: str, *words: str) -> str:
    """What a program says that ends because of such a call."""
    done = subprocess.run(
        [*REFUSING, call, sys.executable, COMMAND, *words],
        capture_output=True, text=True, timeout=20, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    return done.stderr


@refusing
@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc" or int(platform.libc_ver()[1].split(".")[1]) < 34,
    reason="this C library starts threads with another call",
)
def test_threads_that_a_sandbox_refuses(tmp_path: Path) -> None:
    """As with a limit of processes that is used up."""
    words = ("serve", "-a", "127.0.0.1", "-p", "-1", "-js", "-sd", str(tmp_path / "store"))
    assert "LimitNPROC" in refused("clone3", *words)


@refusing
def test_a_file_that_cannot_be_locked(tmp_path: Path) -> None:
    """It was said to be in use by an unknown process."""
    (tmp_path / "jetstream/log").mkdir(parents=True)
    (tmp_path / "jetstream/lock").touch()
    served = ("serve", "-a", "127.0.0.1", "-p", "-1", "-js", "-sd", str(tmp_path))
    for words in (served, ("store", "verify", "-sd", str(tmp_path))):
        assert "cannot lock" in refused("flock", *words)
