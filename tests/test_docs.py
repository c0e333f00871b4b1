"""What the pages say of the tree: a file that a page names is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")])
NAMED = re.compile(
    r"`((?:security|edge|federation|hub|spark|deploy|tests|bench|docs)/[\w./-]*\w/?)`"
)
LINKED = re.compile(r"\]\(((?!https?:)[\w./-]+)\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_a_page_names_are_there(page: Path) -> None:
    text = page.read_text()
    missing = [name for name in NAMED.findall(text) if not (ROOT / name).exists()]
    missing += [name for name in LINKED.findall(text) if not (page.parent / name).exists()]
    assert not missing
