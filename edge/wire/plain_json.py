"""Whether a JSON text is so plain that it needs no second look: most bodies of requests are."""

import cython
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_GET_SIZE
from cython.cimports.libc.string import memcmp

NAMES = cython.declare(cython.int, 64)
# So many digits are a number that 64 bits may not hold.
DIGITS = cython.declare(cython.int, 18)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def is_of_time(name: cython.p_const_char, size: cython.Py_ssize_t) -> cython.bint:
    """Whether the value of a name may be a time: `..._time`, `..._until`."""
    return (size >= 5 and memcmp(name + size - 5, b"_time", 5) == 0) or (
        size >= 6 and memcmp(name + size - 6, b"_until", 6) == 0
    )


def is_plain(text: bytes) -> bool:
    """Whether a JSON text has no escapes, no `null`, no long number, no name of a time and no name
    twice, also not in different objects. Of a text that is no JSON it says anything."""
    at: cython.p_const_char = PyBytes_AS_STRING(text)
    size: cython.Py_ssize_t = PyBytes_GET_SIZE(text)
    starts: cython.Py_ssize_t[64]
    sizes: cython.Py_ssize_t[64]
    names: cython.int = 0
    digits: cython.int = 0
    i: cython.Py_ssize_t = 0
    begin: cython.Py_ssize_t
    n: cython.Py_ssize_t
    j: cython.int
    c: cython.uchar
    while i < size:
        c = cython.cast(cython.uchar, at[i])
        i += 1
        if c == 34:
            begin = i
            while i < size and at[i] != 34:
                if at[i] == 92:
                    return False
                i += 1
            n = i - begin
            i += 1
            while i < size and (at[i] == 32 or at[i] == 9 or at[i] == 10 or at[i] == 13):
                i += 1
            if i < size and at[i] == 58:
                if names == NAMES or is_of_time(at + begin, n):
                    return False
                for j in range(names):
                    if sizes[j] == n and memcmp(at + starts[j], at + begin, n) == 0:
                        return False
                starts[names] = begin
                sizes[names] = n
                names += 1
            digits = 0
        elif 48 <= c <= 57:
            digits += 1
            if digits >= DIGITS:
                return False
        else:
            digits = 0
            if c == 110:
                return False
    return True
