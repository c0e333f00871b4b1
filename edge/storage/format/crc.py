"""CRC-32C (Castagnoli, reflected 0x82F63B78; RFC 3720 appendix B.4).

By the processor's instruction where there is one, else by eight tables (slicing-by-8), which is
about one byte per cycle. A checksum goes on from another: `crc32c(crc32c(0, a), b)` is that of
`a` followed by `b`.
"""

import cython
from cython.cimports.cpython.buffer import (
    Py_buffer,
    PyBUF_SIMPLE,
    PyBuffer_Release,
    PyObject_GetBuffer,
)
from cython.cimports.cpython.bytes import PyBytes_AS_STRING
from cython.cimports.headwater.edge.storage.format.crc_hardware import (
    headwater_crc,
    headwater_crc_supported,
)
from cython.cimports.libc.string import memcpy

POLYNOMIAL = 0x82F63B78

supported = cython.declare(cython.bint, headwater_crc_supported())


def fill_tables() -> None:
    """Table k holds what a byte contributes when k further bytes follow it."""
    n: cython.uint
    k: cython.int
    c: cython.uint
    for n in range(256):
        c = n
        for _ in range(8):
            c = (c >> 1) ^ (POLYNOMIAL if c & 1 else 0)
        table[0][n] = c
    for n in range(256):
        for k in range(1, 8):
            table[k][n] = (table[k - 1][n] >> 8) ^ table[0][table[k - 1][n] & 255]


fill_tables()


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def crc32c_tables(
    crc: cython.uint, data: cython.p_const_uchar, n: cython.Py_ssize_t
) -> cython.uint:
    """The checksum without the instruction."""
    low: cython.uint
    high: cython.uint
    crc = ~crc
    while n >= 8:
        memcpy(cython.address(low), data, 4)
        memcpy(cython.address(high), data + 4, 4)
        low ^= crc
        crc = (
            table[7][low & 255]
            ^ table[6][(low >> 8) & 255]
            ^ table[5][(low >> 16) & 255]
            ^ table[4][low >> 24]
            ^ table[3][high & 255]
            ^ table[2][(high >> 8) & 255]
            ^ table[1][(high >> 16) & 255]
            ^ table[0][high >> 24]
        )
        data += 8
        n -= 8
    while n:
        crc = (crc >> 8) ^ table[0][(crc ^ data[0]) & 255]
        data += 1
        n -= 1
    return ~crc


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def crc32c(crc: cython.uint, data: cython.p_const_uchar, n: cython.Py_ssize_t) -> cython.uint:
    """The checksum of `n` bytes, going on from `crc` (0 to begin)."""
    if supported:
        return ~headwater_crc(~crc, data, n)
    return crc32c_tables(crc, data, n)


def checksum(data: bytes, crc: int = 0, cut: int = 0) -> int:
    """`crc32c` for interpreted callers; of everything but the last `cut` bytes."""
    size: cython.Py_ssize_t = len(data) - cut
    if size < 0:
        raise ValueError("there are fewer bytes than are to be left out")
    return crc32c(crc, cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(data)), size)


def checksum_parts(parts: list, crc: int = 0) -> int:
    """`checksum` of what lies in several buffers, of which there are few."""
    view: Py_buffer
    so_far: cython.uint = crc
    for part in parts:
        PyObject_GetBuffer(part, cython.address(view), PyBUF_SIMPLE)
        so_far = crc32c(so_far, cython.cast(cython.p_const_uchar, view.buf), view.len)
        PyBuffer_Release(cython.address(view))
    return so_far


def checksum_by_tables(data: bytes, crc: int = 0) -> int:
    """`crc32c_tables` for tests."""
    return crc32c_tables(
        crc, cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(data)), len(data)
    )
