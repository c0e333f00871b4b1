"""What the log holds of erased messages beside their records: images in memory, and the part of
the active segment's file that an earlier use of the slot left."""

import cython
from cython.cimports.cpython.bytes import PyBytes_AS_STRING
from cython.cimports.headwater.edge.storage.log.commit_log import CommitLog
from cython.cimports.headwater.edge.storage.log.commit_thread import NO_SYNC


def submit_zeros(log: CommitLog, zeros: bytes, offset: cython.Py_ssize_t) -> bool:
    """Have `zeros` written at `offset` of the active segment, behind its end and before what is
    appended from now on; False when the queue is full. The caller keeps `zeros` alive until
    something that it appends afterwards is durable."""
    if offset < log.active.end or offset + len(zeros) > log.active.capacity:
        raise ValueError("not behind the end of the active segment")
    return not log.thread.submit(
        log.active.fd,
        -1,
        cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(zeros)),
        len(zeros),
        offset,
        log.batch - 1,
        NO_SYNC,
        False,
    )


def wipe_images(log: CommitLog) -> None:
    """Overwrite what earlier segments left in memory."""
    log.active.wipe(log.active.end)
    if log.donor is not None:
        log.donor.wipe(0)
