"""One segment of a stream, as the running store sees it. Plain data; file_store keeps it true."""

import cython

# A segment on a full device that takes less than this is not worth another file.
DEAD_END_MIN = cython.declare(cython.Py_ssize_t, 8192)


@cython.cclass
class StreamSegment:
    """A file of records that belong to one stream.

    `first` and `last` are the sequences it was written with, `live` counts messages of it that
    are still stored and `live_bytes` their records' bytes. `deletes` and `lost` are the runs it
    holds about messages of older segments.
    """

    def __init__(self, number: int, generation: int, path: object):
        self.number = number
        self.generation = generation
        self.path = path
        self.end = 0
        self.dirty = True
        self.deletes = bytearray()
        self.lost = []

    def allow_rewrite(self) -> None:
        """It may be rewritten again."""
        self.avoided = False

    @cython.ccall
    def mostly_dead(self) -> cython.bint:
        """Whether rewriting would give back more than half of what records of messages take."""
        return self.live_bytes * 2 + self.rest < cython.cast(cython.ulonglong, self.end)

    @cython.ccall
    def is_dead_end(self, first_alive: cython.ulonglong) -> cython.bint:
        """Whether it takes room, and all its messages are below `first_alive`. A stream's newest
        segment stays even so, since its footer tells how far the stream is."""
        return self.end > DEAD_END_MIN and self.last < first_alive
