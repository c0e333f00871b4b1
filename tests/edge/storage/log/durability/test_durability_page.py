"""Every cell of the table in docs/DURABILITY.md names a test that exists, for its own column."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[5]
PAGE = ROOT / "docs" / "DURABILITY.md"
TESTS = (
    "tests/edge/jetstream/node/test_durability_serve.py",
    "tests/edge/storage/log/durability/test_durability_table.py",
)
FAILURES = 7


def collected() -> set[tuple[str, str]]:
    """(function, parameter) of every test in the files."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-o", "addopts=", *TESTS]
    own = {**os.environ, "PYTEST_ADDOPTS": ""}
    text = subprocess.run(
        command, cwd=ROOT, env=own, capture_output=True, text=True, check=True
    ).stdout
    found = set()
    for name, parameters in re.findall(r"::(\w+)\[([^\]]+)\]", text):
        found |= {(name, parameter) for parameter in parameters.split("-")}
    return found


def test_every_cell_names_its_test() -> None:
    text = PAGE.read_text()
    table = text[text.index("| failure |") :].split("\n\n")[0].splitlines()
    settings = [cell.strip() for cell in table[0].strip("|").split("|")][1:]
    assert settings == ["fsync", "max_delay", "interval", "memory"]
    known = collected()
    rows = table[2:]
    assert len(rows) == FAILURES
    for row in rows:
        cells = row.strip("|").split("|")[1:]
        for setting, cell in zip(settings, cells, strict=True):
            ((name, parameter),) = re.findall(r"`(\w+)\[(\w+)\]`", cell)
            assert parameter == setting, cell
            assert (name, parameter) in known, cell


def test_the_files_are_named() -> None:
    text = PAGE.read_text()
    for path in TESTS:
        assert path in text
