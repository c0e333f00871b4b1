"""What the pages on the house say of its code is so: files, folders, classes and members exist."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.code_names import CodeNames

ROOT = Path(__file__).resolve().parent.parent
CODE = re.compile(r"`([^`\n]+)`")
PLACED = re.compile(r"`([\w./]+(?:\.py|/))`: `([\w.]+)`")
FILE = re.compile(r"[\w.-]*/[\w./-]*|\w+\.(?:py|md|pxd)")
NAME = re.compile(r"[A-Za-z_]\w*(?:\.\w+)?")
NO_CODE = {"nats-server", "clean", "meta", "tidemarks"}
"""Programs and files of a store."""

LINES_MAX = 125
"""Of the page on the architecture: one page."""


@pytest.fixture(scope="module")
def names() -> CodeNames:
    return CodeNames(ROOT)


def glossary() -> list[tuple[str, str]]:
    """(word, where the code has it) of every row."""
    rows = re.findall(r"^\| (.+?) \|.*\| (.+?) \|$", (ROOT / "docs/GLOSSARY.md").read_text(), re.M)
    return [row for row in rows if row[0] != "word"]


def unknown(text: str, names: CodeNames) -> Iterator[str]:
    """Pieces of code in a text that name nothing."""
    for piece in CODE.findall(text):
        if piece in NO_CODE:
            continue
        if FILE.fullmatch(piece):
            if not names.has_path(piece):
                yield piece
        elif NAME.fullmatch(piece) and not (names.has_path(piece) or names.has(piece)):
            yield piece
    for path, name in PLACED.findall(text):
        inside = path.endswith("/") and names.has_path(path + name)
        if not inside and not any(names.is_in(name, each) for each in matching(path, names)):
            yield f"{name} in {path}"


def matching(path: str, names: CodeNames) -> list[str]:
    """Files and folders that a path may mean."""
    path = path.rstrip("/")
    return [each for each in names.files if each == path or each.endswith(f"/{path}")]


def test_the_architecture_names_what_there_is(names: CodeNames) -> None:
    text = (ROOT / "docs/ARCHITECTURE.md").read_text()
    text = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    assert not list(unknown(text, names))
    assert text.count("\n") <= LINES_MAX, "the architecture is one page"


def test_the_glossary_names_what_there_is(names: CodeNames) -> None:
    rows = glossary()
    assert len(rows) > 100
    found = {word: wrong for word, where in rows if (wrong := list(unknown(where, names)))}
    assert not found


def test_rooms_of_the_architecture_are_the_rooms_there_are() -> None:
    text = (ROOT / "docs/ARCHITECTURE.md").read_text()
    for place in ("edge/broker", "edge/storage", "edge/jetstream"):
        (line,) = re.findall(rf"^\| `{place}` \| (.*) \|$", text, re.M)
        there = {path.parent.name for path in (ROOT / place).glob("*/__init__.py")}
        named = {name for name in CODE.findall(line) if not (ROOT / place / name).is_file()}
        assert named == there


@pytest.mark.parametrize(
    "text",
    [
        "`edge/storage/none.py`", "`none.py`", "`NoSuchClass`", "`MessageStore.no_such_member`",
        "`edge/storage/index/store.py`: `FileStore`", "`no_such_room`",
    ],
)  # fmt: skip
def test_what_is_not_there_is_seen(text: str, names: CodeNames) -> None:
    assert list(unknown(text, names))


@pytest.mark.parametrize(
    "text",
    [
        "`edge/storage/segments/file_store.py`: `FileStore`", "`file_store.py`", "`log/states.py`",
        "`FileStore.committed` of a base class", "`edge/storage/recovery/`: `LogRecovery`",
        "`make check`", "`$JS.ACK`",
    ],
)  # fmt: skip
def test_what_is_there_passes(text: str, names: CodeNames) -> None:
    assert not list(unknown(text, names))
