"""When a batch that gathers messages over many turns had better end: blocks of the device are
written whole, so it matters how full the last one is.
"""

import cython
from cython.cimports.headwater.edge.storage.log.commit_thread import BLOCK_BYTES

# Where more than this is still to come, one block more or less does not matter.
MORE_MAX = cython.declare(cython.double, 8 * BLOCK_BYTES)
# A message of which so much is expected at least comes in time; a mean has rounding.
SURE = cython.declare(cython.double, 0.1)


@cython.cfunc
@cython.exceptval(check=False)
def cost(
    size: cython.double, records: cython.Py_ssize_t, footers: cython.Py_ssize_t
) -> cython.double:
    """Bytes of blocks per record in a batch whose records take `size`."""
    blocks: cython.Py_ssize_t = (
        cython.cast(cython.Py_ssize_t, size) + footers + BLOCK_BYTES - 1
    ) // BLOCK_BYTES
    return cython.cast(cython.double, blocks * BLOCK_BYTES) / records


@cython.ccall
@cython.exceptval(check=False)
def fits_best(
    size: cython.Py_ssize_t,
    records: cython.Py_ssize_t,
    footers: cython.Py_ssize_t,
    more: cython.double,
    once: cython.Py_ssize_t = 0,
) -> cython.bint:
    """Whether records cost least if the batch ends now, with `records` of `size` bytes together and
    `footers` bytes of footers; `more` bytes of records are expected, like these, if it stays open.
    `once` bytes of `size` are there however many records there are. False when nothing is
    expected."""
    mean: cython.double
    now: cython.double
    count: cython.int
    expected: cython.int
    if size <= once or records <= 0 or more > MORE_MAX:
        return False
    mean = cython.cast(cython.double, size - once) / records
    # Rounded down: one that comes too late leaves the batch with the worse of both.
    expected = cython.cast(cython.int, more / mean + SURE)
    now = cost(size, records, footers)
    for count in range(1, expected + 1):
        if cost(size + count * mean, records + count, footers) < now:
            return False
    return expected > 0
