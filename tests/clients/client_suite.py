"""Runs the test suite of a client, whose tests start `nats-server`, with Headwater in its place.

`python -m tests.clients.client_suite FOLDER COMMAND...` runs the command in a checkout of the
client. A suite that has servers within itself, as that of Go, cannot be run so.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.servers import program

SCRIPT = '#!/bin/sh\nexec {program} serve "$@"\n'


def stand_in(folder: Path) -> dict[str, str]:
    """The environment in which `nats-server` is Headwater; its program is made in `folder`."""
    made = folder / "nats-server"
    made.write_text(SCRIPT.format(program=program("headwater")))
    made.chmod(0o755)
    return {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}


def run(checkout: Path, command: list[str]) -> int:
    """Run a suite; returns its exit status."""
    with tempfile.TemporaryDirectory() as folder:
        environment = stand_in(Path(folder))
        return subprocess.run(command, cwd=checkout, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(run(Path(sys.argv[1]), sys.argv[2:]))
