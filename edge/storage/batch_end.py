"""How a batch of the log ends: with its footer, twice, and with second copies of states in the next
page of the file."""

import logging
import struct

import cython
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_GET_SIZE
from cython.cimports.headwater.edge.storage.batch_runs import BatchRuns
from cython.cimports.headwater.edge.storage.commit_log import CommitLog
from cython.cimports.headwater.edge.storage.commit_thread import BLOCK_BYTES
from cython.cimports.headwater.edge.storage.record import (
    FILE_HEADER_BYTES,
    FLAG_COPY,
    HEADER_BYTES,
    KIND_FOOTER,
    RecordHeader,
    record_size,
)
from cython.cimports.libc.string import memcpy, memset

from headwater.edge.storage.errors import StoreError

# Begin of a footer's body: batch number, offset of the batch's first record, records.
FOOTER = struct.Struct("<QII")
FOOTER_BYTES = cython.declare(cython.Py_ssize_t, 16)
RUN_BYTES = cython.declare(cython.Py_ssize_t, 24)
# Damage that comes as a whole page does not reach across this.
PAGE_BYTES = cython.declare(cython.Py_ssize_t, 4096)
# Where that is less than this part of a log segment. (Smaller ones are for tests.)
PAGES_MIN = cython.declare(cython.Py_ssize_t, 8)

log = logging.getLogger("headwater.storage")


def write_footers(owner: CommitLog, flags: cython.int, align: cython.Py_ssize_t) -> None:
    """End the batch with its account, and a copy of it with zeros up to the next multiple of
    `align`; room for all of it was reserved."""
    write_footer(owner, flags, BLOCK_BYTES)
    write_footer(owner, flags | FLAG_COPY, align)


@cython.cfunc
@cython.exceptval(-1, check=False)
def write_footer(owner: CommitLog, flags: cython.int, align: cython.Py_ssize_t) -> cython.int:
    runs: BatchRuns = owner.runs
    at: cython.p_uchar = owner.active.image + owner.active.end
    header: cython.pointer(RecordHeader) = cython.cast(cython.pointer(RecordHeader), at)
    size: cython.Py_ssize_t = runs.count * RUN_BYTES
    length: cython.Py_ssize_t = FOOTER_BYTES + size
    filling: cython.Py_ssize_t = 0
    begin: bytes = FOOTER.pack(
        owner.batch, max(owner.batch_start, FILE_HEADER_BYTES), owner.batch_records
    )
    header.kind = KIND_FOOTER
    header.flags = cython.cast(cython.ushort, flags)
    header.subject_len = cython.cast(cython.uint, length)
    header.header_len = 0
    header.sequence = owner.batch
    header.timestamp = owner.kernel.now_ns
    header.stream = owner.thread.newest_synced()
    memcpy(at + HEADER_BYTES, PyBytes_AS_STRING(begin), FOOTER_BYTES)
    if size:
        memcpy(at + HEADER_BYTES + FOOTER_BYTES, runs.rows, size)
    if flags & FLAG_COPY:
        filling = -(owner.active.end + record_size(length)) & (align - 1)
        memset(at + HEADER_BYTES + length, 0, filling)
    owner.finish(at, length + filling)
    owner.batch_records -= 1
    return 0


def write_copies(owner: CommitLog) -> None:
    """Write what the batch has put once so far a second time, behind its footers and in another
    page; what is synced together with the batch is a batch of its own. Ends the first one."""
    rows: list = owner.again.take()
    delay_ns: cython.longlong = owner.batch_delay_ns
    footers: cython.Py_ssize_t = 2 * record_size(FOOTER_BYTES + RUN_BYTES * owner.runs.count)
    page: cython.Py_ssize_t = PAGE_BYTES
    need: cython.Py_ssize_t
    while page * PAGES_MIN > owner.segment_bytes:
        page //= 2
    need = page + BLOCK_BYTES + 2 * record_size(FOOTER_BYTES + RUN_BYTES)
    for _, _, first, second, rest in rows:
        need += record_size(
            PyBytes_GET_SIZE(first) + PyBytes_GET_SIZE(second) + PyBytes_GET_SIZE(rest)
        )
    if ((owner.again.end + page - 1) & ~(page - 1)) <= owner.active.end + footers:
        page = BLOCK_BYTES
    if page >= BLOCK_BYTES and owner.active.end + footers + need <= owner.active.capacity:
        owner.hold_batch(page)
    elif page >= BLOCK_BYTES:
        owner.close_batch(False)
        try:
            owner.roll(min(need, owner.segment_bytes - FILE_HEADER_BYTES), False)
        except StoreError as error:
            log.debug("no second copies of states: %s", error)
            return
    try:
        for kind, stream, first, second, rest in rows:
            owner.write_record(kind, stream, 0, first, second, rest, delay_ns)
    except StoreError as error:
        log.debug("not all second copies of states are written: %s", error)
