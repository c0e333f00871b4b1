"""What the pages on the house say of its code is so: files, folders, classes and members exist."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.code_names import FLOORS, CodeNames

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")])
CODE = re.compile(r"`([^`\n]+)`")
PLACED = re.compile(r"`([\w./]+(?:\.py|/))`: `([\w.]+)`")
FILE = re.compile(r"[\w.-]*/[\w./-]*|\w+\.(?:py|md|pxd)")
NAME = re.compile(r"[A-Za-z_]\w*(?:\.\w+)?")
NO_CODE = {"nats-server", "clean", "meta", "tidemarks"}
"""Programs and files of a store."""

MODULE = re.compile(rf"headwater((?:\.(?:{'|'.join(FLOORS)}))(?:\.\w+)+)")
CLASS = re.compile(r"[A-Z][a-z]\w*[A-Z]\w*(?:\.\w+)?|[A-Z]\w*[a-z]\w*\.[a-z_]\w*")
WORD = re.compile(r"_?[a-z]\w*_\w*[a-z]")
SCRIPT = re.compile(r"(?:[\w-]+/)*\w+\.pyz?")
PARTS = ("headwater_raft_", "headwater_storage_")
"""Prefixes that `edge/monitor/metrics.py` puts before names that others give."""

BUILT = {"agent.pyz"}
"""Made by a bundle, no file of the tree."""

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


@pytest.fixture(scope="module")
def words() -> set[str]:
    """Words of all programs, tests included."""
    found: set[str] = set()
    for folder in (*FLOORS, "bench", "tests"):
        for path in (ROOT / folder).rglob("*.py"):
            found.update(re.findall(r"\w+", path.read_text()))
    return found


def untrue(text: str, names: CodeNames, words: set[str]) -> Iterator[str]:
    """Pieces of code in a page that look like names of this project, and name nothing in it."""
    for piece in CODE.findall(text):
        if module := MODULE.fullmatch(piece):
            path, _, last = module[1][1:].replace(".", "/").rpartition("/")
            known = any(names.has_path(f"{path}/{last}{end}") for end in ("", ".py"))
            known = known or names.is_in(last, f"{path}.py")
        elif SCRIPT.fullmatch(piece):
            known = piece in BUILT or names.has_path(piece) or (ROOT / piece).exists()
        elif CLASS.fullmatch(piece):
            known = names.has(piece) or piece in words
        elif WORD.fullmatch(piece):
            short = re.sub("|".join(map(re.escape, PARTS)), "", piece)
            known = piece in words or short in words
            # The end of a name whose beginning was said before.
            known = known or (piece[0] == "_" and any(word.endswith(piece[1:]) for word in words))
        else:
            known = True
        if not known:
            yield piece


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_names_of_code_in_any_page_are_there(
    page: Path, names: CodeNames, words: set[str]
) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
    assert not list(untrue(text, names, words))


@pytest.mark.parametrize(
    "piece",
    [
        "headwater.edge.storage.no_room", "no_such_file.py", "NoSuchClass", "Kernel.no_such",
        "headwater_raft_of_nothing", "no_such_key_anywhere",
    ],
)  # fmt: skip
def test_a_name_of_nothing_is_seen_in_any_page(
    piece: str, names: CodeNames, words: set[str]
) -> None:
    assert list(untrue(f"is `{piece}` there", names, words - {piece})) == [piece]


def test_the_glossary_names_what_there_is(names: CodeNames) -> None:
    rows = glossary()
    assert len(rows) > 100
    found = {word: wrong for word, where in rows if (wrong := list(unknown(where, names)))}
    assert not found


def test_rooms_of_the_architecture_are_the_rooms_there_are() -> None:
    text = (ROOT / "docs/ARCHITECTURE.md").read_text()
    (line,) = re.findall(r"^- `federation/`: (.*\n.*)$", text, re.M)
    there = {path.parent.name for path in (ROOT / "federation").glob("*/__init__.py")}
    assert there == {name for name in CODE.findall(line) if not name.endswith(".py")}
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
