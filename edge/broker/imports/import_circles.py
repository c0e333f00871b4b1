"""Imports between accounts that reach one another, and those of them that lead in a circle.

Only accounts that import from one another, over whatever others, can make a circle. All others
are left out of the search, so that a changed token costs nothing to who is not concerned.
"""

from collections.abc import Iterator, Mapping, Sequence

from headwater.edge.conf.options import ImportOptions
from headwater.edge.conf.shares.import_cycles import ImportWays
from headwater.security.errors import StepsExceeded

Candidates = Sequence[tuple[int, ImportOptions]]
"""Imports of one account and kind that are authorized, each with its place in the token. A list
that has been handed over does not change any more."""

Refusals = Mapping[str, Mapping[int, str]]
"""By account and place: why an import cannot be."""

SECOND = "stream import already exists"


class ImportCircles:
    """Refuses imports that lead in a circle, and keeps what it found for groups that stay."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, ...], tuple[list[Candidates], Refusals]] = {}

    def refusals(self, accounts: Mapping[str, Candidates]) -> Refusals:
        """What is refused of the imports of all accounts, of one kind, in their order."""
        refused: dict[str, Mapping[int, str]] = {}
        kept = {}
        for names in mutual(sources(accounts)):
            candidates = [accounts[name] for name in names]
            known = self._found.get(names)
            if known is None or any(
                old is not new for old, new in zip(known[0], candidates, strict=True)
            ):
                known = candidates, _refused(names, candidates)
            kept[names] = known
            refused.update(known[1])
        self._found = kept
        return refused


def sources(accounts: Mapping[str, Candidates]) -> dict[str, list[str]]:
    """The accounts that each account imports from and that import something themselves."""
    ways = {}
    for name, candidates in accounts.items():
        names = {entry.account for _, entry in candidates} if candidates else set()
        wanted = [each for each in names if accounts.get(each)]
        if wanted:
            ways[name] = wanted
    return ways


def mutual(ways: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, ...]]:
    """Groups of at least two that all reach one another, each in the order of `ways` (the
    strongly connected components, Tarjan 1972, without recursion)."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    open_names: dict[str, None] = {}
    places = {name: place for place, name in enumerate(ways)}
    for root in ways:
        if root in order:
            continue
        path = [(root, iter(ways[root]))]
        order[root] = lowest[root] = len(order)
        open_names[root] = None
        while path:
            name, rest = path[-1]
            for further in rest:
                if further not in ways:
                    continue
                if further not in order:
                    order[further] = lowest[further] = len(order)
                    open_names[further] = None
                    path.append((further, iter(ways[further])))
                    break
                if further in open_names:
                    lowest[name] = min(lowest[name], order[further])
            else:
                path.pop()
                if path:
                    above = path[-1][0]
                    lowest[above] = min(lowest[above], lowest[name])
                if lowest[name] == order[name]:
                    group = _closed(open_names, name)
                    if len(group) > 1:
                        yield tuple(sorted(group, key=places.__getitem__))


def _closed(open_names: dict[str, None], first: str) -> list[str]:
    """Those that were opened since `first`, which are open no more."""
    group = []
    while first in open_names:
        group.append(open_names.popitem()[0])
    return group


def _refused(names: Sequence[str], candidates: Sequence[Candidates]) -> Refusals:
    """What cannot be of the imports that a group has of one another."""
    ways = ImportWays()
    refused: dict[str, Mapping[int, str]] = {}
    group = frozenset(names)
    for name, entries in zip(names, candidates, strict=True):
        problems: dict[int, str] = {}
        standing: set[tuple[str, str]] = set()
        for place, entry in entries:
            if entry.account not in group:
                continue
            problem = _circle(ways, name, entry)
            if not problem and entry.kind == "stream":
                if (entry.account, entry.subject) in standing:
                    problem = SECOND
                standing.add((entry.account, entry.subject))
            if problem:
                problems[place] = problem
            else:
                ways.add(name, entry)
        refused[name] = problems
    return refused


def _circle(ways: ImportWays, name: str, entry: ImportOptions) -> str:
    try:
        return "import forms a cycle" if ways.leads_back(name, entry) else ""
    except StepsExceeded:
        return "it leads over too many other imports"
