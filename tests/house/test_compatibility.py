"""Every test that the page on compatibility names is there."""

import ast
import re
from pathlib import Path

from tests.inventory.page import rendered

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "COMPATIBILITY.md"
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def functions(path: Path) -> set[str]:
    """Names of the functions at the top of a module; none when there is no such module."""
    if not path.exists():
        return set()
    nodes = ast.parse(path.read_text()).body
    return {one.name for one in nodes if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)}


HEADS = ("|---", "| What was seen", "| Subjects |", "| Input |")
"""Lines of tables that are no rows."""


def test_tests_that_the_page_names_are_there() -> None:
    named = NAMED.findall(PAGE.read_text())
    assert named
    assert not [f"{path}::{name}" for path, name in named if name not in functions(ROOT / path)]


def test_only_what_is_missing_or_differs_has_no_test() -> None:
    rows = [line for line in PAGE.read_text().split("\n") if line.startswith("|")]
    facts = [row for row in rows if not row.startswith(HEADS)]
    for row in facts:
        assert NAMED.search(row) or "missing: " in row or "differs by intention: " in row, row


def test_the_page_shows_the_rows() -> None:
    """`python -m tests.inventory.page` brings the page up to date."""
    page = PAGE.read_text()
    assert rendered(page) == page
