"""What names are held to: a word that stands for one thing names nothing else."""

import ast
import re
from pathlib import Path

import pytest

from tests.test_house import PRODUCT, ROOT

GUARDED = ("note", "settle", "take", "tell")
"""Words that say something in one place at most: that of their row in the glossary, if there is
one. Everywhere else a function says what it does."""

ROW = re.compile(r"^\| (\w+) \|.*\| ([^|]+) \|$", re.MULTILINE)


def homes(page: str) -> dict[str, set[str]]:
    """Names of the files in which a function may be called by a guarded word."""
    found: dict[str, set[str]] = {word: set() for word in GUARDED}
    for word, place in ROW.findall(page):
        if word in found:
            found[word].update(re.findall(r"\w+\.py", place))
    return found


def misused(path: Path, allowed: dict[str, set[str]]) -> list[str]:
    """Functions of a module that are called by a guarded word away from its home."""
    return [
        f"{node.lineno}: {node.name}"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (word := node.name.lstrip("_")) in allowed
        and path.name not in allowed[word]
    ]


def test_guarded_words_stand_for_one_thing() -> None:
    allowed = homes((ROOT / "docs/GLOSSARY.md").read_text())
    wrong = {str(path.relative_to(ROOT)): misused(path, allowed) for path in PRODUCT}
    assert not {path: found for path, found in wrong.items() if found}, "say what it does"


@pytest.mark.parametrize(("name", "found"), [("take", []), ("_note", ["2: _note"])])
def test_a_guarded_word_is_seen(name: str, found: list[str], tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(f"class A:\n    def {name}(self): pass\n")
    allowed = homes("| take | to accept | `one.py` |\n")
    assert misused(tmp_path / "one.py", allowed) == found
