"""Filters of a stream that were used last: to match all subjects takes time."""

from typing import Any


class KeptFilters:
    """At most `size` filters with wildcards, of one store."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.store: Any = None
        self.kept: dict[tuple[bytes, ...], Any] = {}

    def get(self, store: Any, patterns: tuple[bytes, ...]) -> Any:
        """The filter of these patterns, bound to `store`; what is of another store goes."""
        if store is not self.store:
            self.store, self.kept = store, {}
        found = self.kept.pop(patterns, None)
        if found is None:
            found = store.filter(patterns)
            if found.literal:
                return found
        self.kept[patterns] = found
        while len(self.kept) > self.size:
            del self.kept[next(iter(self.kept))]
        return found
