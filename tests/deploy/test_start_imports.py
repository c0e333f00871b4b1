"""What a node loads before it serves: a library that is not needed costs every start its time."""

import subprocess
import sys
from pathlib import Path

import pytest

import headwater.deploy.main

START = [sys.executable, "-X", "importtime", "-m", "headwater.deploy.main", "serve"]
LIBRARIES = {"uvloop", "msgspec", "typing_extensions", "org", "nacl", "_cffi_backend"}
"""The only ones of others that are loaded by then; Python itself looks for Jython's `org`. Of nacl
it is the part in C, which makes the node's curve key."""

LATER = {
    "argparse",
    "bz2",
    "concurrent.futures.process",
    "email",
    "html",
    "http.client",
    "http.server",
    "lzma",
    "multiprocessing",
    "shutil",
    "tempfile",
    "tomllib",
    "unittest",
    "urllib.request",
    "xml",
    "zoneinfo",
}
"""Of Python's own, those that take a millisecond or more and that a start does without."""

ROOMS = {
    "": {
        "federation.leaf.leaf_links",
        "federation.origins.origin_driver",
        "hub",
        "spark",
        "edge.jetstream.node",
        "edge.storage.node",
        "edge.monitor.service",
    },
    "-js": {
        "federation.leaf.leaf_listener",
        "federation.origins",
        "hub",
        "spark",
        "edge.monitor.service",
    },
}
"""Headwater's own that a node without (other) options leaves alone."""


def loaded(*flags: str) -> set[str]:
    """Every module that is imported until the node is ready."""
    found = set()
    command = [*START, "-a", "127.0.0.1", "-p", "-1", *flags]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("import time:"):
                found.add(line.rpartition("|")[2].strip())
            elif "Server is ready" in line:
                break
        else:
            raise AssertionError("the node did not start")
        process.terminate()
    return found


def packages(modules: set[str]) -> set[str]:
    """Modules that are not Python's, nor of what starts the interpreter, by their packages."""
    bare = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", ""], capture_output=True, text=True, check=True
    )
    started = {line.rpartition("|")[2].strip() for line in bare.stderr.splitlines()}
    names = {name.partition(".")[0] for name in modules - started}
    return names - set(sys.stdlib_module_names) - {"headwater"}


@pytest.mark.parametrize("mode", ["", "-js"])
def test_nothing_is_loaded_that_can_wait(mode: str, tmp_path: Path) -> None:
    modules = loaded(*([mode, "-sd", str(tmp_path)] if mode else []))
    assert "headwater.edge.node.node" in modules
    assert {name for name in packages(modules) if not name.startswith("_")} <= LIBRARIES
    assert not modules & LATER
    named = {f"{name}.".removeprefix("headwater.") for name in modules}
    assert not {room for room in ROOMS[mode] for name in named if name.startswith(f"{room}.")}


def test_an_interrupt_ends_a_start_before_anything_is_imported() -> None:
    """Until the handler is set, Python prints a traceback: the launcher imports nothing by then."""
    flags = [sys.executable, "-I", "-S", "-X", "importtime"]
    told = [
        subprocess.run([*flags, *run], capture_output=True, text=True, check=False).stderr
        for run in (["-c", "import os"], [headwater.deploy.main.__file__, "serve"])
    ]
    names = [
        [line.rpartition("|")[2].strip() for line in one.splitlines() if "|" in line]
        for one in told
    ]
    assert "No module named 'headwater'" in told[1]
    more = {name for name in names[1] if name.partition(".")[0] != "headwater"} - set(names[0])
    assert more <= {"gc"}
