"""Runs the test suite of a client, whose tests start `nats-server`, with Headwater in its place.

`python -m tests.clients.client_suite FOLDER COMMAND...` runs the command in a checkout of the
client. The suite of nats.go asks a service for its servers: it gets one (`tester_service.py`).
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.servers import program

ROOT = Path(__file__).parents[2]
ASKS = "go_test.mod"
"""The file by which a checkout shows that its suite asks a service for servers."""
SCRIPT = '#!/bin/sh\nexec {program} serve "$@"\n'


def stand_in(folder: Path) -> dict[str, str]:
    """The environment in which `nats-server` is Headwater; its program is made in `folder`."""
    made = folder / "nats-server"
    made.write_text(SCRIPT.format(program=program("headwater")))
    made.chmod(0o755)
    return {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}


@contextmanager
def asked_servers(folder: Path) -> Iterator[str]:
    """The address of a service that starts servers of Headwater for whoever asks."""
    command = [sys.executable, "-m", "tests.clients.tester_service", str(folder)]
    service = subprocess.Popen(
        [*command, f"{program('headwater')} serve"], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    try:
        assert service.stdout is not None
        yield service.stdout.readline().strip()
    finally:
        service.terminate()
        service.communicate()


def run(checkout: Path, command: list[str]) -> int:
    """Run a suite; returns its exit status."""
    with tempfile.TemporaryDirectory() as folder:
        environment = stand_in(Path(folder))
        if not (checkout / ASKS).exists():
            return subprocess.run(command, cwd=checkout, env=environment, check=False).returncode
        with asked_servers(Path(folder)) as address:
            environment["TESTER_NATS_URL"] = address
            return subprocess.run(command, cwd=checkout, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(run(Path(sys.argv[1]), sys.argv[2:]))
