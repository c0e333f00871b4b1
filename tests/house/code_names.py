"""Names of the product's code, for pages that speak of it: files, folders, classes, members."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.house.syntax import module

FLOORS = ("security", "edge", "federation", "hub", "spark", "deploy")
BESIDE = ("bench", "tests", "docs")
DECLARED = re.compile(r"^cdef (?:class|struct|enum) (\w+)(?:\((\w+)\))?:")
FIELD = re.compile(r"^    (?:cp?def )?.*?(\w+)\s*(?:\(.*)?(?:=.*)?(?:#.*)?$")


class CodeNames:
    """What there is below `root`."""

    def __init__(self, root: Path) -> None:
        self.files: set[str] = {"build_accel.py", "README.md", "CONTRIBUTING.md", "Makefile"}
        """Paths of files and folders."""
        self.members: dict[str, set[str]] = {}
        """By class: what it has."""
        self.bases: dict[str, set[str]] = {}
        self.homes: dict[str, set[str]] = {}
        """By class, function or constant of a module: the files that define it."""
        for floor in (*FLOORS, *BESIDE):
            for path in (root / floor).rglob("*"):
                if "__pycache__" not in path.parts:
                    self.files.add(path.relative_to(root).as_posix())
            self.files.add(floor)
        for floor in (*FLOORS, "tests/sim"):
            for path in sorted((root / floor).rglob("*.py")):
                self._read(path, path.relative_to(root).as_posix())

    def _read(self, path: Path, name: str) -> None:
        for node in module(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                self.homes.setdefault(node.name, set()).add(name)
                self.members.setdefault(node.name, set()).update(members(node))
                bases = {getattr(base, "id", getattr(base, "attr", "")) for base in node.bases}
                self.bases.setdefault(node.name, set()).update(bases)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                self.homes.setdefault(node.name, set()).add(name)
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                for target in targets(node):
                    if isinstance(target, ast.Name):
                        self.homes.setdefault(target.id, set()).add(name)
        declared = path.with_suffix(".pxd")
        if declared.exists():
            self._read_declarations(declared.read_text(), name)

    def _read_declarations(self, text: str, name: str) -> None:
        of = ""
        for line in text.split("\n"):
            found = DECLARED.match(line)
            if found:
                of = found[1]
                self.homes.setdefault(of, set()).add(name)
                self.members.setdefault(of, set())
                self.bases.setdefault(of, set()).add(found[2] or "")
            elif of and (field := FIELD.match(line)):
                words = re.findall(r"\w+", line.partition("#")[0].partition("(")[0])
                self.members[of].update({*words, field[1]})

    def has_path(self, name: str) -> bool:
        """Whether a file or folder has this path, or ends with it."""
        name = name.rstrip("/")
        return name in self.files or any(each.endswith(f"/{name}") for each in self.files)

    def has(self, name: str) -> bool:
        """Whether there is a class, function or constant `name`, or `name` is Class.member."""
        owner, _, member = name.partition(".")
        if not member:
            return owner in self.homes or any(owner in found for found in self.members.values())
        return owner in self.members and self._is_member(owner, member, set())

    def _is_member(self, owner: str, member: str, seen: set[str]) -> bool:
        if owner in seen or owner not in self.members:
            return False
        seen.add(owner)
        return member in self.members[owner] or any(
            self._is_member(base, member, seen) for base in self.bases[owner]
        )

    def is_in(self, name: str, path: str) -> bool:
        """Whether a class, function or constant is defined in a file, or below a folder."""
        homes = self.homes.get(name.partition(".")[0], set())
        return any(home == path or home.startswith(path.rstrip("/") + "/") for home in homes)


def targets(node: ast.Assign | ast.AnnAssign) -> list[ast.expr]:
    """What an assignment assigns to."""
    return node.targets if isinstance(node, ast.Assign) else [node.target]


def members(node: ast.ClassDef) -> Iterator[str]:
    """Methods, fields and attributes of a class."""
    for each in ast.walk(node):
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
            yield each.name
        elif isinstance(each, ast.Assign | ast.AnnAssign):
            for target in targets(each):
                if isinstance(target, ast.Name):
                    yield target.id
                elif isinstance(target, ast.Attribute):
                    yield target.attr
