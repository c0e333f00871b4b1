"""Fills a slot from a bundle: beside everything that runs, and whole or not at all."""

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from headwater.deploy.fleet.device.bundle_file import BYTECODE, INTERPRETER, Bundle
from headwater.deploy.fleet.device.places import DeviceError, Places, sync_filesystem

ROOM_FACTOR = 5
"""Unpacked files take so many times the bundle at most."""
CONFIG = "edge.conf"
COMPILE_S = 300.0

LAUNCHER = """\
#!/bin/sh
# Runs headwater of the slot that this file is in, and nothing from elsewhere.
slot=$(cd "$(dirname "$0")/.." && pwd -P)
PYTHONPATH="$slot/site" PYTHONNOUSERSITE=1 PYTHONDONTWRITEBYTECODE=1
HEADWATER_GATEWAY="$slot/../../gateway.json" HEADWATER_SLOT="$slot"
export PYTHONPATH PYTHONNOUSERSITE PYTHONDONTWRITEBYTECODE HEADWATER_GATEWAY HEADWATER_SLOT
exec "{python}" -S -m headwater.deploy.main "$@"
"""


def target_problem(manifest: dict[str, Any], machine: str, python: str) -> str:
    """Why a bundle cannot be used on this kind of machine; empty when it can."""
    target = manifest["target"]
    if target["machine"] != machine:
        return f"the bundle is for {target['machine']}, this machine is {machine}"
    carries = any(entry["path"] == INTERPRETER for entry in manifest["files"])
    if target["python"] != python and not carries:
        return f"the bundle is for Python {target['python']}, this machine has {python or 'none'}"
    return ""


def slot_identity(digest: str, config: str, more: str) -> str:
    """Equal for slots that hold the same and are run in the same way."""
    return hashlib.sha256(f"{digest}\n{config}\n{more}".encode()).hexdigest()


def fill(
    places: Places,
    name: str,
    bundle: Bundle,
    config: str,
    identity: str,
    python: str,
    tell: Callable[[str], None],
) -> None:
    """Put a bundle and a configuration into a free slot. Raises BundleError, OSError."""
    slot = places.slot(name)
    fresh = slot.with_name(f".{name}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    check_room(places.prefix, bundle.path.stat().st_size * ROOM_FACTOR)
    try:
        (fresh / "site").mkdir(parents=True)
        compiled = False
        for path, content in bundle.files():
            _unpack(path, content, fresh)
            compiled = compiled or path == BYTECODE
        own = fresh / "python/bin/python3"
        if not compiled and (own.exists() or python):
            tell("compiling")
            compile_site(str(own) if own.exists() else python, fresh / "site")
        if own.exists():
            python = str(slot / "python/bin/python3")
        elif not python:
            raise DeviceError("neither this machine nor the bundle has a Python; add one to it")
        _finish(fresh, bundle, config, identity, python)
        tell("syncing")
        sync_filesystem(fresh)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    if slot.exists():
        shutil.rmtree(slot)
    os.replace(fresh, slot)
    sync_filesystem(places.slots)


def compile_site(python: str, site: Path) -> None:
    """Have the gateway's Python make the bytecode, where who made the bundle had none of its
    version. A node runs without it, only its starts take longer."""
    words = [python, "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", str(site)]
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run(words, capture_output=True, check=False, timeout=COMPILE_S)


def check_room(folder: Path, needed: int) -> None:
    """Raise DeviceError unless `needed` bytes are free where `folder` is."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise DeviceError(
            f"no space on {folder}: {free >> 20} MB free, {needed >> 20} MB needed; free some"
        )


def _unpack(path: str, content: IO[bytes], slot: Path) -> None:
    if path == INTERPRETER:
        (slot / "python").mkdir()
        with tarfile.open(fileobj=content, mode="r:gz") as archive:
            archive.extractall(slot / "python", filter="data")
    elif path.endswith(".whl") or path == BYTECODE:
        with zipfile.ZipFile(content) as archive:
            archive.extractall(slot / "site")


def _finish(slot: Path, bundle: Bundle, config: str, identity: str, python: str) -> None:
    (slot / "bin").mkdir()
    launcher = slot / "bin/headwater"
    launcher.write_text(LAUNCHER.format(python=python))
    launcher.chmod(0o755)
    (slot / CONFIG).write_text(config)
    (slot / CONFIG).chmod(0o640)
    (slot / "manifest.json").write_text(json.dumps(bundle.manifest))
    about = {
        "identity": identity, "digest": bundle.digest, "version": bundle.manifest["version"],
        "python": python, "store": bundle.manifest["store"],
    }  # fmt: skip
    (slot / "slot.json").write_text(json.dumps(about))
    for folder, names, _ in os.walk(slot):
        for each in names:
            os.chmod(os.path.join(folder, each), 0o755)
    slot.chmod(0o755)


def way_back(new: dict[str, Any], old: dict[str, Any]) -> str:
    """Why the version before could not read the store after the new one; empty when it can.

    The rule: a version reads the formats from `reads` to `writes`. What the new one writes has to
    be no later than what the old one writes; and the new one has to read what is there.
    """
    if not old:
        return ""
    if old["writes"] < new["reads"]:
        return (
            f"it cannot read the store: that has format {old['writes']}, and it reads from "
            f"{new['reads']} on; upgrade to a version between first"
        )
    if new["writes"] > old["writes"]:
        return (
            f"there would be no way back: it writes store format {new['writes']}, the version "
            f"before reads up to {old['writes']}; allow that with --one-way"
        )
    return ""
