"""Records, in memory, of messages that a segment of the log holds in bundles or entries of a group.

An entry is in the log before it is committed, so it is no message yet. Once it is applied, an ADOPT
record says that its messages count. Reads and checkpoints want records; these are made here, beside
the segment's image, and never written: a start makes them again from entries and bundles.
"""

import cython
from cython.cimports.headwater.edge.storage.log.aligned_memory import aligned_memory, free_aligned
from cython.cimports.libc.string import memset

# Of memory that is asked for at once: at most, and at least.
CHUNK_BYTES = cython.declare(cython.Py_ssize_t, 2 << 20)
CHUNK_BYTES_MIN = cython.declare(cython.Py_ssize_t, 64 << 10)


@cython.cclass
class Chunk:
    """Memory for records, which stay where they are as long as it."""

    def __init__(self, capacity: int):
        self.image = aligned_memory(capacity)
        self.capacity = capacity

    def __dealloc__(self):
        free_aligned(self.image, self.capacity)


@cython.cclass
class AdoptedRecords:
    """See the module. `capacity` is that of the segment. `donor` belongs to a segment that is
    over: its memory is used again."""

    def __init__(self, capacity: cython.Py_ssize_t, donor: AdoptedRecords | None = None):
        chunk: Chunk
        self.chunk_bytes = min(max(capacity // 2, CHUNK_BYTES_MIN), CHUNK_BYTES)
        self.chunks = []
        self.ranges = {}
        self.free = []
        if donor is not None:
            self.free = donor.free
            for item in donor.chunks:
                chunk = item
                if chunk.capacity == self.chunk_bytes:
                    chunk.used = 0
                    self.free.append(chunk)
            donor.chunks = []
            donor.free = []
            donor.ranges = {}

    @cython.cfunc
    def reserve(self, size: cython.Py_ssize_t) -> cython.p_uchar:
        """Room for records of `size` bytes together, a multiple of eight; they are to be filled
        and entered in `ranges`. Raises MemoryError."""
        chunk: Chunk = self.chunks[len(self.chunks) - 1] if self.chunks else None
        at: cython.p_uchar
        if chunk is None or chunk.used + size > chunk.capacity:
            if self.free and size <= self.chunk_bytes:
                chunk = self.free.pop()
            else:
                chunk = Chunk(max(size, self.chunk_bytes))
            self.chunks.append(chunk)
        at = chunk.image + chunk.used
        chunk.used += size
        self.bytes += size
        return at

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def let_spare_go(self) -> cython.int:
        """Free memory in which no records are."""
        self.free = []
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def wipe(self, everything: cython.bint) -> cython.int:
        """Overwrite what earlier segments left here, or `everything`."""
        chunk: Chunk
        for item in self.free + self.chunks if everything else self.free:
            chunk = item
            memset(chunk.image, 0, chunk.capacity)
        return 0
