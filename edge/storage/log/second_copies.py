"""What a batch of the log puts only once so far: its second copy follows in a page of its own.

Then no damaged page of 4 KiB has both. The copies come in order, behind the whole batch: whatever
is said of the same state in between is said again with them.
"""

import cython


@cython.cclass
class SecondCopies:
    """Rows of (kind, stream id, first part, second part, rest). Bounded by what one turn writes."""

    def __init__(self):
        self.rows = []
        self.keys = set()

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def add(
        self,
        kind: cython.int,
        stream: cython.ulonglong,
        first: bytes,
        second: bytes,
        rest: bytes,
        end: cython.Py_ssize_t,
    ) -> cython.int:
        """What ends at `end` is to be written again."""
        self.end = end
        self.rows.append((kind, stream, first, second, rest))
        self.keys.add((first, second))
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def follow(self, kind: cython.int, first: bytes, second: bytes, rest: bytes) -> cython.int:
        """The same when something of that state is to be written again."""
        if self.keys and (first, second) in self.keys:
            self.rows.append((kind, 0, first, second, rest))
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def drop(self, first: bytes, second: bytes) -> cython.int:
        """What was put before does not count any more."""
        if self.keys and (first, second) in self.keys:
            self.keys.remove((first, second))
            self.rows = [row for row in self.rows if (row[2], row[3]) != (first, second)]
        return 0

    @cython.cfunc
    def drain(self) -> list:
        """All rows; there are none left then."""
        rows: list = self.rows
        self.rows = []
        self.keys = set()
        return rows
