"""Where everything is on a gateway, and the small file that says which slot is trusted."""

import contextlib
import ctypes
import fcntl
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SLOTS = ("a", "b")
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
STATE_MODE = 0o644


class DeviceError(Exception):
    """Something on the gateway is not as it has to be; the text says what to do."""


def boot_id() -> str:
    """Changes with every start of the machine; empty where the system does not say."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return ""


def uptime() -> float:
    """Seconds since the machine started, sleep included; setting the clock does not move it."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def write_whole(path: Path, data: bytes, mode: int = STATE_MODE) -> None:
    """Put a file in its place in one step, durable."""
    temporary = path.with_name(f".{path.name}.new")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
    descriptor = os.open(temporary, flags, mode)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(descriptor, mode)
        file.write(data)
        file.flush()
        os.fsync(descriptor)
    os.replace(temporary, path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make renames in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_filesystem(folder: Path) -> None:
    """Make everything on the file system of a folder durable (syncfs(2))."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.syncfs(descriptor):
            raise OSError(ctypes.get_errno(), "cannot sync the file system")
    finally:
        os.close(descriptor)


def _still_locked(*_: object) -> None:
    raise DeviceError("another flash of this gateway is under way; wait for its end")


class Places:
    """Paths below one prefix, and what is kept there."""

    def __init__(self, prefix: Path) -> None:
        self.prefix = prefix
        self.slots = prefix / "slots"
        self.current = prefix / "current"
        self.incoming = prefix / "incoming"
        self.agent = prefix / "agent.pyz"
        self.python = prefix / "python"
        """Link to the interpreter that runs the agent."""
        self.settings_file = prefix / "gateway.json"
        self.state_file = prefix / "state.json"
        self.keys_file = prefix / "bundle-keys.json"

    # --- settings and state ---

    def settings(self) -> dict[str, Any]:
        """What the last flash set: name, data, service and so on. Raises DeviceError."""
        return self._read(self.settings_file)

    def state(self) -> dict[str, Any]:
        """The trusted slot `committed`, one on trial `trying`, and how the `last` trial ended."""
        if not self.state_file.exists():
            return {"committed": None, "trying": None, "last": None}
        return self._read(self.state_file)

    def keep_state(self, state: dict[str, Any]) -> None:
        """Write the state; durable when it returns."""
        write_whole(self.state_file, json.dumps(state).encode())

    def pinned(self) -> list[str]:
        """Keys whose bundles are taken."""
        found = self._read(self.keys_file)["keys"] if self.keys_file.exists() else []
        return [str(key) for key in found]

    def pin(self, keys: list[str]) -> None:
        """Keep keys, whatever was there."""
        write_whole(self.keys_file, json.dumps({"keys": keys}).encode())

    def _read(self, path: Path) -> dict[str, Any]:
        try:
            found = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise DeviceError(f"{path} cannot be read: {error}; flash this gateway again") from None
        if not isinstance(found, dict):
            raise DeviceError(f"{path} is no object; flash this gateway again")
        return found

    # --- slots ---

    def slot(self, name: str) -> Path:
        """Folder of a slot."""
        return self.slots / name

    def active(self) -> str | None:
        """The slot that `current` names."""
        try:
            name = os.path.basename(os.readlink(self.current))
        except OSError:
            return None
        return name if name in SLOTS else None

    def free(self) -> str:
        """The slot that may be filled: neither active nor trusted."""
        taken = {self.active(), self.state()["committed"]}
        return next(name for name in SLOTS if name not in taken)

    def identity(self, name: str | None) -> dict[str, Any]:
        """What a slot holds (`slot.json`); empty when nothing whole is in it."""
        if name is None:
            return {}
        try:
            found = json.loads((self.slot(name) / "slot.json").read_text())
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def point_at(self, name: str | None) -> None:
        """Swap the link `current`; None takes it away. Durable when it returns."""
        if name is None:
            self.current.unlink(missing_ok=True)
        else:
            temporary = self.prefix / ".current.new"
            temporary.unlink(missing_ok=True)
            temporary.symlink_to(f"slots/{name}")
            os.replace(temporary, self.current)
        sync_folder(self.prefix)

    @contextlib.contextmanager
    def lock(self, wait_s: float) -> Iterator[None]:
        """Only one program installs at a time. One whose connection was cut may still be at it, so
        wait for its end, at least a moment. Raises DeviceError when that takes longer."""
        descriptor = os.open(self.prefix / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            before = signal.signal(signal.SIGALRM, _still_locked)
            signal.setitimer(signal.ITIMER_REAL, wait_s)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
                signal.signal(signal.SIGALRM, before)
            yield
        finally:
            os.close(descriptor)
