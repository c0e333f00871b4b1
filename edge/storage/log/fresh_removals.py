"""Removals of one stream that a power cut could still take back.

A copy of the stream (a mirror, a source) must not pass over a message that comes back with the next
start: it would never ask for it again. So whoever sends to a copy asks here for the sequences that
it leaves out.
"""

import cython
from cython.cimports.headwater.edge.storage.index.store import NOT_WRITTEN


@cython.cclass
class FreshRemovals:
    """One range for each batch of the log that is not safe yet, so there are few of them."""

    def __cinit__(self):
        self.written = []

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def add(self, first: cython.ulonglong, last: cython.ulonglong) -> cython.int:
        """Sequences from `first` (at least 1) to `last` were taken out in this turn."""
        if self.low == 0:
            self.low = first
            self.high = last
            return 0
        self.low = min(self.low, first)
        self.high = max(self.high, last)
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def flush(self, lsn: cython.ulonglong, safe: cython.ulonglong) -> cython.int:
        """This turn's removals are in the log up to `lsn`; batches up to `safe` are safe."""
        if self.low == 0:
            return 0
        self.forget(safe)
        if self.written and self.written[len(self.written) - 1][0] >= lsn:
            row = self.written[len(self.written) - 1]
            row[1] = min(row[1], self.low)
            row[2] = max(row[2], self.high)
        else:
            self.written.append([lsn, self.low, self.high])
        self.low = self.high = 0
        return 0

    def forget(self, safe: int) -> None:
        """Batches up to `safe` are safe."""
        count: cython.Py_ssize_t = 0
        while count < len(self.written) and self.written[count][0] <= safe:
            count += 1
        del self.written[:count]

    @cython.cfunc
    @cython.exceptval(0, check=True)
    def within(
        self, first: cython.ulonglong, last: cython.ulonglong, safe: cython.ulonglong
    ) -> cython.ulonglong:
        """The lsn to wait for before removals from `first` to `last` are safe; 0 when they are,
        NOT_WRITTEN when the turn has to end first."""
        if self.low and self.low <= last and self.high >= first:
            return NOT_WRITTEN
        if not self.written:
            return 0
        self.forget(safe)
        for lsn, low, high in reversed(self.written):
            if low <= last and high >= first:
                return cython.cast(cython.ulonglong, lsn)
        return 0
