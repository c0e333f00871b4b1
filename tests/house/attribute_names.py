"""Which attribute names modules read, and which ones anybody defines.

Cython reads an attribute that it does not know as Python does, at run time: a missed rename
compiles, and mypy does not see compiled modules whole. A name that is read and defined nowhere, in
the house or in what it imports, is such a miss.
"""

import ast
import builtins
import importlib
import re
import types
from collections.abc import Iterable, Sequence
from pathlib import Path

IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
BASES = (
    *(each for each in vars(builtins).values() if isinstance(each, type)),
    types.FunctionType, types.MethodType, types.ModuleType, types.CoroutineType,
    types.GeneratorType, types.FrameType, types.TracebackType, types.CodeType,
)  # fmt: skip


def read(nodes: Iterable[ast.AST], owner: str = "") -> dict[str, int]:
    """Names of attributes that a module reads or calls, each with a line: of everything but the
    module `cython`, or of what is called `owner` alone."""
    found = {}
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            of = node.value.id if isinstance(node.value, ast.Name) else ""
            if of == owner if owner else of != "cython":
                found[node.attr] = node.lineno
    return found


def fields(nodes: Iterable[ast.AST]) -> set[str]:
    """Names that a module gives to fields, methods and functions."""
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.attr)
            # Who says what a function of C takes or returns has declared it.
            if node.attr in ("argtypes", "restype") and isinstance(node.value, ast.Attribute):
                found.add(node.value.attr)
        elif isinstance(node, ast.ClassDef):
            for line in node.body:
                targets = line.targets if isinstance(line, ast.Assign) else [line]
                found.update(named(getattr(each, "target", each)) for each in targets)
    return found


def named(target: ast.AST) -> str:
    """The name that is assigned; empty for anything else."""
    return target.id if isinstance(target, ast.Name) else ""


def defined(nodes: Sequence[ast.AST]) -> set[str]:
    """Names that a module gives to anything: fields, classes, variables, imports."""
    found = fields(nodes)
    for node in nodes:
        if isinstance(node, ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.alias):
            found.update((node.asname or node.name).split("."))
        elif isinstance(node, ast.Call):
            found.update(fields_made(node))
    return found


def fields_made(call: ast.Call) -> set[str]:
    """Fields of what a call makes: `struct(...)`, `namedtuple`, `setattr` and the like."""
    name = getattr(call.func, "attr", getattr(call.func, "id", ""))
    if name == "struct":
        return {each.arg for each in call.keywords if each.arg}
    if name in ("defstruct", "make_dataclass", "namedtuple", "setattr", "TypedDict"):
        texts = (each.value for each in ast.walk(call) if isinstance(each, ast.Constant))
        return {each for text in texts if isinstance(text, str) for each in text.split()}
    return set()


def foreign(modules: Iterable[Iterable[ast.AST]]) -> set[str]:
    """Names that the modules and classes have which the house imports from elsewhere."""
    names: set[str] = set()
    for nodes in modules:
        for node in nodes:
            if isinstance(node, ast.Import):
                names.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                names.add(node.module)
                names.update(f"{node.module}.{alias.name}" for alias in node.names)
    found: set[str] = set()
    for each in BASES:
        found.update(dir(each))
    for name in names:
        if not name.startswith(("headwater", "cython")):
            found.update(names_of(name))
    return found


def names_of(name: str) -> set[str]:
    """Names of a module, of its classes, and of what these say that their fields are."""
    try:
        module = importlib.import_module(name)
    except ImportError:
        return set()
    found = set(dir(module))
    for each in list(vars(module).values()):
        if isinstance(each, type | types.ModuleType):
            found.update(dir(each))
            found.update(getattr(each, "__annotations__", ()))
        else:
            found.update(dir(type(each)))
    if (path := getattr(module, "__file__", None)) and path.endswith(".py"):
        found |= defined(list(ast.walk(ast.parse(Path(path).read_text()))))
    return found


def declared(path: Path) -> set[str]:
    """Every name that a `.pxd` mentions."""
    return set(IDENTIFIER.findall(re.sub(r"#.*", "", path.read_text())))
