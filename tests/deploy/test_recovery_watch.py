"""A start tells systemd and people how far it has come."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.deploy import recovery_watch
from headwater.deploy.notify import Notifier
from headwater.deploy.recovery_watch import RecoveryWatch

PROGRAM = Path(sys.executable).parent / "headwater"


def listener(path: Path) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    sock.bind(str(path))
    sock.settimeout(10)
    return sock


def test_systemd_hears_ready_and_stopping(tmp_path: Path) -> None:
    with listener(tmp_path / "notify") as sock:
        environment = {**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify")}
        words = [PROGRAM, "serve", "-a", "127.0.0.1", "-p", "-1", "-js", "-sd", str(tmp_path)]
        node = subprocess.Popen(words, env=environment, stderr=subprocess.DEVNULL)
        try:
            assert b"READY=1" in sock.recv(4096).split(b"\n")
            node.send_signal(signal.SIGTERM)
            assert b"STOPPING=1" in sock.recv(4096).split(b"\n")
        finally:
            node.terminate()
            assert node.wait(20) == 0


def test_a_long_recovery_asks_for_patience(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = [100.0]
    monkeypatch.setattr(recovery_watch.time, "monotonic", lambda: now[0])
    caplog.set_level("INFO", "headwater.node")
    with listener(tmp_path / "notify") as sock:
        watch = RecoveryWatch(Notifier(str(tmp_path / "notify")))
        watch(1, 100)
        now[0] = 110.0
        watch(25, 100)
        watch(26, 100)
        text = sock.recv(4096).decode()
        assert "STATUS=recovering: 25 of 100 segments, 30 s left" in text
        assert "EXTEND_TIMEOUT_USEC=60000000" in text
        sock.setblocking(False)
        with pytest.raises(BlockingIOError):
            sock.recv(4096)
    assert [record.getMessage() for record in caplog.records] == [
        "  Recovering: 25 of 100 segments, 30 s left"
    ]
    watch.close()


def test_nobody_listens(tmp_path: Path) -> None:
    Notifier(str(tmp_path / "none")).send(READY=1)
    Notifier("").send(READY=1)
