"""Which module needs which: the graph of imports, and its circles.

An import is one wherever it stands: inside functions, under TYPE_CHECKING, as a `cimport` in a
`.py` or `.pxd`. A type that is named is knowledge, too. Names are without `headwater.`.
"""

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from tests.house.syntax import nodes

Graph = dict[str, set[str]]
PREFIX = re.compile(r"^(?:cython\.cimports\.)?(?:headwater\.|(?=(?:bench|tests)\.))")
"""Before names of the product; `bench` and `tests` are imported by their own."""
DECLARED = re.compile(r"^(?:from headwater\.([\w.]+) )?cimport (.+)$", re.MULTILINE)


def modules(root: Path, floors: Iterable[str]) -> dict[str, Path]:
    """Every module of these top-level folders, with its source."""
    found = {}
    for floor in floors:
        for path in sorted((root / floor).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(root: Path, floors: Iterable[str]) -> Graph:
    """What each module imports of the others."""
    sources = modules(root, floors)
    graph: Graph = {}
    for module, path in sources.items():
        named = [*_of_python(path.read_text()), *_of_declarations(path.with_suffix(".pxd"))]
        found = {_module_of(name, sources) for name in named}
        graph[module] = found - {module, ""}
    return graph


@cache
def _of_python(text: str) -> list[str]:
    found: list[str] = []
    for node in nodes(text):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        found += [PREFIX.sub("", name) for name in names if PREFIX.match(name)]
    return found


def _of_declarations(path: Path) -> Iterator[str]:
    if path.exists():
        for module, names in DECLARED.findall(path.read_text()):
            for name in re.findall(r"[\w.]+", names):
                yield f"{module}.{name}" if module else PREFIX.sub("", name)
            yield module


def _module_of(name: str, sources: dict[str, Path]) -> str:
    """The module in which `name` is; empty when it is none of the product's."""
    while name and name not in sources:
        name = name.rpartition(".")[0]
    return name


def circles(graph: Graph) -> list[list[str]]:
    """Groups of modules each of which leads to all others of its group, sorted."""
    reached = {module: _reachable(graph, module) for module in graph}
    found = {
        tuple(sorted(other for other in reached[module] if module in reached[other]))
        for module in graph
        if module in reached[module]
    }
    return sorted(list(circle) for circle in found)


def _reachable(graph: Graph, begin: str) -> set[str]:
    seen: set[str] = set()
    left = [begin]
    while left:
        for name in graph[left.pop()] - seen:
            seen.add(name)
            left.append(name)
    return seen


def arrows(graph: Graph, circle: Iterable[str]) -> str:
    """The imports inside a circle, one line a module."""
    inside = set(circle)
    return "\n".join(f"{each} -> {', '.join(sorted(graph[each] & inside))}" for each in circle)
