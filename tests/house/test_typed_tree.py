"""Stubs of the compiled modules say what the modules have: no more, and no less."""

import ast
import importlib
import types
from pathlib import Path

import pytest

import build_accel
import typed_tree

ROOT = Path(__file__).resolve().parents[2]
STUBS = {build_accel.module_name(p): typed_tree.Stub(ROOT / p) for p in build_accel.COMPILED}
KNOWN = {name: stub.classes for name, stub in STUBS.items()}


def told(body: list[ast.stmt]) -> dict[str, ast.stmt]:
    """Names that a stub's body declares."""
    found: dict[str, ast.stmt] = {}
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found[node.name] = node
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found[node.target.id] = node
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            found[node.targets[0].id] = node
    return found


def shown(owner: object, name: str) -> set[str]:
    """Public names that a module or class defines itself."""
    found = set()
    for key, value in vars(owner).items():
        made_here = getattr(value, "__module__", name) == name
        of_c = isinstance(value, types.GetSetDescriptorType | types.MemberDescriptorType)
        if not key.startswith("_") and (of_c or (callable(value) and made_here)):
            found.add(key)
    return found


@pytest.mark.parametrize("name", STUBS)
def test_a_stub_says_what_its_module_has(name: str) -> None:
    module = importlib.import_module(name)
    body = told(ast.parse(typed_tree.Writer(STUBS[name], KNOWN).text()).body)
    assert [each for each in body if not hasattr(module, each)] == []
    assert shown(module, name) - body.keys() == set()
    for each, node in body.items():
        if isinstance(node, ast.ClassDef):
            real = getattr(module, each)
            inside = told(node.body)
            of_python = {key for key, line in inside.items() if isinstance(line, ast.AnnAssign)}
            loose = of_python if hasattr(real, "__dict__") and "__dict__" in dir(real) else set()
            assert [one for one in inside if one not in loose and not hasattr(real, one)] == []
            assert shown(real, name) - inside.keys() == set()


def test_types_come_out_as_python_sees_them(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(
        "import cython\nfrom cython.cimports.headwater.b import C, Struct\n"
        "LIMIT = 5\nHIDDEN = cython.declare(cython.int, 1)\n"
        "@cython.cclass\nclass A(C):\n"
        "    @cython.cfunc\n    def own(self) -> cython.int: ...\n"
        "    @cython.ccall\n    def add(self, c: C, n: cython.Py_ssize_t = 0): ...\n"
        "    def take(self, s: Struct, c: C = None) -> list: ...\n"
    )
    (tmp_path / "a.pxd").write_text(
        "cdef class A(C):\n    cdef public unsigned int size, room\n    cdef readonly C other\n"
        "    cdef int hidden\n    cpdef bint add(self, C c, Py_ssize_t n=*)\n"
    )
    stub = typed_tree.Stub(tmp_path / "a.py")
    text = typed_tree.Writer(stub, {"headwater.b": {"C"}}).text()
    assert text == (
        "from typing import Any\nfrom headwater.b import C as C\n\nLIMIT: int\nclass A(C):\n"
        "    size: int\n    room: int\n    @property\n    def other(self) -> C: ...\n"
        "    def add(self, c: C, n: int = ...) -> bool: ...\n"
        "    def take(self, s: Any, c: C | None = ...) -> list[Any]: ...\n"
    )
