"""No test judges absolute time or memory, but for the few that are listed here, with their room."""

import ast
from pathlib import Path

import pytest

from tests.house.syntax import nodes
from tests.house.test_house import ROOT, sources

CLOCKS = {"monotonic", "perf_counter", "process_time", "time", "monotonic_ns", "perf_counter_ns"}
MEMORY = {"rss", "resident", "VmRSS", "ru_maxrss"}

LISTED = {
    "tests/abuse/test_wire.py": (5, "MiB; at most 2 of 8, 30 and 80 are used"),
    "tests/abuse/test_further.py": (3, "as the tests beside it"),
    "tests/abuse/test_streams.py": (1, "MiB; 1 of 30 is used"),
    "tests/abuse/test_links_and_pages.py": (1, "MiB; 2 of 400 are used"),
    "tests/edge/broker/logins/test_before_login.py": (2, "memory of 60 publishes and of 200 links"),
}
"""How many bounds a file of tests may have that are a number and nothing more, and their room."""


def measured(node: ast.AST) -> bool:
    """Whether an expression reads a clock, or how much memory a process has."""
    for each in ast.walk(node):
        if isinstance(each, ast.Call):
            function = each.func
            name = getattr(function, "attr", getattr(function, "id", ""))
            owner = getattr(getattr(function, "value", None), "id", "")
            if name in MEMORY or (name in CLOCKS and owner == "time"):
                return True
    return False


def number(node: ast.AST) -> bool:
    """Whether an expression is made of numbers and constants alone."""
    if isinstance(node, ast.BinOp):
        return number(node.left) and number(node.right)
    if isinstance(node, ast.Name):
        return node.id.isupper()
    return isinstance(node, ast.Constant)


def absolute(path: Path) -> int:
    """Assertions that something measured is less than a number."""
    found = 0
    for node in nodes(path.read_text()):
        if isinstance(node, ast.Assert):
            for each in ast.walk(node.test):
                if isinstance(each, ast.Compare) and isinstance(each.ops[0], ast.Lt | ast.LtE):
                    found += measured(each.left) and number(each.comparators[-1])
    return found


def test_bounds_of_time_and_memory_have_room() -> None:
    paths = [path for path in sources("tests") if "assert" in path.read_text()]
    found = {str(path.relative_to(ROOT)): n for path in paths if (n := absolute(path))}
    assert found == {path: n for path, (n, _) in LISTED.items()}, "see tests/measuring.py"


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("time.monotonic() - began < 2", 1), ("server.rss() - before < LIMIT", 1),
        ("(resident(pid) - before) / 200 < 24e3", 1), ("time.process_time() < 2 * CALM_S", 1),
        ("within(time.monotonic() - began, 2)", 0), ("time.monotonic() < deadline", 0),
        ("len(found) < 3", 0), ("time.monotonic() - began > 1", 0),
    ],
)  # fmt: skip
def test_an_absolute_bound_is_seen(text: str, count: int, tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(f"assert {text}\n")
    assert absolute(tmp_path / "one.py") == count
