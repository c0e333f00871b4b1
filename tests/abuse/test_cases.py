"""Every case has a test, and the page tells what the tests say."""

from tests.abuse.cases import CASES, PAGE, told, with_table


def test_every_case_has_a_test() -> None:
    assert sorted(told()) == list(CASES)


def test_the_page_has_the_table() -> None:
    page = PAGE.read_text()
    assert page == with_table(page), "write it again: python -m tests.abuse.cases"
