"""Every field of the commit log, the stream, the consumer and Raft says what it is, or its unit."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DECLARATIONS = [
    "edge/storage/log/commit_log.pxd",
    "edge/storage/log/batch_writer.pxd",
    "edge/jetstream/stream/stream.pxd",
    "edge/jetstream/progress/consumer.pxd",
]
RAFT = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "hub/raft").rglob("*.py"))
FIELD = re.compile(r"    cdef (?:public |readonly )?[\w. ]+?\*? \*?(\w+)\s*(#.*)?$")
REMARK = re.compile(r"# *(?!type:|noqa)\S")


def bare_declarations(text: str) -> list[str]:
    """Fields of the classes in a `.pxd` file that nothing is said of. Objects that declare their
    own class, such as `cdef Watermarks watermarks`, are said enough of only by a comment, too."""
    fields = [FIELD.match(line) for line in text.split("\n") if "(" not in line.partition("#")[0]]
    return [found[1] for found in fields if found and not found[2]]


def assigned(
    body: list[ast.stmt], attributes: bool
) -> Iterator[tuple[str, ast.stmt, ast.stmt | None]]:
    """(name, statement, what follows) of fields that a class or its `__init__` declares."""
    for n, statement in enumerate(body):
        if isinstance(statement, ast.AnnAssign):
            target: ast.expr = statement.target
        elif isinstance(statement, ast.Assign):
            target = statement.targets[0]
        else:
            continue
        if isinstance(target, ast.Attribute if attributes else ast.Name):
            name = target.attr if isinstance(target, ast.Attribute) else target.id
            yield name, statement, body[n + 1] if n + 1 < len(body) else None


def bare_fields(text: str) -> list[str]:
    """Fields of a module's classes without a comment or a docstring."""
    lines = text.split("\n")
    bare = []
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.ClassDef) or any(
            isinstance(base, ast.Name) and base.id.endswith("Enum") for base in node.bases
        ):
            continue
        made = [m for m in node.body if isinstance(m, ast.FunctionDef) and m.name == "__init__"]
        fields = [*assigned(node.body, False)]
        for init in made:
            fields += assigned(init.body, True)
        for name, statement, following in fields:
            own = lines[statement.lineno - 2 : statement.end_lineno]
            said = any(REMARK.search(line) for line in own[1:]) or own[0].strip().startswith("#")
            value = getattr(following, "value", None)
            said |= isinstance(following, ast.Expr) and isinstance(value, ast.Constant)
            if not said:
                bare.append(f"{node.name}.{name}")
    return bare


@pytest.mark.parametrize("path", DECLARATIONS)
def test_declared_fields_say_what_they_are(path: str) -> None:
    assert bare_declarations((ROOT / path).read_text()) == []


@pytest.mark.parametrize("path", RAFT)
def test_fields_of_raft_say_what_they_are(path: str) -> None:
    assert bare_fields((ROOT / path).read_text()) == []


def test_a_bare_field_is_found() -> None:
    pxd = """cdef class A(B):
    cdef public int a
    cdef int b       # bytes
    cdef int run(self) except -1
"""
    assert bare_declarations(pxd) == ["a"]
    module = 'class A:\n    a: int\n    b: int  # bytes\n    c: int\n    """Ticks."""\n'
    assert bare_fields(module) == ["A.a"]
