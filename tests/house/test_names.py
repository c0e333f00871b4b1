"""What names are held to: a word that stands for one thing names nothing else."""

import ast
import re
from pathlib import Path

import pytest

from tests.house.syntax import nodes
from tests.house.test_house import PRODUCT, ROOT

GUARDED = ("note", "settle", "tell")
"""Words that say something in one place at most: that of their row in the glossary, if there is
one. Everywhere else a function says what it does."""

REPLACED = {
    "take": "accept, add, parse, keep, drain", "takes": "accepts", "taken": "kept, stored",
    "note": "record", "notes": "records", "retire": "checkpoint", "upstream": "origin",
    "tidemark": "watermark", "ceiling": "reservation", "enders": "turn hooks",
    "inflow": "origin driver", "book": "manifest", "life": "lifecycle", "places": "placement",
    "told": "announced, answered", "untold": "unlogged", "settled": "done",
}  # fmt: skip
"""Words that stood for many things, and what is said instead: no part of a name of the node's and
the hub's classes, functions, fields and files is one of them."""

FLOORS = ("edge", "federation", "hub")

HELD = [path for path in PRODUCT if path.relative_to(ROOT).parts[0] in FLOORS]

PARTS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")

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
        for node in nodes(path.read_text())
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (word := node.name.lstrip("_")) in allowed
        and path.name not in allowed[word]
    ]


def test_guarded_words_stand_for_one_thing() -> None:
    allowed = homes((ROOT / "docs/GLOSSARY.md").read_text())
    wrong = {str(path.relative_to(ROOT)): misused(path, allowed) for path in PRODUCT}
    assert not {path: found for path, found in wrong.items() if found}, "say what it does"


def names(path: Path) -> set[str]:
    """The module's own name, and those of its classes, functions and fields."""
    found = {path.stem}
    for node in nodes(path.read_text()):
        match node:
            case ast.ClassDef():
                fields = (each.target for each in node.body if isinstance(each, ast.AnnAssign))
                found |= {node.name, *map(ast.unparse, fields)}
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                found.add(node.name)
            case ast.Attribute(ctx=ast.Store()):
                found.add(node.attr)
    return found


def replaced(path: Path) -> set[str]:
    """Names of a module that have a word in them which others replace."""
    return {
        name for name in names(path) if any(w.lower() in REPLACED for w in PARTS.findall(name))
    }


def test_words_that_are_replaced_are_in_no_name() -> None:
    wrong = {str(path.relative_to(ROOT)): replaced(path) for path in HELD}
    assert not {path: found for path, found in wrong.items() if found}, REPLACED


def test_a_replaced_word_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "note_book.py"
    path.write_text(
        "class NoteTaker:\n    mistaken: int\n    def take_it(self): self._taken, self.of = 1, 2\n"
    )
    assert replaced(path) == {"note_book", "NoteTaker", "take_it", "_taken"}


@pytest.mark.parametrize(("name", "found"), [("settle", []), ("_note", ["2: _note"])])
def test_a_guarded_word_is_seen(name: str, found: list[str], tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(f"class A:\n    def {name}(self): pass\n")
    allowed = homes("| settle | to end | `one.py` |\n")
    assert misused(tmp_path / "one.py", allowed) == found
