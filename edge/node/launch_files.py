"""Files by which launchers find a running node: its pid file, and its ports file."""

import contextlib
import json
import logging
import os
import sys
from pathlib import Path

from headwater.edge.conf.options import Options

log = logging.getLogger("headwater.node")


class PidFileError(Exception):
    """The pid file cannot be written. The text says which and why."""


def write_files(options: Options, ports: dict[str, list[str]]) -> None:
    """Write what the options name; `ports` has the URLs of every listener, by their names.

    A ports file that cannot be written is logged, and the node runs without. Raises PidFileError.
    """
    if options.pid_file:
        try:
            Path(options.pid_file).write_text(str(os.getpid()))
        except OSError as error:
            reason = f"open {options.pid_file}: {error.strerror}"
            raise PidFileError(f"Could not write pidfile: {reason}") from error
    if options.ports_file_dir:
        path = _ports_file(options)
        try:
            path.write_text(json.dumps(ports))
        except OSError as error:
            log.error(
                "Error writing ports file (%s): %s; the node runs without", path, error.strerror
            )


def remove_files(options: Options) -> None:
    """Remove what `write_files` has written, as far as it is there. A pid file that names another
    process by now stays: a node that was started meanwhile is found by it."""
    with contextlib.suppress(OSError):
        if options.pid_file and Path(options.pid_file).read_text() == str(os.getpid()):
            Path(options.pid_file).unlink()
    with contextlib.suppress(OSError):
        if options.ports_file_dir:
            _ports_file(options).unlink()


def _ports_file(options: Options) -> Path:
    name = Path(sys.argv[0]).name
    name = "nats-server" if name in ("headwater", "__main__.py", "") else name
    return Path(options.ports_file_dir) / f"{name}_{os.getpid()}.ports"
