"""Memory for images of files, and for records."""

import cython
from cython.cimports.posix.mman import MADV_HUGEPAGE, madvise
from cython.cimports.posix.stdlib import posix_memalign

# What writes past the page cache ask of memory.
ALIGNMENT = cython.declare(cython.size_t, 4096)
# Images of this size and more lie in pages of this size, if the system has them: the first use of
# memory costs a fault per page.
HUGE_BYTES = cython.declare(cython.Py_ssize_t, 2 << 20)


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
