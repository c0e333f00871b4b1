"""The rows of `rows.txt` as a table for docs/COMPATIBILITY.md; `python -m tests.inventory.page`."""

from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
ROWS = Path(__file__).with_name("rows.txt")
PAGE = ROOT / "docs" / "COMPATIBILITY.md"
BEGIN = "## Line by line\n"
END = "\n## "


class Row(NamedTuple):
    """One line of what nats-server does. An empty state: it is there, and the tests run it."""

    number: str
    what: str
    priority: str
    state: str
    tests: tuple[str, ...]


def rows() -> list[Row]:
    """All rows, in their order."""
    lines = [line for line in ROWS.read_text().splitlines() if not line.startswith("#")]
    fields = [[field.strip() for field in line.split("|")] for line in lines]
    return [Row(*first, tuple(tests.split())) for *first, tests in fields]


def table() -> str:
    """The rows as a table."""
    lines = [
        "| What was seen | Ranked | State | Test |",
        "|---|---|---|---|",
    ]
    for row in rows():
        named = ("{}.py::{}".format(*test.split("::")) for test in row.tests)
        tests = ", ".join(f"`tests/{test}`" for test in named) or "none"
        state = row.state or "as the reference"
        lines.append(f"| {row.number} {row.what} | {row.priority} | {state} | {tests} |")
    return "\n".join(lines) + "\n"


def rendered(page: str) -> str:
    """The page with the table as it should be: in the place of the one that is there."""
    before, begin, rest = page.partition(BEGIN)
    words, head, old = rest.partition("| What was seen")
    _, end, after = (head + old).partition(END)
    return before + begin + words + table() + end + after


if __name__ == "__main__":
    PAGE.write_text(rendered(PAGE.read_text()))
