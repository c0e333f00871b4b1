"""Memory for images of files, and for records."""

import cython
from cython.cimports.posix.mman import MADV_HUGEPAGE, madvise
from cython.cimports.posix.stdlib import posix_memalign

# What writes past the page cache ask of memory.
ALIGNMENT = cython.declare(cython.size_t, 4096)
# Images of this size and more lie in pages of this size, if the system has them: the first use of
# memory costs a fault per page.
HUGE_BYTES = cython.declare(cython.Py_ssize_t, 2 << 20)
# From so many bytes on, a gateway's memory is its own mapping.
MAPPED_BYTES = cython.declare(cython.int, 128 << 10)


def keep_memory_small() -> None:
    """Have memory of 128 KiB and more go back to the system when it is freed, in all the process.

    glibc otherwise takes it from its heap after a while. There it lies between small pieces that
    stay, and is not given back. Each such piece costs more time; other libraries do so anyway.
    """
    headwater_map_from(MAPPED_BYTES)


@cython.cfunc
def aligned_memory(capacity: cython.Py_ssize_t) -> cython.p_uchar:
    """Memory to be filled, for the caller to free; large pages where the system has them. Raises
    MemoryError."""
    image: cython.p_void = cython.NULL
    huge: cython.bint = capacity >= HUGE_BYTES
    if posix_memalign(cython.address(image), HUGE_BYTES if huge else ALIGNMENT, capacity):
        raise MemoryError
    if huge:
        # A wish; without it pages are small.
        madvise(image, capacity, MADV_HUGEPAGE)
    return cython.cast(cython.p_uchar, image)
