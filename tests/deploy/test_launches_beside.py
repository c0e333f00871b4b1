"""What an operator sees of a start, of signals and of clients: beside nats-server."""

import os
import re
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bench.servers import program
from headwater.deploy.signals import serving
from tests.waiting import until

COMMANDS = {"ours": (program("headwater"), "serve"), "theirs": (program("nats-server"),)}
LOCAL = ("-a", "127.0.0.1", "-p", "-1")
CONF = """
authorization { users: [
    { user: a, password: b, permissions: { publish: x, subscribe: y } } ] }
max_payload: 10
max_subscriptions: 2
"""
LOGIN = (
    b'CONNECT {"user":"a","pass":"b","name":"N","lang":"go","version":"1.2","verbose":false}\r\n'
)


class Run:
    """A running server and the lines that it has said."""

    def __init__(self, command: tuple[str, ...], *flags: str) -> None:
        self.process = subprocess.Popen(
            [*command, *flags], stderr=subprocess.PIPE, text=True, stdout=subprocess.DEVNULL
        )
        self.lines: list[str] = []
        try:
            self.heard("Server is ready")
        except BaseException:
            self.process.kill()
            raise

    def heard(self, text: str, *, anew: bool = True) -> str:
        """The next line with `text`, or else one that was heard; what is said before it is kept in
        `lines`."""
        if not anew and (known := [line for line in self.lines if text in line]):
            return known[0]
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)
            if text in line:
                return line
        raise AssertionError(f"it ended without {text!r}: {self.lines}")

    def port(self) -> int:
        shown = re.search(r"client connections on 127.0.0.1:(\d+)", "".join(self.lines))
        assert shown is not None
        return int(shown.group(1))

    def end(self) -> list[str]:
        """End it, if that was not done; all that it has said."""
        if self.process.returncode is not None:
            return self.lines
        self.process.terminate()
        assert self.process.stderr is not None
        self.lines += self.process.stderr.readlines()
        self.process.wait()
        self.process.stderr.close()
        return self.lines


def answered(port: int, data: bytes) -> bytes:
    """What a client hears until its connection ends, or its PING is answered."""
    heard = b""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as sock:
        sock.sendall(data)
        while b"PONG\r\n" not in heard and (part := sock.recv(65536)):
            heard += part
    return heard


def of_clients(lines: list[str]) -> list[str]:
    """The log's lines about clients, without what is new every time."""
    told = [line.partition("[ERR] ") for line in lines if "[ERR]" in line and "cid:" in line]
    return [re.sub(r"^127.0.0.1:\d+ - cid:\d+", "CLIENT", line.strip()) for _, _, line in told]


Start = Callable[..., Run]


@pytest.fixture
def start() -> Iterator[Start]:
    """Makes a `Run`; all of them end with the test."""
    runs: list[Run] = []

    def make(server: str, *flags: str) -> Run:
        runs.append(Run(COMMANDS[server], *flags))
        return runs[-1]

    yield make
    for run in runs:
        run.end()


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("beside") / "node.conf"
    path.write_text(CONF)
    return path


@pytest.fixture(scope="module")
def pair(config: Path) -> Iterator[list[Run]]:
    runs = [Run(command, *LOCAL, "-c", str(config)) for command in COMMANDS.values()]
    yield runs
    for run in runs:
        run.end()


@pytest.mark.parametrize(
    ("data", "last"),
    [
        (b"CONNECT {}\r\n", "authentication error"),
        (b'CONNECT {"user":"a","pass":"x"}\r\n', "authentication error"),
        (b"GET / HTTP/1.1\r\n\r\n", "authentication error"),
        (b"\x16\x03\x01\x02\r\n", "authentication error"),
        (LOGIN + b"PUB x 11\r\n", "maximum payload"),
        (LOGIN + b"PUB z 1\r\na\r\nPING\r\n", "Publish Violation"),
        (LOGIN + b"SUB z 1\r\nPING\r\n", "Subscription Violation"),
        (LOGIN + b"SUB y 1\r\nSUB y 2\r\nSUB y 3\r\nPING\r\n", "maximum subscriptions"),
    ],
)
def test_a_client_is_told_of_alike(pair: list[Run], data: bytes, last: str) -> None:
    """Who it is, and what it did. Ours tells more of why a login was refused."""
    said = []
    for run in pair:
        before = len(run.lines)
        answered(run.port(), data)
        run.heard(last)
        said.append([line.removesuffix(", SID 1") for line in of_clients(run.lines[before:])])
    ours, theirs = said
    if "authentication" in last:
        ours = [line.partition(": ")[0] for line in ours]
    assert ours == theirs


@pytest.mark.parametrize("server", COMMANDS)
def test_a_connection_is_told_of_while_debugging(server: str, start: Start) -> None:
    run = start(server, *LOCAL, "-D")
    answered(run.port(), b'CONNECT {"name":"N"}\r\nPING\r\n')
    created = run.heard("Client connection created")
    closed = run.heard("Client connection closed: Client Closed")
    run.end()
    assert re.search(r"\[DBG\] 127.0.0.1:\d+ - cid:\d+ - Client connection created$", created)
    assert re.search(r'\[DBG\] 127.0.0.1:\d+ - cid:\d+ - "N" - Client connection closed', closed)


@pytest.mark.parametrize("server", COMMANDS)
def test_signals_are_told_of(server: str, start: Start, tmp_path: Path) -> None:
    config = tmp_path / "node.conf"
    config.write_text("debug: false\n")
    run = start(server, *LOCAL, "-c", str(config))
    run.process.send_signal(signal.SIGHUP)
    run.heard('Trapped "hangup" signal')
    run.heard("Reloaded server configuration (sha256:")
    assert f"Using configuration file: {config} (sha256:" in "".join(run.lines)
    run.process.terminate()
    run.heard('Trapped "terminated" signal')
    run.end()


@pytest.mark.parametrize("server", COMMANDS)
async def test_a_log_that_was_moved_is_opened_again(server: str, tmp_path: Path) -> None:
    log, moved = tmp_path / "log", tmp_path / "log.1"
    with subprocess.Popen([*COMMANDS[server], *LOCAL, "-l", str(log)]) as process:
        await until(lambda: log.exists() and "Server is ready" in log.read_text())
        log.rename(moved)
        process.send_signal(signal.SIGUSR1)
        try:
            await until(lambda: log.exists() and "[INF] File log re-opened" in log.read_text())
        finally:
            process.terminate()
    assert "Server is ready" in moved.read_text()


@pytest.mark.parametrize("server", COMMANDS)
async def test_a_log_that_is_full_says_where_it_went(server: str, tmp_path: Path) -> None:
    log, config = tmp_path / "log", tmp_path / "node.conf"
    config.write_text(f'log_file: "{log}"\nlogfile_size_limit: 600\nlogfile_max_num: 2\n')

    def told(text: str) -> bool:
        return any(text in path.read_text() for path in tmp_path.glob("log*"))

    with subprocess.Popen([*COMMANDS[server], *LOCAL, "-c", str(config)]) as process:
        await until(lambda: told("Server is ready"))
        process.send_signal(signal.SIGHUP)
        try:
            await until(lambda: told(f'Rotated log, backup saved as "{log}.'))
        finally:
            process.kill()  # The reference, told to end while it turns its log, once did not.


@pytest.mark.parametrize("server", COMMANDS)
@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (("-P", "{dir}/none/pid"), "Could not write pidfile: open {dir}/none/pid"),
        (("--client_advertise", "host:port"), "port"),
        (("--client_advertise", "::1"), "::1"),
        (("-ms", "-1"), "TLS cert and key required for HTTPS"),
        (("-c", "system_account: Z"), "system"),
        (("-c", 'system_account: "$SYS"'), "system"),
        (("-c", "jetstream: on\naccounts { A { jetstream: on } }\nsystem_account: A"), "system"),
    ],
)
def test_a_start_that_is_refused(
    server: str, flags: tuple[str, ...], told: str, tmp_path: Path
) -> None:
    filled = [flag.replace("{dir}", str(tmp_path)) for flag in flags]
    if flags[0] == "-c":
        (tmp_path / "server.conf").write_text(flags[1])
        filled = ["-c", str(tmp_path / "server.conf"), "-sd", str(tmp_path)]
    done = subprocess.run(
        [*COMMANDS[server], *LOCAL, *filled],
        capture_output=True, text=True, timeout=60, check=False,
    )
    assert done.returncode == 1
    assert told.replace("{dir}", str(tmp_path)) in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("server", COMMANDS)
def test_a_ports_file_that_cannot_be_written_is_no_reason_to_end(
    server: str, start: Start, tmp_path: Path
) -> None:
    run = start(server, *LOCAL, "--ports_file_dir", str(tmp_path / "none"))
    assert answered(run.port(), b"CONNECT {}\r\nPING\r\n").endswith(b"PONG\r\n")
    run.heard(f"{tmp_path}/none/nats-server_", anew=False)
    run.end()
    assert run.process.returncode == 0


def test_a_reload_that_names_a_log_which_is_not_there_changes_nothing(
    start: Start, tmp_path: Path
) -> None:
    config = tmp_path / "node.conf"
    config.write_text("debug: false\n")
    run = start("ours", *LOCAL, "-c", str(config))
    config.write_text(f'log_file: "{tmp_path}/none/log"\n')
    run.process.send_signal(signal.SIGHUP)
    run.heard("Failed to reload server configuration: cannot open the log")
    assert "Traceback" not in "".join(run.end())


@pytest.mark.parametrize("server", COMMANDS)
def test_a_signal_for_one_of_several_processes_names_them(server: str, start: Start) -> None:
    """With one that runs it is for that one. Here two are, so no other hears of it."""
    runs = [start(server, *LOCAL) for _ in range(2)]
    done = subprocess.run(
        [*COMMANDS[server], "--signal", "reload"],
        capture_output=True, text=True, timeout=60, check=False,
    )
    for run in runs:
        run.end()
    assert done.returncode == 1
    assert "multiple nats-server processes running:" in done.stderr
    assert {str(run.process.pid) for run in runs} <= set(done.stderr.split())


def test_which_processes_serve(tmp_path: Path) -> None:
    for number, line in {
        "11": ["/usr/bin/python3", "/opt/bin/headwater", "serve", "-js"],
        "12": ["headwater", "serve"],
        "13": ["headwater", "serve", "--signal", "reload"],
        "14": ["headwater", "serve", "-sl=stop"],
        "15": ["vim", "headwater", "notes"],
        "16": ["headwater", "store", "verify"],
        "self": ["headwater", "serve"],
    }.items():
        (tmp_path / number).mkdir()
        (tmp_path / number / "cmdline").write_bytes("\0".join(line).encode() + b"\0")
    (tmp_path / "17").mkdir()
    assert serving(tmp_path) == {11, 12}
    assert os.getpid() not in serving(Path("/proc"))


def test_help_for_tls() -> None:
    for command in COMMANDS.values():
        done = subprocess.run(
            [*command, "--help_tls"], capture_output=True, text=True, timeout=60, check=True
        )
        for word in ("cert_file", "cipher_suites", "curve_preferences"):
            assert word in done.stdout + done.stderr
