"""The tree that mypy reads: links to interpreted modules, and stubs of the compiled ones.

A stub is made from a module's own source and its `.pxd`: what other Python may call, with the types
that Cython holds. What is private to C (cfuncs, attributes that are not public) is not in it.
"""

import ast
import builtins
import re
from collections.abc import Iterator
from pathlib import Path

import build_accel

C_TYPES = re.compile(
    r"(?:(?:const|unsigned|signed|long|short|int|char|size_t|ssize_t|Py_ssize_t|u?int\d+_t)\s*)+$"
)
CYTHON_INTS = re.compile(
    r"(?:u|p_)?(?:char|short|int|long|longlong)|size_t|ssize_t|Py_ssize_t|u?int\d+_t|uchar|ushort|"
    r"uint|ulong|ulonglong"
)
BUILTINS = {
    "object": "Any", "list": "list[Any]", "dict": "dict[Any, Any]", "set": "set[Any]",
    "tuple": "tuple[Any, ...]", "frozenset": "frozenset[Any]", "Callable": "Callable[..., Any]",
    "type": "type[Any]", "bint": "bool", "double": "float", "float": "float", "bytes": "bytes",
    "str": "str", "bytearray": "bytearray", "bool": "bool", "int": "int",
    "memoryview": "memoryview",
}  # fmt: skip
ATTRIBUTE = re.compile(r"^    cdef (public|readonly) (.+?)\s*(\w+(?:\s*,\s*\w+)*)$")
RETURNED = re.compile(r"^\s*cpdef (?:inline )?(?:([\w \[\]]+?) )?(\w+)\(")
PLAIN = (ast.Import, ast.ImportFrom)


class Stub:
    """One compiled module, read; `text` writes its stub."""

    def __init__(self, path: Path) -> None:
        self.tree = ast.parse(path.read_text())
        self.attributes: dict[str, list[tuple[str, str, bool]]] = {}
        """By class: name, C type, and whether Python may set it."""
        self.returned: dict[tuple[str, str], str] = {}
        """What cpdef functions give, by class ("" for the module) and name."""
        self.imports: dict[str, str] = {}
        """The line that imports a name."""
        declared = path.with_suffix(".pxd")
        if declared.exists():
            text = re.sub(r"cimport \(([^)]*)\)", self._joined, declared.read_text())
            self._read_declarations(text)
        self.classes = {node.name for node in self.tree.body if isinstance(node, ast.ClassDef)}
        for node in self.tree.body:
            if isinstance(node, PLAIN):
                self._read_import(node)

    @staticmethod
    def _joined(found: re.Match[str]) -> str:
        return "cimport " + " ".join(found[1].split())

    def _read_declarations(self, text: str) -> None:
        of = ""
        for line in text.split("\n"):
            line = line.partition("#")[0].rstrip()
            if begun := re.match(r"cdef (?:class|struct|packed struct) (\w+)", line):
                of = begun[1]
            elif line and not line.startswith(" "):
                of = ""
            if named := re.match(r"from (headwater[\w.]*) cimport (.+)", line):
                for name in re.findall(r"\w+", named[2]):
                    self.imports[name] = f"from {named[1]} import {name} as {name}"
            if found := ATTRIBUTE.match(line):
                rows = self.attributes.setdefault(of, [])
                for name in re.split(r"\s*,\s*", found[3]):
                    rows.append((name, found[2].strip(), found[1] == "public"))
            elif found := RETURNED.match(line):
                self.returned[(of, found[2])] = (found[1] or "object").strip()

    def _read_import(self, node: ast.Import | ast.ImportFrom) -> None:
        module = getattr(node, "module", None) or ""
        if module == "cython" or module.startswith(("cython.cimports", "cython")):
            inner = module.removeprefix("cython.cimports.")
            if inner.startswith("headwater."):
                for alias in node.names:
                    shown = alias.asname or alias.name
                    self.imports[shown] = f"from {inner} import {alias.name} as {shown}"
            return
        for alias in node.names:
            shown = alias.asname or alias.name
            if isinstance(node, ast.Import):
                self.imports[alias.asname or alias.name.partition(".")[0]] = (
                    f"import {alias.name}" + (f" as {alias.asname}" if alias.asname else "")
                )
            else:
                self.imports[shown] = f"from {module} import {alias.name} as {shown}"


class Writer:
    """Writes the stub of one module; `known` has every compiled module's classes."""

    def __init__(self, stub: Stub, known: dict[str, set[str]]) -> None:
        self.stub = stub
        self.known = known
        self.used: set[str] = set()

    def text(self) -> str:
        """The whole stub."""
        body = [line for node in self.stub.tree.body for line in self._statement(node)]
        lines = sorted(self.stub.imports[name] for name in self.used)
        return "\n".join(["from typing import Any", *lines, "", *body, ""])

    def _statement(self, node: ast.stmt) -> Iterator[str]:
        if isinstance(node, ast.ClassDef):
            yield from self._class(node)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from self._function(node, "")
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            yield from self._constant(node)

    def _constant(self, node: ast.Assign | ast.AnnAssign) -> Iterator[str]:
        value = node.value
        if isinstance(value, ast.Call) and ast.unparse(value.func) == "cython.declare":
            return
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        kind = "Any"
        if isinstance(value, ast.Constant) and value.value is not None:
            kind = type(value.value).__name__
        for target in targets:
            for name in target.elts if isinstance(target, ast.Tuple) else [target]:
                if isinstance(name, ast.Name) and not name.id.startswith("__"):
                    yield f"{name.id}: {kind}"

    def _class(self, node: ast.ClassDef) -> Iterator[str]:
        compiled = any("cclass" in ast.unparse(each) for each in node.decorator_list)
        bases = [self._type(base) for base in node.bases]
        yield f"class {node.name}({', '.join(base for base in bases if base != 'Any')}):"
        lines = [*self._fields(node, compiled)]
        for each in node.body:
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
                lines += self._function(each, node.name)
        yield from (f"    {line}" for line in lines or ["..."])

    def _fields(self, node: ast.ClassDef, compiled: bool) -> Iterator[str]:
        for name, kind, settable in self.stub.attributes.get(node.name, []):
            shown = self._c_type(kind)
            if settable:
                yield f"{name}: {shown}"
            else:
                yield from ("@property", f"def {name}(self) -> {shown}: ...")
        if compiled:
            yield from self._shown_in_source(node)
            return
        seen = set()
        for each in node.body:
            if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
                seen.add(each.target.id)
                yield f"{each.target.id}: {self._type(each.annotation)}" + (
                    " = ..." if each.value is not None else ""
                )
            elif isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Name):
                seen.add(each.targets[0].id)
                yield f"{each.targets[0].id} = {ast.unparse(each.value)}"
        for each in ast.walk(node):
            set_here = isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store)
            if set_here and ast.unparse(each.value) == "self" and each.attr not in seen:
                seen.add(each.attr)
                yield f"{each.attr}: Any"

    def _shown_in_source(self, node: ast.ClassDef) -> Iterator[str]:
        """Attributes that a compiled class without a `.pxd` shows."""
        for each in node.body:
            if not isinstance(each, ast.Assign) or not isinstance(each.value, ast.Call):
                continue
            how = {one.arg: ast.unparse(one.value) for one in each.value.keywords}
            if "visibility" in how:
                yield f"{ast.unparse(each.targets[0])}: {self._type(each.value.args[0])}"

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef, of: str) -> Iterator[str]:
        marks = [ast.unparse(each) for each in node.decorator_list]
        if "cython.cfunc" in marks or node.name in ("__dealloc__", "__cinit__"):
            return
        kept = [mark for mark in marks if not mark.startswith("cython.")]
        yield from (f"@{mark}" for mark in kept)
        gives = "None" if node.name == "__init__" else self._given(node, of)
        prefix = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
        yield f"{prefix} {node.name}({self._parameters(node.args, bool(of))}) -> {gives}: ..."

    def _given(self, node: ast.FunctionDef | ast.AsyncFunctionDef, of: str) -> str:
        if node.returns is not None:
            return self._type(node.returns)
        return self._c_type(self.stub.returned.get((of, node.name), "object"))

    def _parameters(self, given: ast.arguments, method: bool) -> str:
        shown: list[str] = []
        placed = [*given.posonlyargs, *given.args]
        defaults = [None] * (len(placed) - len(given.defaults)) + list(given.defaults)
        for at, (one, default) in enumerate(zip(placed, defaults, strict=True)):
            shown.append(self._parameter(one, default, method and at == 0))
            if given.posonlyargs and at + 1 == len(given.posonlyargs):
                shown.append("/")
        if given.vararg is not None:
            shown.append(f"*{self._parameter(given.vararg, None, False)}")
        elif given.kwonlyargs:
            shown.append("*")
        for one, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
            shown.append(self._parameter(one, default, False))
        if given.kwarg is not None:
            shown.append(f"**{self._parameter(given.kwarg, None, False)}")
        return ", ".join(shown)

    def _parameter(self, one: ast.arg, default: ast.expr | None, own: bool) -> str:
        if own:
            return one.arg
        kind = self._type(one.annotation) if one.annotation is not None else "Any"
        if isinstance(default, ast.Constant) and default.value is None and "None" not in kind:
            kind = f"{kind} | None"
        return f"{one.arg}: {kind}" + (" = ..." if default is not None else "")

    def _c_type(self, text: str) -> str:
        text = text.strip()
        if C_TYPES.fullmatch(text):
            return "int"
        return self._name(text) if text.isidentifier() else "Any"

    def _type(self, node: ast.expr) -> str:
        """An annotation as mypy is to read it."""
        if isinstance(node, ast.Constant):
            return (
                self._type(ast.parse(node.value, mode="eval").body)
                if isinstance(node.value, str)
                else ("..." if node.value is ... else repr(node.value))
            )
        if isinstance(node, ast.Name):
            return self._name(node.id)
        if isinstance(node, ast.Attribute):
            return self._dotted(node)
        if isinstance(node, ast.Subscript):
            return f"{self._outer(node.value)}[{self._type(node.slice)}]"
        if isinstance(node, ast.Tuple):
            return ", ".join(self._type(each) for each in node.elts)
        if isinstance(node, ast.List):
            return f"[{', '.join(self._type(each) for each in node.elts)}]"
        if isinstance(node, ast.BinOp):
            return f"{self._type(node.left)} | {self._type(node.right)}"
        return "Any"

    def _outer(self, node: ast.expr) -> str:
        """The generic of a subscript."""
        name = ast.unparse(node)
        if name in self.stub.imports:
            self.used.add(name)
        return name

    def _dotted(self, node: ast.Attribute) -> str:
        whole = ast.unparse(node)
        owner, _, name = whole.partition(".")
        if owner == "cython":
            if name in ("bint", "double", "float"):
                return BUILTINS[name]
            return "int" if CYTHON_INTS.fullmatch(name) and not name.startswith("p_") else "Any"
        if owner in self.stub.imports:
            self.used.add(owner)
            return whole
        return "Any"

    def _name(self, name: str) -> str:
        if name in BUILTINS and name not in self.stub.classes:
            if name in self.stub.imports:
                self.used.add(name)
            return BUILTINS[name]
        if name in self.stub.classes:
            return name
        line = self.stub.imports.get(name, "")
        source = re.match(r"from (headwater\.[\w.]+) import (\w+)", line)
        if source and source[1] in self.known and source[2] not in self.known[source[1]]:
            return "Any"
        if line:
            self.used.add(name)
            return name
        return name if name == "None" or isinstance(getattr(builtins, name, None), type) else "Any"


def make(root: Path) -> Path:
    """Write `build/typed` anew where it differs; returns it."""
    target = root / "build" / "typed"
    compiled = set(build_accel.COMPILED)
    stubs = {build_accel.module_name(path): Stub(root / path) for path in build_accel.COMPILED}
    known = {name: stub.classes for name, stub in stubs.items()}
    wanted: set[Path] = set()
    for package in build_accel.PACKAGES:
        for source in sorted((root / package).rglob("*.py")):
            path = str(source.relative_to(root))
            made = target / "headwater" / path
            made.parent.mkdir(parents=True, exist_ok=True)
            if path in compiled:
                made = made.with_suffix(".pyi")
                text = Writer(stubs[build_accel.module_name(path)], known).text()
                if not made.exists() or made.read_text() != text:
                    made.write_text(text)
            elif not (made.is_symlink() and made.readlink() == source):
                made.unlink(missing_ok=True)
                made.symlink_to(source)
            wanted.add(made)
    for old in target.rglob("*.py*"):
        if old not in wanted:
            old.unlink()
    return target


if __name__ == "__main__":
    print(make(Path(__file__).resolve().parent))
