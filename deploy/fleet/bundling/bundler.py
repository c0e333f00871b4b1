"""Puts wheels, their bytecode and perhaps an interpreter into one signed bundle."""

import base64
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from headwater.deploy.fleet.device.bundle_file import (
    BYTECODE,
    CONTEXT,
    FORMAT,
    INTERPRETER,
    MANIFEST,
    SIGNATURE,
)
from headwater.edge.storage.directory.directory import FIRST_FORMAT as STORE_WRITES
from headwater.security.nkeys import KeyPair

SUFFIX = ".bundle"
MACHINES = ("x86_64", "aarch64", "armv7l")
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
OWN_WHEEL = re.compile(r"headwater-([^-]+)-")
GLIBC_SYMBOL = re.compile(rb"GLIBC_2\.(\d+)\0")
OLDEST_GLIBC = 17
STORE_READS = 1
"""Oldest format of the store that this version reads."""
NOT_NEEDED = re.compile(
    r"(^|/)(test|tests|idlelib|lib2to3|ensurepip|turtledemo|tkinter|config-[^/]*|__pycache__)(/|$)"
    r"|\.a$|^share/|^include/"
)
"""Parts of an interpreter that a gateway does without."""


class CannotBundle(Exception):
    """Something is missing for a bundle; the text says what to do."""


class Target(NamedTuple):
    """A kind of gateway."""

    machine: str
    python: str

    def text(self) -> str:
        """As in a bundle's name."""
        return f"{self.machine}-cp{self.python.replace('.', '')}"


class Recipe(NamedTuple):
    """What goes into a bundle."""

    target: Target
    wheels: Sequence[Path]
    signer: KeyPair
    next_keys: Sequence[str] = ()
    interpreter: Path | None = None
    store: tuple[int, int] = (STORE_READS, STORE_WRITES)
    """Formats of the store: the oldest that is read, and what a gateway writes, which is no node of
    a cluster."""


def build(recipe: Recipe, output: Path) -> Path:
    """Write a bundle into a folder; returns its path. Raises CannotBundle."""
    version = own_version(recipe.wheels)
    path = output / f"headwater-{version}-{recipe.target.text()}{SUFFIX}"
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output, prefix=".bundle-") as scratch:
        work = Path(scratch)
        files = {f"wheels/{wheel.name}": wheel for wheel in recipe.wheels}
        if bytecode := make_bytecode(recipe, work):
            files[BYTECODE] = bytecode
        if recipe.interpreter is not None:
            files[INTERPRETER] = pack_interpreter(recipe.interpreter, work / INTERPRETER)
        manifest: dict[str, Any] = {
            "format": FORMAT, "name": "headwater", "version": version,
            "target": {
                "system": "Linux", **recipe.target._asdict(), "glibc": needed_glibc(recipe.wheels),
            },
            "store": {"reads": recipe.store[0], "writes": recipe.store[1]},
            "next_keys": list(recipe.next_keys),
            "files": [_entry(name, file) for name, file in files.items()],
        }  # fmt: skip
        part = work / "bundle"
        _write(part, json.dumps(manifest, indent=1).encode(), recipe.signer, files)
        os.replace(part, path)
    return path


def own_version(wheels: Sequence[Path]) -> str:
    """Version of Headwater among some wheels. Raises CannotBundle."""
    for wheel in wheels:
        if match := OWN_WHEEL.match(wheel.name):
            return match.group(1)
    raise CannotBundle("there is no wheel of headwater; run make wheels, or give --wheel")


def needed_glibc(wheels: Sequence[Path]) -> tuple[int, int]:
    """The oldest glibc that has every symbol that compiled modules ask for."""
    newest = OLDEST_GLIBC
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if name.endswith(".so") or ".so." in name:
                    found = map(int, GLIBC_SYMBOL.findall(archive.read(name)))
                    newest = max([newest, *found])
    return (2, newest)


def _entry(name: str, file: Path) -> dict[str, Any]:
    data = file.read_bytes()
    return {"path": name, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def _write(path: Path, manifest: bytes, signer: KeyPair, files: dict[str, Path]) -> None:
    signature = base64.b64encode(signer.sign(CONTEXT + manifest)).decode()
    signed = json.dumps({"key": signer.public_key, "signature": signature}).encode()
    with tarfile.open(path, "w:") as archive:
        for name, data in ((MANIFEST, manifest), (SIGNATURE, signed)):
            _member(archive, name, data)
        for name, file in files.items():
            _member(archive, name, file.read_bytes())


def _member(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(data), 0o644
    archive.addfile(info, io.BytesIO(data))


def python_for(version: str) -> str:
    """An interpreter of that version here; empty without one."""
    if version == "{}.{}".format(*sys.version_info[:2]):
        return sys.executable
    return shutil.which(f"python{version}") or ""


def make_bytecode(recipe: Recipe, work: Path) -> Path | None:
    """Compiled modules, so that no gateway has to compile and a read-only slot starts quickly.

    They are taken as they are (PEP 552, unchecked), whatever times an unpacked file gets. None
    where this machine has no interpreter of the target's version: then the gateway compiles them.
    """
    python = python_for(recipe.target.python)
    if not python:
        return None
    site = work / "site"
    for wheel in recipe.wheels:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(site)
    compiled = subprocess.run(
        [python, "-m", "compileall", "-q", "-j", "0", "--invalidation-mode", "unchecked-hash",
         "-s", str(site), str(site)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if compiled.returncode not in (0, 1):
        raise CannotBundle(f"cannot compile the modules: {compiled.stderr.strip()}")
    out = work / BYTECODE
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(site.rglob("*.pyc")):
            entry = zipfile.ZipInfo(str(path.relative_to(site)), (1980, 1, 1, 0, 0, 0))
            archive.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED)
    return out


def pack_interpreter(folder: Path, out: Path) -> Path:
    """A relocatable Python (`bin/python3`, `lib/python3.x`), without what no gateway needs."""
    if not (folder / "bin/python3").exists():
        raise CannotBundle(f"{folder} is no Python: there is no bin/python3 in it")
    with tarfile.open(out, "w:gz", compresslevel=6) as archive:
        for path in sorted(folder.rglob("*")):
            name = str(path.relative_to(folder))
            beside = name.startswith("bin/") and not re.match(r"bin/python3(\.\d+)?$", name)
            if not NOT_NEEDED.search(name) and not beside and "site-packages/" not in name:
                archive.add(path, name, recursive=False)
    return out
