"""System calls on descriptors for compiled code; those of a disk in memory go to the port.

See `headwater.edge.ports.files`. Without the GIL; it is taken for a twin only, in functions of
their own: one that takes it anywhere takes it at its end, too.
"""

import cython
from cython.cimports.libc.errno import EIO, errno
from cython.cimports.libc.string import memcpy
from cython.cimports.posix.unistd import fdatasync, pread, pwrite

from headwater.edge.ports import files

FIRST_TWIN = cython.declare(cython.int, files.FIRST_TWIN)


@cython.cfunc
@cython.with_gil
@cython.exceptval(check=False)
def read_twin(
    fd: cython.int, into: cython.p_uchar, length: cython.Py_ssize_t, offset: cython.longlong
) -> cython.Py_ssize_t:
    n: cython.Py_ssize_t
    try:
        data: bytes = files.read_at(fd, length, offset)
    except OSError as error:
        return -(error.errno or EIO)
    n = min(len(data), length)
    memcpy(into, cython.cast(cython.p_char, data), n)
    return n


@cython.cfunc
@cython.with_gil
@cython.exceptval(check=False)
def write_twin(
    fd: cython.int, data: cython.p_const_uchar, length: cython.Py_ssize_t, offset: cython.longlong
) -> cython.Py_ssize_t:
    try:
        return files.write_at(fd, cython.cast(cython.p_char, data)[:length], offset)
    except OSError as error:
        return -(error.errno or EIO)


@cython.cfunc
@cython.with_gil
@cython.exceptval(check=False)
def sync_twin(fd: cython.int) -> cython.int:
    try:
        files.sync_data(fd)
        return 0
    except OSError as error:
        return error.errno or EIO


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def read_some(
    fd: cython.int,
    into: cython.p_uchar,
    length: cython.Py_ssize_t,
    offset: cython.longlong,
) -> cython.Py_ssize_t:
    """`pread`: how much was read, or minus the errno."""
    n: cython.Py_ssize_t
    if fd >= FIRST_TWIN:
        return read_twin(fd, into, length, offset)
    n = pread(fd, into, length, offset)
    return n if n >= 0 else -(errno or EIO)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def write_some(
    fd: cython.int,
    data: cython.p_const_uchar,
    length: cython.Py_ssize_t,
    offset: cython.longlong,
) -> cython.Py_ssize_t:
    """`pwrite`: how much was written, or minus the errno."""
    n: cython.Py_ssize_t
    if fd >= FIRST_TWIN:
        return write_twin(fd, data, length, offset)
    n = pwrite(fd, data, length, offset)
    return n if n >= 0 else -(errno or EIO)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def sync_file(fd: cython.int) -> cython.int:
    """`fdatasync`: 0, or the errno."""
    if fd >= FIRST_TWIN:
        return sync_twin(fd)
    return 0 if fdatasync(fd) == 0 else errno or EIO


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def begin_writing(
    fd: cython.int, offset: cython.longlong, length: cython.longlong
) -> cython.void:
    """Have the device begin with a part of what was written to a file (length 0: to its end),
    without waiting for it; a sync has to follow, and tells of errors."""
    if fd < FIRST_TWIN:
        sync_file_range(fd, offset, length, SYNC_FILE_RANGE_WRITE)


def start_writing(fd: int) -> None:
    """`begin_writing` of a whole file."""
    begin_writing(fd, 0, 0)
