"""Packed pages of indexes beyond what may stay on the heap: in mapped files without a name.

The system takes the memory of pages that nobody uses for others, and reads it again when somebody
does. A page is used where it lies, as on the heap. The files belong to this process alone and end
with it, as nothing in them is needed by the next: a start makes the index from the segments.

Their room on the device is reserved before it is used. A device without room, or a system without
such calls, leaves the pages on the heap.
"""

from typing import Any

import cython
from cython.cimports.headwater.edge.storage.index.packed_page import PackedPage
from cython.cimports.libc.string import memcpy

from headwater.edge.ports.nameless import leave_memory, map_nameless

CHUNK_BYTES = cython.declare(cython.Py_ssize_t, 256 << 10)
# Pages are read in words.
ALIGNMENT = cython.declare(cython.Py_ssize_t, 8)


@cython.final
@cython.cclass
class SpillChunk:
    """One file, and the pages in it, one behind the other. See page_spill.pxd for the fields."""

    def __init__(self, folder: Any):
        view: cython.uchar[::1]
        self.map = map_nameless(folder, CHUNK_BYTES)
        view = self.map
        self.begin = cython.address(view[0])

    def rest(self) -> None:
        """Leave its memory to the system. What is in it stays, in the file or on the way there."""
        leave_memory(self.map)


@cython.no_gc_clear
@cython.final
@cython.cclass
class PageSpill:
    """The pages of all indexes of a node. `folder` is on the device that has room for them, and
    `most` is how many bytes of packed pages stay on the heap. See page_spill.pxd for the fields."""

    def __init__(self, folder: Any, most: int):
        self.folder = folder
        self.most = most
        self.chunks = []

    @cython.cfunc
    @cython.exceptval(check=False)
    def put(
        self, page: cython.pointer(cython.const[PackedPage]), size: cython.Py_ssize_t
    ) -> cython.pointer(PackedPage):
        """Where a copy of a page lies now, in chunk `number`; NULL without room."""
        place: cython.p_uchar
        need: cython.Py_ssize_t = (size + ALIGNMENT - 1) & ~(ALIGNMENT - 1)
        fits: cython.bint = self.newest is not None and self.newest.used + need <= CHUNK_BYTES
        if not fits and not self.begin_chunk():
            return cython.NULL
        place = self.newest.begin + self.newest.used
        memcpy(place, page, size)
        self.newest.used += need
        self.newest.pages += 1
        return cython.cast(cython.pointer(PackedPage), place)

    def begin_chunk(self) -> bool:
        """Have one more file; whether there is room for it. The last one is left to the system."""
        if self.full:
            return False
        try:
            chunk = SpillChunk(self.folder)
        except OSError:
            self.full = True
            return False
        if self.newest is not None:
            self.newest.rest()
        self.newest = chunk
        self.number = next(
            (i for i, each in enumerate(self.chunks) if each is None), len(self.chunks)
        )
        self.chunks[self.number : self.number + 1] = [chunk]
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def drop(self, number: cython.uint) -> cython.int:
        """A page of a chunk is needed no more. A file whose pages have all gone goes, too; the
        newest one begins anew."""
        chunk: SpillChunk
        if number >= cython.cast(cython.uint, len(self.chunks)):
            return 0  # the garbage collector has emptied the list of a node that goes
        chunk = self.chunks[number]
        chunk.pages -= 1
        if chunk.pages == 0 and chunk is self.newest:
            chunk.used = 0
        elif chunk.pages == 0:
            self.chunks[number] = None
        return 0

    def rest(self) -> None:
        """Leave the memory of all pages to the system, and try again to have room for more."""
        self.full = False
        for chunk in self.chunks:
            if chunk is not None:
                chunk.rest()

    def file_bytes(self) -> int:
        """What the files take on the device."""
        return sum(chunk is not None for chunk in self.chunks) * CHUNK_BYTES
