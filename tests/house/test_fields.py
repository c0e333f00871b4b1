"""Every field of the commit log, the stream, the consumer and Raft says what it is, or its unit."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.syntax import nodes

ROOT = Path(__file__).resolve().parents[2]
DECLARATIONS = [
    "edge/storage/log/commit_log.pxd",
    "edge/storage/log/batch_writer.pxd",
    "edge/jetstream/stream/stream.pxd",
    "edge/jetstream/stream/stream_consumers.pxd",
    "edge/jetstream/stream/answers.pxd",
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
    for node in nodes(text):
        if not isinstance(node, ast.ClassDef) or any(
            isinstance(base, ast.Name) and base.id.endswith("Enum") for base in node.bases
        ):
            continue
        fields = [*assigned(node.body, False)]
        for init in makers(node):
            fields += assigned(init.body, True)
        for name, statement, following in fields:
            own = lines[statement.lineno - 2 : statement.end_lineno]
            said = any(REMARK.search(line) for line in own[1:]) or own[0].strip().startswith("#")
            value = getattr(following, "value", None)
            said |= isinstance(following, ast.Expr) and isinstance(value, ast.Constant)
            if not said:
                bare.append(f"{node.name}.{name}")
    return bare


def makers(node: ast.ClassDef) -> list[ast.FunctionDef]:
    """`__init__`, and the methods that it calls: where a class declares its fields."""
    methods = {each.name: each for each in node.body if isinstance(each, ast.FunctionDef)}
    init = methods.get("__init__")
    if init is None:
        return []
    calls = [each.func for each in ast.walk(init) if isinstance(each, ast.Call)]
    own = [call for call in calls if isinstance(call, ast.Attribute)]
    called = [call.attr for call in own if getattr(call.value, "id", "") == "self"]
    return [init, *(methods[name] for name in called if name in methods)]


def undeclared(texts: list[str]) -> list[str]:
    """Fields that a method of a class sets, and that nothing declares: neither the class nor one
    that it inherits from, in any of these modules."""
    classes = {
        node.name: node
        for text in texts
        for node in nodes(text)
        if isinstance(node, ast.ClassDef)
    }

    def declared(node: ast.ClassDef) -> set[str]:
        known = {name for name, _, _ in assigned(node.body, False)}
        for maker in makers(node):
            known |= {name for name, _, _ in assigned(maker.body, True)}
        for base in node.bases:
            if isinstance(base, ast.Name) and base.id in classes:
                known |= declared(classes[base.id])
        return known

    return [
        f"{node.name}.{each.attr}"
        for node in classes.values()
        for each in ast.walk(node)
        if isinstance(each, ast.Attribute)
        and isinstance(each.ctx, ast.Store)
        and getattr(each.value, "id", "") == "self"
        and each.attr not in declared(node)
    ]


def test_raft_sets_no_field_that_it_does_not_declare() -> None:
    assert undeclared([(ROOT / path).read_text() for path in RAFT]) == []


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


def test_a_field_that_is_set_later_is_found() -> None:
    module = """class A:
    def __init__(self):
        self.a = 1  # bytes
        self.begin()

    def begin(self):
        self.b = 2

    def run(self):
        self.a = self.b = self.c = 3


class B(A):
    def stop(self):
        self.a = 4
        self.d = 5
"""
    assert bare_fields(module) == ["A.b"]
    assert undeclared([module]) == ["A.c", "B.d"]
