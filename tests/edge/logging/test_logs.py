"""The log: nobody but the node makes lines, nobody floods it, and it goes where it is told to."""

import asyncio
import json
import logging
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.servers import Recipe, Server, program
from headwater.edge.logging import logs
from headwater.edge.logging.log_limit import CALL_SITE_LINES, PEER_LINES, LineLimit
from tests.edge.broker.logins.test_before_login import port_of, running, until_end

BOTH = {
    "headwater": (program("headwater"), "serve"),
    "nats-server": (program("nats-server"),),
}


@pytest.fixture
def log() -> Iterator[logging.Logger]:
    """The root of the node's loggers, put back as it was after the test."""
    logger = logging.getLogger("headwater")
    before = (logger.handlers[:], logger.propagate, logger.level)
    yield logger
    for handler in logger.handlers:
        handler.close()
    logger.handlers[:], logger.propagate = before[:2]
    logger.setLevel(before[2])


def lines_of(path: Path) -> list[str]:
    return path.read_text().splitlines()


def test_what_is_not_printable_is_escaped(log: logging.Logger, tmp_path: Path) -> None:
    logs.configure(logs.LogSettings(file=str(tmp_path / "log"), with_time=False))
    log.error("a\r\n[1] [INF] forged \x1b[2J\u2028\u202e %s", "b\x00c" + "x" * 20_000)
    try:
        raise ValueError("one\n[1] [INF] forged")
    except ValueError:
        log.exception("failed")
    lines = lines_of(tmp_path / "log")
    assert sum(line.startswith("[") for line in lines) == 2
    assert r"a\r\n[1] [INF] forged \x1b[2J\u2028\u202e b\x00c" in lines[0]
    assert len(lines[0]) < 9000
    assert all(line.startswith("    ") for line in lines[2:])


def test_lines_of_one_peer_are_limited(log: logging.Logger, tmp_path: Path) -> None:
    logs.configure(logs.LogSettings(file=str(tmp_path / "log"), with_time=False))
    now = [100.0]
    limit = LineLimit(log.handlers[0].handle, lambda: now[0])
    log.handlers[0].filters[:] = [limit]
    for number in range(5000):
        log.error("10.0.0.1:%d - cid:1 - authentication error", number)
        log.error("10.0.0.2:%d - cid:1 - x" if number < 5 else "%d", number)
        log.debug("10.0.0.1:%d - cid:1 - asked for", number)
    now[0] += 1
    log.error("10.0.0.1:1 - cid:1 - again")
    lines = lines_of(tmp_path / "log")
    assert sum("10.0.0.1:" in line for line in lines) == PEER_LINES + 1
    assert sum("10.0.0.2:" in line for line in lines) == 5
    assert len(lines) <= CALL_SITE_LINES + PEER_LINES + 8
    assert any(f"{5000 - PEER_LINES} further lines about 10.0.0.1" in line for line in lines)


def test_debugging_lines_are_not_limited(log: logging.Logger, tmp_path: Path) -> None:
    logs.configure(logs.LogSettings(file=str(tmp_path / "log"), debug=True))
    for number in range(1000):
        log.debug("10.0.0.1:%d - cid:1 - asked for", number)
    assert len(lines_of(tmp_path / "log")) == 1000


def test_one_traceback_for_many_failures(log: logging.Logger, tmp_path: Path) -> None:
    logs.configure(logs.LogSettings(file=str(tmp_path / "log")))
    for _ in range(50):
        try:
            raise KeyError("x")
        except KeyError:
            log.exception("failed")
    text = (tmp_path / "log").read_text()
    assert text.count("Traceback") == 1
    assert text.count("failed") == 50


HOSTILE = [
    b'CONNECT {"protocol":1e400}',
    b'CONNECT {"protocol":true,"verbose":[]}',
    b'CONNECT {"user":{},"pass":[],"jwt":1,"nkey":null,"sig":{}}',
    b'CONNECT {"name":"a\\nb","lang":7}',
    b"CONNECT \xff\xfe",
    b'CONNECT {"a":"\xff"}',
    b'CONNECT {"a":"\\ud800"}',
    b"CONNECT " + b"[" * 4000,
    b'CONNECT {"user":"a\\ud800b","pass":"\\u0000"}',
]


@pytest.mark.parametrize("listener", ["nats", "leafnodes", "cluster"])
async def test_what_is_no_connect_gets_no_traceback(
    listener: str, caplog: pytest.LogCaptureFixture
) -> None:
    text = (
        "authorization { user: a, password: b }\nleafnodes { listen: '127.0.0.1:-1' }\n"
        "cluster { name: c, listen: '127.0.0.1:-1' }\n"
    )
    async with running(text) as node:
        for line in HOSTILE:
            reader, writer = await asyncio.open_connection("127.0.0.1", port_of(node, listener))
            await reader.readline()
            writer.write(line + b"\r\nPING\r\nxxxx\r\n")
            await until_end(reader)
            writer.close()
    assert not [record for record in caplog.records if record.exc_info]


async def test_what_is_no_request_gets_no_traceback(caplog: pytest.LogCaptureFixture) -> None:
    async with running("http: '127.0.0.1:-1'\n") as node:
        for line in (b"\x00\xff\r\n\r\n", b"GET /varz HTTP/9.9\r\n\r\n", b"GET\r\n\r\n",
                     b"POST /varz HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
                     b"GET /connz?limit=1e400&offset=-9 HTTP/1.1\r\nHost: x\r\n"
                     b"Connection: close\r\n\r\n"):
            port = port_of(node, "monitoring")
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(line)
            await until_end(reader)
            writer.close()
    assert not [record for record in caplog.records if record.exc_info]


def test_a_leaf_cannot_make_lines_of_the_log(tmp_path: Path) -> None:
    config = "leafnodes { listen: '127.0.0.1:{leaf}' }\n"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    recipe = Recipe("headwater", BOTH["headwater"], config.replace("{leaf}", str(port)))
    with Server(recipe) as server:
        with socket.create_connection(("127.0.0.1", port), 5) as link:
            link.recv(4096)
            fields = {"name": "x\n[1] 2026/01/01 00:00:00.000000 [INF] forged", "gateway": "g\n[1]"}
            link.sendall(b"CONNECT " + json.dumps(fields).encode() + b"\r\n")
            while link.recv(4096):
                continue
        assert "[INF] forged" not in server.log
        assert "\n[1]" not in server.log


@pytest.mark.parametrize("size_limit", [0, 1000])
def test_who_logs_does_not_hear_that_the_folder_is_gone(
    log: logging.Logger, tmp_path: Path, capsys: pytest.CaptureFixture[str], size_limit: int
) -> None:
    """It raised at whatever logged. The lines go to standard error until the folder is back."""
    folder = tmp_path / "logs"
    folder.mkdir()
    logs.configure(
        logs.LogSettings(file=str(folder / "log"), size_limit=size_limit, with_time=False)
    )
    log.error("first")
    folder.rename(tmp_path / "aside")
    log.error("second")
    log.error("third")
    told = capsys.readouterr().err.splitlines()
    assert "cannot write to" in told[0] and str(folder) in told[0]
    assert [line.rpartition(" ")[2] for line in told[1:]] == ["second", "third"]
    folder.mkdir()
    log.error("fourth")
    assert capsys.readouterr().err == ""
    assert [line.rpartition(" ")[2] for line in lines_of(folder / "log")] == ["fourth"]


@pytest.mark.parametrize("size_limit", [0, 1000])
def test_who_logs_does_not_hear_that_the_device_is_full(
    log: logging.Logger, capsys: pytest.CaptureFixture[str], size_limit: int
) -> None:
    logs.configure(logs.LogSettings(file="/dev/full", size_limit=size_limit, with_time=False))
    for number in range(300):
        log.error("line %d %s", number, "x" * 100)
    told = capsys.readouterr().err.splitlines()
    assert sum("cannot write to /dev/full" in line for line in told) == 1
    assert "line 0 x" in told[1]
    assert not any("Traceback" in line for line in told)


@pytest.mark.parametrize("name", BOTH)
def test_a_file_that_grew_is_put_aside(name: str, tmp_path: Path) -> None:
    config = (
        f'logfile: "{tmp_path}/server.log"\nlogfile_size_limit: 2048\nlogfile_max_num: 3\n'
        "authorization { user: a, password: b }\n"
    )
    with Server(Recipe(name, BOTH[name], config)) as server:
        for number in range(100):
            source = (f"127.0.1.{number + 1}", 0)
            with socket.create_connection(("127.0.0.1", server.port), 5, source) as link:
                link.recv(4096)
                link.sendall(b'CONNECT {"user":"x","pass":"y"}\r\nPING\r\n')
                link.recv(4096)
    files = sorted(tmp_path.glob("server.log*"))
    assert len(files) == 3
    assert all(file.stat().st_size < 4096 for file in files)
    shape = r"server\.log\.\d{4}\.\d\d\.\d\d\.\d\d\.\d\d\.\d\d\.\d{9}"
    assert all(re.fullmatch(shape, file.name) for file in files[1:])


@pytest.mark.parametrize("name", BOTH)
def test_lines_go_to_syslog(name: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as syslog:
        syslog.bind(("127.0.0.1", 0))
        syslog.settimeout(5)
        config = f'remote_syslog: "udp://127.0.0.1:{syslog.getsockname()[1]}"\n'
        with Server(Recipe(name, BOTH[name], config)) as server:
            got = b""
            while b"Server is ready" not in got:
                got += syslog.recv(65536)
            assert server.log == ""
    assert b"nats-server[" in got


def test_a_syslog_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        logs.configure(logs.LogSettings(syslog=f"unix://{tmp_path}/none"))
    with pytest.raises(ValueError, match="no udp, tcp"):
        logs.configure(logs.LogSettings(syslog="http://x"))
