"""Memory for images of files, and for records."""

import cython
from cython.cimports.libc.stdlib import free, realloc
from cython.cimports.libc.string import memcpy
from cython.cimports.posix.mman import (
    MADV_HUGEPAGE,
    MAP_ANONYMOUS,
    MAP_FAILED,
    MAP_PRIVATE,
    PROT_READ,
    PROT_WRITE,
    madvise,
    mmap,
    munmap,
)
from cython.cimports.posix.stdlib import posix_memalign

# What writes past the page cache ask of memory.
ALIGNMENT = cython.declare(cython.Py_ssize_t, 4096)
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
@cython.inline
@cython.exceptval(check=False)
def whole_pages(size: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """`size`, rounded up."""
    rest: cython.Py_ssize_t = size % ALIGNMENT
    return size if rest == 0 else size + ALIGNMENT - rest


@cython.cfunc
def aligned_memory(capacity: cython.Py_ssize_t) -> cython.p_uchar:
    """Memory to be filled, for the caller to free with `free_aligned`; large pages where the system
    has them. Raises MemoryError."""
    image: cython.p_void = cython.NULL
    if capacity >= HUGE_BYTES:
        return mapped_memory(whole_pages(capacity))
    if posix_memalign(cython.address(image), ALIGNMENT, max(capacity, 1)):
        raise MemoryError
    return cython.cast(cython.p_uchar, image)


@cython.cfunc
def mapped_memory(size: cython.Py_ssize_t) -> cython.p_uchar:
    """A mapping of its own, which goes back to the system when it is freed: from its heap the C
    library would give back only what lies behind everything else."""
    begin: cython.p_uchar
    before: cython.Py_ssize_t
    area: cython.p_void = mmap(
        cython.NULL, size + HUGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0
    )
    if area == MAP_FAILED:
        raise MemoryError
    begin = cython.cast(cython.p_uchar, area)
    before = HUGE_BYTES - cython.cast(cython.size_t, area) % HUGE_BYTES
    munmap(begin, before)
    if before < HUGE_BYTES:
        munmap(begin + before + size, HUGE_BYTES - before)
    # A wish; without it pages are small.
    madvise(begin + before, size, MADV_HUGEPAGE)
    return begin + before


@cython.cfunc
@cython.exceptval(check=False)
def shrink_aligned(
    image: cython.p_uchar, capacity: cython.Py_ssize_t, smaller: cython.Py_ssize_t
) -> cython.p_uchar:
    """Give back what lies behind the first `smaller` bytes, which may move; NULL when there is no
    memory for them, and all stays as it is."""
    moved: cython.p_void = cython.NULL
    kept: cython.Py_ssize_t = whole_pages(smaller)
    if capacity < HUGE_BYTES:
        return cython.cast(cython.p_uchar, realloc(image, max(smaller, 1)))
    if smaller >= HUGE_BYTES:
        if kept < whole_pages(capacity):
            munmap(image + kept, whole_pages(capacity) - kept)
        return image
    if posix_memalign(cython.address(moved), ALIGNMENT, max(smaller, 1)):
        return cython.NULL
    memcpy(moved, image, smaller)
    free_aligned(image, capacity)
    return cython.cast(cython.p_uchar, moved)


@cython.cfunc
@cython.exceptval(check=False)
def free_aligned(image: cython.p_uchar, capacity: cython.Py_ssize_t) -> cython.void:
    """Give back what `aligned_memory`, or `shrink_aligned`, gave for `capacity` bytes."""
    if image == cython.NULL:
        return
    if capacity >= HUGE_BYTES:
        munmap(image, whole_pages(capacity))
    else:
        free(image)
