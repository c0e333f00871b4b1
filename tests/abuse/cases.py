"""The tables of tests in docs/SECURITY.md; that of cases is made of the first lines of their tests.

`python -m tests.abuse.cases` writes it again. A test `test_aNN_...` belongs to case ANN; its
docstring says what is tried, a bar, and what is answered.
"""

import ast
import re
from collections import defaultdict
from pathlib import Path

from tests.abuse import seen

FOLDER = Path(__file__).parent
PAGE = FOLDER.parents[1] / "docs" / "SECURITY.md"
BEGIN = "<!-- cases: made by python -m tests.abuse.cases -->\n"
END = "<!-- end of cases -->\n"
SEEN_BEGIN = "<!-- seen: made by python -m tests.abuse.cases -->\n"
SEEN_END = "<!-- end of seen -->\n"
CASES = range(1, 59)


def told() -> dict[int, list[tuple[str, str, str]]]:
    """What is tried, what is answered, and the test, by case. Raises ValueError for a test that
    does not say it."""
    found: dict[int, list[tuple[str, str, str]]] = defaultdict(list)
    for path in sorted(FOLDER.glob("test_*.py")):
        for node in ast.parse(path.read_text()).body:
            if not isinstance(node, ast.FunctionDef):
                continue
            number = re.match(r"test_a(\d\d)_", node.name)
            if number is None:
                continue
            text = " ".join((ast.get_docstring(node) or "").split())
            tried, bar, answered = text.partition(" | ")
            if not bar:
                raise ValueError(f"{path.name}: {node.name} does not say what is answered")
            found[int(number[1])].append((tried, answered, f"{path.stem}::{node.name}"))
    return found


def table() -> str:
    """The table in Markdown."""
    rows = ["| case | tried | answered | test |\n|---|---|---|---|\n"]
    for number, tests in sorted(told().items()):
        for tried, answered, name in tests:
            name = name.partition("::")[2]
            rows.append(f"| A{number} | {tried} | {answered} | `{name}` |\n")
    return "".join(rows)


def with_table(page: str) -> str:
    """A page with the tables as they should be."""
    for begin, end, content in ((BEGIN, END, table()), (SEEN_BEGIN, SEEN_END, seen.table())):
        head, _, rest = page.partition(begin)
        _, _, tail = rest.partition(end)
        page = f"{head}{begin}{content}{end}{tail}"
    return page


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text()))
