"""A fast seeded hash of short texts, for tables in compiled code."""

import cython
from cython.cimports.cpython.bytes import PyBytes_AS_STRING
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
    end: cython.p_const_uchar = text + n
    if n >= 8:
        while end - text > 8:
            memcpy(cython.address(word), text, 8)
            h = (h ^ word) * MULTIPLIER
            h ^= h >> 29
            text += 8
        # The last eight bytes may overlap those before: a copy of a known size is one load.
        memcpy(cython.address(word), end - 8, 8)
        h = (h ^ word) * MULTIPLIER
    elif n:
        word = 0
        memcpy(cython.address(word), text, n)
        h = (h ^ word) * MULTIPLIER
    # A difference in the last bytes of a word is only in high bits so far: bring it everywhere.
    h = (h ^ (h >> 32)) * MULTIPLIER
    return cython.cast(cython.uint, h >> 32)


def spread(seed: int, texts: list[bytes], mask: int) -> int:
    """How many different places texts get in a table of `mask` + 1 places."""
    text: bytes
    return len(
        {
            hash_text(seed, cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(text)), len(text))
            & mask
            for text in texts
        }
    )
