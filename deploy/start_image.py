"""The start image: the bytecode of all that a node imports until it is ready, in one file.

Python looks for each module in several folders and opens its bytecode alone; for the 300 to 500
modules of a start that is an eighth of it. The image has them one behind the other, beside the
bytecode files that it is made of (`__pycache__`). A node that missed something in it writes it when
it ends. A module is taken from it only while its source has the time and the size that it had then;
so what is edited, removed or installed anew is imported as ever. Without the image a start is
slower, and nothing else.
"""

import marshal
import mmap
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ExtensionFileLoader, ModuleSpec, SourceFileLoader
from types import CodeType, ModuleType

Row = tuple[str, int, int, bool, int, int]
"""Of a module: path of its source, its time in nanoseconds, its size, whether it is a package, and
where its bytecode begins and ends, as `marshal` writes it; nothing for what is compiled."""

NANOSECONDS = 10**9
HEAD = 8
"""Bytes before all else: where the bytecode ends and the rows begin, little-endian."""

PYC_HEAD = 16
"""Bytes of a bytecode file before the code."""


class ImageLoader(SourceFileLoader):
    """Loads one module from the image; all else that is asked of a loader, from its source."""

    def __init__(self, name: str, path: str, code: memoryview) -> None:
        super().__init__(name, path)
        self._code = code

    def get_code(self, fullname: str) -> CodeType | None:
        """The module's code, as it was compiled from the source that is there."""
        found = marshal.loads(self._code)
        return found if isinstance(found, CodeType) else super().get_code(fullname)


class StartImage:
    """Finds modules in the image at `path`; stands first in `sys.meta_path` during a start."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._rows, self._codes, self._map = _read(path)
        self._before = set(sys.modules)
        self._missed: list[str] = []
        """What was imported and is not in the image as it is now."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Where the module is; None when the image does not know, or its source changed."""
        row = self._rows.get(name)
        if row is None:
            return None
        source, time_ns, size, package, begin, end = row
        try:
            found = os.stat(source)
        except OSError:
            return None
        if found.st_mtime_ns != time_ns or found.st_size != size:
            return None
        code = self._codes[begin:end]
        loader = ImageLoader(name, source, code) if code else ExtensionFileLoader(name, source)
        spec = ModuleSpec(name, loader, origin=source)
        spec.has_location = True
        if package:
            spec.submodule_search_locations = [os.path.dirname(source)]
        return spec

    def ready(self) -> None:
        """The start is over: find nothing more, and see what the image had not."""
        from contextlib import suppress

        sys.meta_path.remove(self)
        for name in set(sys.modules) - self._before:
            row = self._rows.get(name)
            found = _stand(sys.modules[name])
            if found is not None and (row is None or row[:3] != found):
                self._missed.append(name)
        if not self._missed:
            self._rows = {}
        if self._map is not None:
            # What was read of the image is in the objects made of it: four megabytes less.
            # Where a sandbox refuses that, it stays.
            with suppress(OSError):
                self._map.madvise(mmap.MADV_DONTNEED)

    def keep(self) -> None:
        """Write the image again if anything was missed, where bytecode may be written."""
        if self in sys.meta_path:
            self.ready()
        if not self._missed or sys.dont_write_bytecode:
            return
        modules = {
            name: (row, bytes(self._codes[row[4] : row[5]])) for name, row in self._rows.items()
        }
        for name in self._missed:
            modules.pop(name, None)
            if made := _row(sys.modules.get(name)):
                modules[name] = made
        _write(self._path, modules)


def begin() -> StartImage:
    """Import from the image from now on."""
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "__pycache__")
    image = StartImage(os.path.join(folder, "serve.{}.{}.image".format(*sys.version_info[:2])))
    sys.meta_path.insert(0, image)
    return image


def _key() -> tuple[str, int, tuple[str, ...]]:
    """For whom an image is good: one interpreter that looks for modules in the same folders. The
    first is the program's own, which has none of them."""
    return (sys.version, sys.flags.optimize, tuple(sys.path[1:]))


def _read(path: str) -> tuple[dict[str, Row], memoryview, mmap.mmap | None]:
    """The rows of an image, all bytecode, and the file in memory; none when it is not there, for
    somebody else, or damaged."""
    nothing: dict[str, Row] = {}
    try:
        with open(path, "rb") as file:
            image = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        view = memoryview(image)
        at = int.from_bytes(view[:HEAD], "little")
        key, rows = marshal.loads(view[at:])
    except (OSError, ValueError, EOFError, TypeError):
        return nothing, memoryview(b""), None
    if key != _key() or not isinstance(rows, dict):
        return nothing, memoryview(b""), None
    return rows, view, image


def _stand(module: ModuleType | None) -> tuple[str, int, int] | None:
    """Path, time and size of what a module was loaded from; None when that is no file of its own,
    or when neither its source nor a shared object."""
    spec = getattr(module, "__spec__", None)
    if spec is None or not spec.has_location or not spec.origin:
        return None
    if not isinstance(spec.loader, SourceFileLoader | ExtensionFileLoader):
        return None
    try:
        found = os.stat(spec.origin)
    except OSError:
        return None
    return (spec.origin, found.st_mtime_ns, found.st_size)


def _row(module: ModuleType | None) -> tuple[Row, bytes] | None:
    """What the image says of an imported module; None for what it has no bytecode of."""
    stand = _stand(module)
    spec = getattr(module, "__spec__", None)
    if stand is None or spec is None:
        return None
    code = b""
    if isinstance(spec.loader, SourceFileLoader):
        try:
            with open(spec.cached or "", "rb") as file:
                code = file.read()
        except OSError:
            return None
        if not _made_of(code, stand):
            return None
    package = spec.submodule_search_locations is not None
    return (*stand, package, 0, 0), code[PYC_HEAD:]


def _made_of(bytecode: bytes, stand: tuple[str, int, int]) -> bool:
    """Whether a bytecode file says that it is of this source: flags 0, then its time in seconds and
    its size (PEP 552)."""
    said = [int.from_bytes(bytecode[at : at + 4], "little") for at in (4, 8, 12)]
    return said == [0, stand[1] // NANOSECONDS & 0xFFFFFFFF, stand[2] & 0xFFFFFFFF]


def _write(path: str, modules: dict[str, tuple[Row, bytes]]) -> None:
    """Put an image in the place of the one that is there; where that is not allowed, do nothing."""
    rows: dict[str, Row] = {}
    at = HEAD
    for name, (row, code) in modules.items():
        rows[name] = (*row[:4], at, at + len(code))
        at += len(code)
    beside = f"{path}.{os.getpid()}"
    # `contextlib` would be imported for this alone before the image helps.
    try:
        try:
            with open(beside, "xb") as file:
                file.write(at.to_bytes(HEAD, "little"))
                file.writelines(code for _, code in modules.values())
                marshal.dump((_key(), rows), file)
            os.replace(beside, path)
        finally:
            _remove(beside)
    except OSError:
        return


def _remove(path: str) -> None:
    """Remove a file, if that can be done."""
    try:
        os.unlink(path)
    except OSError:
        return


def make() -> int:
    """Write the image of this installation, by a start with an empty JetStream; the exit status."""
    import subprocess
    import tempfile

    command = [sys.executable, "-m", "headwater.deploy.main", "serve", "-a", "127.0.0.1"]
    with tempfile.TemporaryDirectory() as folder:
        node = subprocess.Popen(
            [*command, "-p", "-1", "-js", "-sd", folder],
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": ""},
            text=True,
        )
        with node:
            assert node.stderr is not None
            said = []
            for line in node.stderr:
                said.append(line)
                if "Server is ready" in line:
                    node.terminate()
    if node.returncode:
        sys.stderr.writelines(said)
    return node.returncode


if __name__ == "__main__":
    sys.exit(make())
