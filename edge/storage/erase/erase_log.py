"""What the log holds of erased messages beside their records: images in memory, and the part of
the active segment's file that an earlier use of the slot left."""

import cython
from cython.cimports.cpython.bytes import PyBytes_AS_STRING
from cython.cimports.headwater.edge.storage.log.commit_log import CommitLog
from cython.cimports.headwater.edge.storage.log.commit_thread import NO_SYNC
from cython.cimports.libc.string import memset

# Part of the active log slot that is wiped between two batches.
ZEROS_MAX = 1 << 20
ZEROS: bytes = bytes(ZEROS_MAX)
"""What is written over the rest of a slot. The commit thread reads it without the GIL and long
after a caller has returned, so it is there as long as the program."""


def submit_zeros(log: CommitLog, length: cython.Py_ssize_t, offset: cython.Py_ssize_t) -> bool:
    """Have `length` zeros, at most ZEROS_MAX, written at `offset` of the active segment, behind its
    end and before what is appended from now on; False when the queue is full."""
    if offset < log.active.end or offset + length > log.active.capacity:
        raise ValueError("not behind the end of the active segment")
    if not 0 < length <= ZEROS_MAX:
        raise ValueError(f"from 1 to {ZEROS_MAX} zeros at a time")
    return not log.thread.submit(
        log.active.fd,
        -1,
        cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(ZEROS)),
        length,
        offset,
        log.batch - 1,
        NO_SYNC,
        False,
        True,
    )


def wipe_images(log: CommitLog) -> None:
    """Overwrite what earlier segments left in memory."""
    log.common_stream = 0
    memset(log.common, 0, cython.sizeof(log.common))
    log.active.wipe(log.active.end)
    if log.active.adopted is not None:
        log.active.adopted.wipe(False)
    if log.donor is not None:
        log.donor.wipe(0)
        if log.donor.adopted is not None:
            log.donor.adopted.wipe(True)
