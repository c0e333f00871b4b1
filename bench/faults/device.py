"""A small file system for a store: ext4 on a loop device, or tmpfs where that is refused."""

import os
import shlex
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

MKFS = ("mkfs.ext4", "-q", "-F")


class NoDevice(OSError):
    """The system allows nothing to be mounted."""


@dataclass(frozen=True)
class Device:
    """A mounted file system: where to reach it, and its kind."""

    path: Path
    kind: str


def _works(*command: str) -> bool:
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


@contextmanager
def small_device(mebibytes: int, parent: Path | None = None) -> Iterator[Device]:
    """An empty file system of that size, gone afterwards. Raises NoDevice.

    Without root it is a tmpfs in a mount namespace, reached through /proc.
    """
    with tempfile.TemporaryDirectory(prefix="headwater-device-", dir=parent) as place:
        image, point = Path(place) / "image", Path(place) / "mount"
        point.mkdir()
        with image.open("wb") as file:
            file.truncate(mebibytes << 20)
        if _works(*MKFS, str(image)) and _works("mount", "-o", "loop", str(image), str(point)):
            with _unmounted_after(point):
                yield Device(point, "ext4")
        else:
            with tmpfs(point, mebibytes) as path:
                yield Device(path, "tmpfs")


@contextmanager
def tmpfs(point: Path, mebibytes: int) -> Iterator[Path]:
    """A tmpfs of that size on a directory; yields how to reach it. Without root it lies in a mount
    namespace of its own, which its keeper's entry in /proc leads to. Raises NoDevice."""
    command = ("mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "tmpfs", str(point))
    if _works(*command):
        with _unmounted_after(point):
            yield point
    else:
        with _namespaced(command, point) as path:
            yield path


@contextmanager
def _unmounted_after(point: Path) -> Iterator[None]:
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(point)], check=True)


@contextmanager
def _namespaced(command: tuple[str, ...], point: Path) -> Iterator[Path]:
    """`command` mounts on `point` in a mount namespace that lasts as long as this."""
    inside = f"{shlex.join(command)} && echo ready && cat"
    try:
        keeper = subprocess.Popen(
            ["unshare", "-Urm", "sh", "-c", inside],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
    except FileNotFoundError:
        raise NoDevice("mounting needs root, or unshare of util-linux") from None
    with keeper:
        assert keeper.stdout is not None and keeper.stdin is not None
        if not keeper.stdout.readline():
            raise NoDevice("mounting needs root or user namespaces")
        yield Path(f"/proc/{keeper.pid}/root{os.fspath(point)}")
        keeper.stdin.close()
