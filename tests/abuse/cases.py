"""The table of abuse cases in docs/SECURITY.md, made of the first lines of their tests.

`python -m tests.abuse.cases` writes it again. A test `test_aNN_...` belongs to case ANN; its
docstring says what is tried, a bar, and what is answered.
"""

import ast
import re
from collections import defaultdict
from pathlib import Path

FOLDER = Path(__file__).parent
PAGE = FOLDER.parents[1] / "docs" / "SECURITY.md"
BEGIN = "<!-- cases: made by python -m tests.abuse.cases -->\n"
END = "<!-- end of cases -->\n"
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
    """A page with the table as it should be."""
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}{table()}{END}{tail}"


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text()))
