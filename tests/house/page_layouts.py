"""Byte layouts: as a page of Markdown describes them, and as the code has them, both as the codes
of the struct module; and constants of the code, compiled or not."""

import ast
import operator
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
CODES = {"u8": "B", "u16": "H", "u32": "I", "u64": "Q", "i32": "i", "i64": "q"}
FIELD = re.compile(r"\b(\d+s|[ui](?:8|16|32|64))\b")
C_TYPES = {
    "unsigned char": "B", "unsigned short": "H", "unsigned int": "I", "unsigned long long": "Q",
    "long long": "q",
}  # fmt: skip
STRUCT_FIELD = re.compile(r"    ((?:unsigned )?(?:char|short|int|long long)) \w+ *(?:#.*)?$")
OPERATORS: dict[type[ast.operator], Any] = {
    ast.LShift: operator.lshift, ast.Mult: operator.mul, ast.Add: operator.add,
    ast.Sub: operator.sub, ast.FloorDiv: operator.floordiv, ast.Pow: operator.pow,
}  # fmt: skip


def described(page: str, begin: str) -> str:
    """What the block of a page says that begins with `begin`."""
    lines = page.split("\n")
    (at,) = (n for n, line in enumerate(lines) if line.startswith(f"    {begin}"))
    codes = []
    while lines[at].startswith("    "):
        codes += [CODES.get(field, field) for field in FIELD.findall(lines[at])]
        at += 1
    return "".join(codes)


def formats(path: str) -> dict[str, str]:
    """Every `struct.Struct` that a module names; bytes that mean nothing as the number they are."""
    text = (ROOT / path).read_text()
    found = re.findall(r"^(\w+) = struct\.Struct\(\"<(\w+)\"\)", text, re.M)
    return {name: form.replace("4x", "I") for name, form in found}


def c_struct(path: str, name: str) -> str:
    """A struct that a `.pxd` file declares. The fields lie end to end, as the tests of the formats
    say by sizes."""
    text = (ROOT / path).read_text()
    (body,) = re.findall(rf"^cdef (?:packed )?struct {name}:.*\n((?:    .*\n)+)", text, re.M)
    fields = [STRUCT_FIELD.match(line) for line in body.rstrip("\n").split("\n")]
    assert all(fields), body
    return "".join(C_TYPES[field[1]] for field in fields if field)


def enum_values(path: str, prefix: str) -> dict[str, int]:
    """Name without the prefix -> value, of the enums in a `.pxd` file."""
    text = (ROOT / path).read_text()
    found = re.findall(rf"^    {prefix}(\w+) = (\w+)", text, re.M)
    return {name: int(value, 0) for name, value in found}


def constant(path: str, name: str) -> Any:
    """The value of a number that a module, a class or a `.pxd` file names: `NAME` or
    `Class.field`."""
    text = (ROOT / path).read_text()
    if path.endswith(".pxd"):
        return enum_values(path, "")[name]
    owner, _, last = name.rpartition(".")
    body = ast.parse(text).body
    if owner:
        (body,) = (
            each.body for each in body if isinstance(each, ast.ClassDef) and each.name == owner
        )
    for node in body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if isinstance(target, ast.Name) and target.id == last:
            assert isinstance(node, ast.Assign | ast.AnnAssign)
            return number(node.value, body)
    raise AssertionError(f"{path} names no {name}")


def number(node: ast.expr | None, body: list[ast.stmt]) -> Any:
    """The value of an expression of numbers; `cython.declare(type, value)` is its value."""
    if isinstance(node, ast.Call):
        return number(node.args[-1], body)
    if isinstance(node, ast.BinOp):
        left, right = number(node.left, body), number(node.right, body)
        return OPERATORS[type(node.op)](left, right)
    if isinstance(node, ast.Tuple):
        return tuple(number(each, body) for each in node.elts)
    if isinstance(node, ast.Name):
        (value,) = (
            each.value
            for each in body
            if isinstance(each, ast.Assign) and getattr(each.targets[0], "id", "") == node.id
        )
        return number(value, body)
    assert isinstance(node, ast.Constant), ast.dump(node) if node else ""
    return node.value
