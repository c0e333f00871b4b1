"""A fast seeded hash of short texts, for tables in compiled code."""

import cython
from cython.cimports.libc.string import memcpy

MULTIPLIER = cython.declare(cython.ulonglong, 0x9E3779B97F4A7C15)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def hash_text(
    seed: cython.ulonglong, text: cython.p_const_uchar, n: cython.Py_ssize_t
) -> cython.uint:
    """Seeded multiply-mix over eight bytes at a time; not for untrusted sizes beyond a subject."""
    h: cython.ulonglong = seed ^ (cython.cast(cython.ulonglong, n) * MULTIPLIER)
    word: cython.ulonglong
    while n >= 8:
        memcpy(cython.address(word), text, 8)
        h = (h ^ word) * MULTIPLIER
        h ^= h >> 29
        text += 8
        n -= 8
    if n:
        word = 0
        memcpy(cython.address(word), text, n)
        h = (h ^ word) * MULTIPLIER
    h ^= h >> 32
    return cython.cast(cython.uint, h)
