"""Exports of one account, found by the subject of an import in a time that their number hardly
matters to: tokens of other accounts may hold thousands of both."""

from typing import Any

from headwater.edge.conf.options import ExportOptions

HERE = ""
"""Key of the exports that end at a level; no token is empty."""


class ExportIndex:
    """The exports of an account by kind and token."""

    def __init__(self, exports: list[ExportOptions]) -> None:
        self._exact: dict[tuple[str, str], ExportOptions] = {}
        self._levels: dict[str, Any] = {}
        for rank, export in enumerate(exports):
            self._exact.setdefault((export.kind, export.subject), export)
            level = self._levels.setdefault(export.kind, {})
            for token in export.subject.split("."):
                level = level.setdefault(token, {})
            level.setdefault(HERE, (rank, export))

    def find(self, kind: str, subject: str) -> ExportOptions | None:
        """The export of the same subject, or else the first one that covers it."""
        exact = self._exact.get((kind, subject))
        if exact is not None or kind not in self._levels:
            return exact
        levels, best = [self._levels[kind]], None
        for token in subject.split("."):
            best = _first(best, [level.get(">") for level in levels])
            ways = ("*",) if token == "*" else (token, "*")
            if token == ">":
                return best[1] if best is not None else None
            levels = [level[way] for level in levels for way in ways if way in level]
        found = _first(best, levels)
        return found[1] if found is not None else None


Found = tuple[int, ExportOptions]


def _first(best: Found | None, levels: list[dict[str, Any] | None]) -> Found | None:
    """The earliest of those that end at these levels and `best`."""
    for level in levels:
        found = level.get(HERE) if level is not None else None
        if found is not None and (best is None or found[0] < best[0]):
            best = found
    return best
