"""File systems of a given size for tests, with and without root."""

import os
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_device(path: Path, size: str) -> Iterator[Path]:
    """A tmpfs of `size` ("64m") on the directory `path`; yields how to reach it. Without root it
    lies in a mount namespace of its own, which its keeper's entry in /proc leads to. Skips where
    the system allows neither."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)]
    if subprocess.run(command, capture_output=True, check=False).returncode == 0:
        try:
            yield path
        finally:
            subprocess.run(["umount", "-l", str(path)], check=True)
        return
    with namespaced(path, command) as inside:
        yield inside


@contextmanager
def namespaced(path: Path, command: list[str]) -> Iterator[Path]:
    """`command` mounts something on `path` in a mount namespace that lasts as long as this."""
    try:
        keeper = subprocess.Popen(
            ["unshare", "-Urm", "sh", "-c", f"{shlex.join(command)} && echo ready && cat"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
    except FileNotFoundError:
        pytest.skip("mounting needs root, or unshare of util-linux")
    with keeper:
        assert keeper.stdout is not None and keeper.stdin is not None
        ready = keeper.stdout.readline()
        if not ready:
            pytest.skip("mounting needs root or user namespaces; test_full_disk.py does without")
        yield Path(f"/proc/{keeper.pid}/root{os.fspath(path)}")
        keeper.stdin.close()
