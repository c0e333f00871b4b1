"""Sentences of a page of Markdown, so that a test can count their words."""

import re
from collections.abc import Iterator

END = re.compile(r"(?<=[.!?])[\"')*]*\s+(?=[A-Z0-9`*\[(\"'/_-])")
LINK = re.compile(r"\]\([^)]*\)")
ITEM = re.compile(r"\s*(?:[-*]|\d+\.) +")


def paragraphs(text: str) -> Iterator[str]:
    """Paragraphs, items and cells of tables; without headings, code and what links lead to."""
    lines: list[str] = []
    code = False
    for line in text.split("\n"):
        fence = line.lstrip().startswith("```")
        block = line.startswith("    ") and not lines
        starts = ITEM.match(line)
        if fence or code or block or starts or not line.strip() or line[0] in "#|":
            yield " ".join(lines)
            lines = []
        code ^= fence
        if line.startswith("|"):
            yield from line.strip("|").split("|")
        elif line.strip() and not (fence or code or block or line.startswith("#")):
            lines.append(line[starts.end() :] if starts else line.strip())
    yield " ".join(lines)


def sentences(text: str) -> Iterator[str]:
    """The sentences of a page, in order."""
    for paragraph in paragraphs(text):
        yield from (each for each in END.split(LINK.sub("]", paragraph).strip()) if each)
