"""When a batch that gathers messages over many turns had better end: blocks of the device are
written whole, so it matters how full the last one is.
"""

import cython
from cython.cimports.headwater.edge.storage.log.commit_thread import BLOCK_BYTES

# Where more than this is still to come, one block more or less does not matter.
MORE_MAX = cython.declare(cython.double, 8 * BLOCK_BYTES)


@cython.cfunc
@cython.exceptval(check=False)
def share_of_blocks(size: cython.double, footers: cython.Py_ssize_t) -> cython.double:
    """Bytes of blocks per byte of records in a batch of `size`."""
    blocks: cython.Py_ssize_t = (
        cython.cast(cython.Py_ssize_t, size) + footers + BLOCK_BYTES - 1
    ) // BLOCK_BYTES
    return blocks * BLOCK_BYTES / size


@cython.ccall
@cython.exceptval(check=False)
def fits_best(
    size: cython.Py_ssize_t,
    records: cython.Py_ssize_t,
    footers: cython.Py_ssize_t,
    more: cython.double,
) -> cython.bint:
    """Whether records cost least if the batch ends now, with `records` of `size` bytes together and
    `footers` bytes of footers; `more` bytes of records are expected, like these, if it stays open.
    False when nothing is expected."""
    mean: cython.double
    now: cython.double
    count: cython.int
    expected: cython.int
    if size <= 0 or records <= 0 or more > MORE_MAX:
        return False
    mean = cython.cast(cython.double, size) / records
    expected = cython.cast(cython.int, more / mean + 0.5)
    now = share_of_blocks(size, footers)
    for count in range(1, expected + 1):
        if share_of_blocks(size + count * mean, footers) < now:
            return False
    return expected > 0
