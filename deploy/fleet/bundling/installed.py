"""Wheels of what is installed in this environment, for gateways of this machine's kind.

No registry and no compiler is needed: the files are packed again as their installer recorded them.
"""

import base64
import hashlib
import importlib.metadata
import re
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

from headwater.edge.facts.version import VERSION

PACKAGES = ("security", "edge", "federation", "hub", "spark", "deploy")
KEPT = (".py", ".pxd", ".properties", ".so")
EPOCH = (1980, 1, 1, 0, 0, 0)
BASE = "headwater"


class NotInstalled(Exception):
    """A distribution is not here in a form that can be packed; the text says what to do."""


def base_names() -> list[str]:
    """Distributions that a node needs, Headwater's own not counted."""
    found: list[str] = []
    waiting = _requirements(BASE)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.append(name)
            waiting += _requirements(name)
    return sorted(found)


def direct_requirements() -> list[str]:
    """What Headwater itself asks for, with the pinned versions. Raises NotInstalled."""
    return [text for text in _declared(BASE) if "extra" not in text.partition(";")[2]]


def _declared(name: str) -> list[str]:
    project = _checkout() / "pyproject.toml"
    if name == BASE and project.exists():
        # What an editable install recorded may be older than the checkout.
        found: list[str] = tomllib.loads(project.read_text())["project"]["dependencies"]
        return found
    try:
        return importlib.metadata.requires(name) or []
    except importlib.metadata.PackageNotFoundError as error:
        raise NotInstalled(f"{name} is not installed; install it by pip") from error


def _requirements(name: str) -> list[str]:
    """What a distribution needs here, without extras and without what is for other systems."""
    names = []
    for text in _declared(name):
        spec, _, marker = text.partition(";")
        if "extra" in marker or not _applies(marker):
            continue
        match = re.match(r"[A-Za-z0-9._-]+", spec.strip())
        if match:
            names.append(re.sub(r"[-_.]+", "-", match.group()).lower())
    return names


def _applies(marker: str) -> bool:
    """Whether a requirement counts on Linux with CPython of this version."""
    text = marker.strip()
    if not text:
        return True
    version = re.search(
        r"python(?:_full)?_version\s*(<=?|>=?|==)\s*['\"](\d+)\.(\d+)[\d.]*['\"]", text
    )
    if version:
        wanted = (int(version.group(2)), int(version.group(3)))
        here = sys.version_info[:2]
        operations = {"<": here < wanted, "<=": here <= wanted, ">": here > wanted,
                      ">=": here >= wanted, "==": here == wanted}  # fmt: skip
        if not operations[version.group(1)]:
            return False
    foreign = re.search(r"(sys_platform|platform_system)\s*==\s*['\"](win32|Windows|darwin)", text)
    return not foreign and "PyPy'" not in text.replace('"', "'").replace("!= 'PyPy'", "")


def write_wheels(folder: Path) -> list[Path]:
    """Wheels of Headwater and all that it needs. Raises NotInstalled."""
    wheels = [_wheel(folder, BASE, VERSION, _own_files())]
    for name in base_names():
        distribution = importlib.metadata.distribution(name)
        files = _installed_files(distribution)
        wheels.append(_wheel(folder, name.replace("-", "_"), distribution.version, files))
    return wheels


def _checkout() -> Path:
    """The folder with the packages: of a checkout, or of site-packages."""
    return Path(__file__).resolve().parents[3]


def _own_files() -> Iterator[tuple[str, bytes]]:
    """Headwater's own modules, wherever this one was imported from."""
    for package in PACKAGES:
        root = _checkout() / package
        for path in sorted(root.rglob("*")):
            inside = path.relative_to(root)
            if path.suffix in KEPT and path.is_file() and "autoload" not in inside.parts:
                yield f"headwater/{package}/{inside}", path.read_bytes()


def _installed_files(distribution: importlib.metadata.Distribution) -> Iterator[tuple[str, bytes]]:
    if distribution.files is None:
        raise NotInstalled(f"{distribution.name} has no record of its files; install it by pip")
    for file in distribution.files:
        name = str(file)
        if name.startswith("..") or "__pycache__" in name or name.endswith((".pyc", "/RECORD")):
            continue
        yield name, Path(str(file.locate())).read_bytes()


def _wheel(folder: Path, name: str, version: str, files: Iterator[tuple[str, bytes]]) -> Path:
    """One wheel with its RECORD; the same bytes for the same files."""
    tag = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    path = folder / f"{name}-{version}-{tag}-{tag}-linux_{_machine()}.whl"
    record = []
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for inside, data in files:
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=")
            record.append(f"{inside},sha256={digest.decode()},{len(data)}")
            _add(archive, inside, data)
        if not any(line.startswith(f"{info}/METADATA,") for line in record):
            text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
            _add(archive, f"{info}/METADATA", text.encode())
        record.append(f"{info}/RECORD,,")
        _add(archive, f"{info}/RECORD", ("\n".join(record) + "\n").encode())
    return path


def _add(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    entry = zipfile.ZipInfo(name, EPOCH)
    entry.external_attr = 0o644 << 16
    archive.writestr(entry, data, zipfile.ZIP_DEFLATED)


def _machine() -> str:
    import platform

    return platform.machine()
