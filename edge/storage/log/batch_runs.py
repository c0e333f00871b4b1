"""Which messages a batch of the log, or of a segment, holds: runs, for its footer."""

import struct

import cython
from cython.cimports.headwater.edge.storage.format.record import Run
from cython.cimports.headwater.edge.storage.log.logged_store import LoggedStore
from cython.cimports.libc.stdlib import free, realloc

# A row, for interpreted code.
LOG_RUN = struct.Struct("<QQQ")


@cython.cclass
class BatchRuns:
    """`count` runs in `rows`; set `count` to 0 to begin anew."""

    def __dealloc__(self):
        free(self.rows)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def add(
        self, store: LoggedStore, batch: cython.ulonglong, sequence: cython.ulonglong
    ) -> cython.int:
        """Remember that `batch` holds a message of `store`."""
        run: cython.pointer(Run)
        if store.run_batch == batch and store.run_index < self.count:
            run = cython.address(self.rows[store.run_index])
            if run.last + 1 == sequence:
                run.last = sequence
                return 0
        store.run_batch = batch
        store.run_index = self.count
        return self.begin(store.stream_id, sequence)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def join(self, stream: cython.ulonglong, sequence: cython.ulonglong) -> cython.int:
        """Remember a message where all are of one stream."""
        if self.count and self.rows[self.count - 1].last + 1 == sequence:
            self.rows[self.count - 1].last = sequence
            return 0
        return self.begin(stream, sequence)

    @cython.cfunc
    def packed(self) -> bytes:
        """The rows as a footer has them."""
        return cython.cast(cython.p_char, self.rows)[: self.count * cython.sizeof(Run)]

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def begin(self, stream: cython.ulonglong, sequence: cython.ulonglong) -> cython.int:
        """A run of one message."""
        run: cython.pointer(Run)
        grown: cython.p_void
        capacity: cython.uint
        if self.count == self.capacity:
            capacity = self.capacity * 2 or 16
            grown = realloc(self.rows, capacity * cython.sizeof(Run))
            if grown == cython.NULL:
                raise MemoryError
            self.rows = cython.cast(cython.pointer(Run), grown)
            self.capacity = capacity
        run = cython.address(self.rows[self.count])
        run.stream = stream
        run.first = sequence
        run.last = sequence
        self.count += 1
        return 0
