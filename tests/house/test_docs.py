"""What pages are held to: a file that a page names is there, and no sentence is long."""

import re
from pathlib import Path

import pytest

from tests.house.sentences import sentences

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")])
NAMED = re.compile(
    r"`((?:security|edge|federation|hub|spark|deploy|tests|bench|docs)/[\w./-]*\w/?)`"
)
WORDS_MAX = 30
WIDTH_MAX = 122
CODE = re.compile(r"`[^`]*`")
LINKED = re.compile(r"\]\(((?!https?:)[\w./-]+)\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_a_page_names_are_there(page: Path) -> None:
    text = page.read_text()
    missing = [name for name in NAMED.findall(text) if not (ROOT / name).exists()]
    missing += [name for name in LINKED.findall(text) if not (page.parent / name).exists()]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_sentence_of_a_page_is_long(page: Path) -> None:
    """A piece of code counts as a word."""
    found = sentences(page.read_text())
    assert not [each for each in found if len(CODE.sub("`", each).split()) > WORDS_MAX]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_lines_of_a_page_fit_a_screen(page: Path) -> None:
    """Rows of tables apart."""
    lines = enumerate(page.read_text().split("\n"), 1)
    assert not [n for n, line in lines if len(line) > WIDTH_MAX and not line.startswith("|")]


def test_sentences_are_found_in_paragraphs_items_and_tables() -> None:
    page = """# Not this one

One of two lines
ends here. Another [one](with/a/link)!

    code is none. Really.

- an item
| a cell. Two | of them |
```
nor is this.
```
"""
    assert list(sentences(page)) == [
        "One of two lines ends here.", "Another [one]!", "an item", "a cell.", "Two", "of them"
    ]
