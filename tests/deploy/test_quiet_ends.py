"""Ends that are nobody's fault print nothing: an early interrupt, a reader that has enough."""

import os
import signal
import subprocess

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
