"""Looks at one executor from inside. Its text is run by the executor's Python, whichever it is.

So it needs nothing but Python 3.6 and its standard library. Arguments: the process id of the
executor's JVM, and JSON {"servers": [[host, port], …], "timeout": seconds}. It prints one line
of JSON: what it found, or under "error" why nothing could be found.
"""

import json
import os
import re
import socket
import subprocess
import sys
from typing import Any


def package_version(name: str) -> Any:
    """The version of an installed package; None when there is none."""
    try:
        from importlib import metadata

        return metadata.version(name)
    except Exception:
        return None


def import_problem() -> str:
    """Why the compiled reader cannot be imported; "" when it can."""
    try:
        import headwater.spark.wire.wire_reader  # noqa: F401

        return ""
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def java_version(pid: str) -> str:
    """What the executor's JVM says of its version; "" when that cannot be seen."""
    try:
        java = os.readlink(f"/proc/{pid}/exe")
        done = subprocess.run(
            [java, "-version"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=30
        )
    except Exception:
        return ""
    match = re.search(r'version "([^"]+)"', done.stderr.decode("utf-8", "replace"))
    return match.group(1) if match else ""


def unreachable(servers: Any, timeout: float) -> Any:
    """The servers that take no connection, each with the reason."""
    problems = []
    for host, port in servers:
        try:
            socket.create_connection((host, port), timeout).close()
        except OSError as error:
            problems.append(f"{host}:{port}: {error}")
    return problems


def look(pid: str, wanted: Any) -> Any:
    """All that is found."""
    return {
        "python": sys.version.split()[0],
        "executable": sys.executable,
        "packages": {name: package_version(name) for name in ("headwater", "pyarrow", "pyspark")},
        "import": import_problem(),
        "java": java_version(pid),
        "unreachable": unreachable(wanted["servers"], wanted["timeout"]),
    }


if __name__ == "__main__":
    print(json.dumps(look(sys.argv[1], json.loads(sys.argv[2]))))
