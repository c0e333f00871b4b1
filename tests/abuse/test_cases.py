"""Every case has a test, and the page tells what the tests say."""

import ast
from pathlib import Path

from tests.abuse.cases import CASES, PAGE, told, with_table
from tests.abuse.seen import SEEN

TESTS = Path(__file__).parents[1]


def test_every_case_has_a_test() -> None:
    assert sorted(told()) == list(CASES)


def test_the_page_has_the_tables() -> None:
    page = PAGE.read_text()
    assert page == with_table(page), "write it again: python -m tests.abuse.cases"


def test_what_was_seen_has_its_tests() -> None:
    for what, tests in SEEN.items():
        assert tests, what
        for test in tests:
            path, _, name = test.partition("::")
            found = ast.walk(ast.parse((TESTS / path).read_text()))
            names = {
                each.name
                for each in found
                if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef))
            }
            assert name in names, test
