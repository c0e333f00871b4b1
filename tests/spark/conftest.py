"""Fixtures: a server on a free port, a publisher, one Spark session for all tests."""

import asyncio
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bench.servers import free_port
from tests.jvms import JVM_FLAGS
from tests.slow import slow
from tests.waiting import until_seen, until_state

START_SECONDS = 20
SESSION_SECONDS = 600
"""Limit of a test that uses Spark: the first of them starts the session, on whatever machine."""
SERVER_KINDS = ("nats-server", "headwater")
EVERY = os.environ.get("HEADWATER_SPARK") == "all"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        if "spark" in fixtures:
            item.add_marker(pytest.mark.timeout(SESSION_SECONDS))
        if "nats-server" in item.name and _once(fixtures):
            item.add_marker(slow)


def _once(fixtures: Sequence[str]) -> bool:
    """Whether a test needs one kind of server in `make test`: what Spark does with rows does not
    depend on it, and readers and writers are compared without Spark."""
    if "both_servers" in fixtures:
        return False
    return not {"one_server", "spark", "run"}.isdisjoint(fixtures)


@pytest.fixture(scope="session", autouse=True)
def all_jvms_quick() -> Iterator[None]:
    """All JVMs of tests, those of other processes too, have `JVM_FLAGS`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JDK_JAVA_OPTIONS", JVM_FLAGS)
        yield


@pytest.fixture
def one_server() -> None:
    """For what depends little on the server, beside other tests that read from both of them: with
    nats-server it is slow."""


@pytest.fixture
def both_servers() -> None:
    """For tests with Spark that show in `make test`, too, what it does with nats-server."""


@dataclass
class Server:
    """A running server that speaks NATS with JetStream."""

    url: str
    process: subprocess.Popen

    def run(self, work: Callable[[Any, Any], Awaitable[Any]], **auth: Any) -> Any:
        """Run `work(connection, jetstream)` with nats-py, and return what it returns."""
        import nats

        async def main() -> Any:
            connection = await nats.connect(self.url, **auth)
            try:
                return await work(connection, connection.jetstream())
            finally:
                await connection.close()

        return asyncio.run(main())

    def options(self, stream: str, **more: str) -> dict[str, str]:
        return {"servers": self.url, "stream": stream, **more}


def server_command(kind: str) -> list[str]:
    """How to start a server of that kind; both take the same flags."""
    name = {"nats-server": "nats-server", "headwater": "headwater"}[kind]
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.exists() else shutil.which(name)
    if not found:
        pytest.fail(f"{name} is not installed")
    return [found] if kind == "nats-server" else [found, "serve"]


def start_server(
    folder: Path,
    config: str = "",
    kind: str = "nats-server",
    port: int = -1,
    jetstream: str = "",
) -> Server:
    """Start a server in `folder`; the kernel picks the port, the server writes it to a file.

    With `port` the server takes that one: it comes back where it was. `jetstream` is what its
    block says besides the folder.
    """
    for stale in folder.glob("*.ports"):
        stale.unlink()
    path = folder / "server.conf"
    store = json.dumps(str(folder / "store"))
    path.write_text(f"jetstream {{ store_dir: {store}\n{jetstream} }}\n{config}\n")
    command = [*server_command(kind), "-c", str(path), "-a", "127.0.0.1", "-p", str(port)]
    command += ["--ports_file_dir", str(folder), "-l", str(folder / "server.log")]
    process = subprocess.Popen(command)
    try:
        url = until_seen(partial(_url, process, folder), "the server accepts", START_SECONDS)
    except BaseException:
        process.kill()
        process.wait()
        raise
    return Server(url, process)


def _url(process: subprocess.Popen, folder: Path) -> str:
    """Where a server is, as its file of ports says; empty before it accepts."""
    if process.poll() is not None:
        raise RuntimeError((folder / "server.log").read_text())
    text = "".join(path.read_text() for path in folder.glob("*.ports"))
    if not text.strip().endswith("}"):
        return ""
    port = int(json.loads(text)["nats"][0].rpartition(":")[2])
    with socket.socket() as probe:
        return "" if probe.connect_ex(("127.0.0.1", port)) else f"nats://127.0.0.1:{port}"


@pytest.fixture(scope="session", params=SERVER_KINDS)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    running = start_server(tmp_path_factory.mktemp("server"), kind=request.param)
    yield running
    running.process.terminate()
    running.process.wait(10)


@pytest.fixture
def make_server(tmp_path: Path) -> Iterator[Callable[[str], Server]]:
    started: list[Server] = []

    def make(config: str) -> Server:
        folder = tmp_path / f"server{len(started)}"
        folder.mkdir()
        started.append(start_server(folder, config))
        return started[-1]

    yield make
    for running in started:
        running.process.terminate()
        running.process.wait(10)


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[list[Server]]:
    """Three nodes, one cluster."""
    ports = [free_port() for _ in range(3)]
    routes = json.dumps([f"nats-route://127.0.0.1:{port}" for port in ports])
    with contextlib.ExitStack() as stack:
        started = []
        for number, port in enumerate(ports):
            folder = tmp_path / f"n{number}"
            folder.mkdir()
            config = f"""server_name: n{number}
                cluster {{ name: hub, listen: "127.0.0.1:{port}", routes: {routes} }}"""
            one = start_server(folder, config, "headwater")
            stack.callback(end, one)
            started.append(one)
        yield started


def end(server: Server) -> None:
    """Kill a node, whatever became of it."""
    server.process.kill()
    server.process.wait(10)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from headwater.spark.session import build_session, spark_log

    settings = {
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    }
    with spark_log() as log:
        session = build_session("headwater tests", "local[2]", settings, log)
        yield session
        session.stop()


@pytest.fixture
def fill(server: Server) -> Iterator[Callable[..., str]]:
    """Make a stream with messages; streams go away after the test."""
    made: list[str] = []

    def make(
        name: str,
        messages: list[tuple[str, bytes, dict[str, str] | None]],
        delete: tuple[int, ...] = (),
        **config: Any,
    ) -> str:
        async def work(connection: Any, stream: Any) -> None:
            subjects = config.pop("subjects", [f"{name}.>"])
            await stream.add_stream(name=name, subjects=subjects, storage="memory", **config)
            for subject, payload, headers in messages:
                await connection.publish(subject, payload, headers=headers)
            await connection.flush()
            await until_state(stream, name, lambda state: state.last_seq == len(messages))
            for sequence in delete:
                await stream.delete_msg(name, sequence)

        made.append(name)
        server.run(work)
        return name

    yield make

    async def drop(connection: Any, stream: Any) -> None:
        import nats.js.errors

        for name in made:
            try:
                await stream.delete_stream(name)
            except nats.js.errors.NotFoundError:
                continue

    server.run(drop)


@pytest.fixture
def driver_folder() -> Iterator[Path]:
    """Where a killed driver leaves its files; the name is short enough for Unix sockets."""
    with tempfile.TemporaryDirectory(prefix="hw-", ignore_cleanup_errors=True) as name:
        yield Path(name)
