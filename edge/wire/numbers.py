"""Decimal numbers on the wire, without Python objects."""

import cython
from cython.cimports.libc.string import memcpy

# Nine digits hold any size that a connection may announce (max_payload is at most 64 MiB).
SIZE_DIGITS_MAX = cython.declare(cython.Py_ssize_t, 9)

# All numbers of two digits, one after the other.
PAIRS = cython.declare(
    cython.p_const_char,
    b"00010203040506070809101112131415161718192021222324252627282930313233343536373839"
    b"40414243444546474849505152535455565758596061626364656667686970717273747576777879"
    b"8081828384858687888990919293949596979899",
)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def put_number(out: cython.p_uchar, value: cython.ulonglong) -> cython.Py_ssize_t:
    """Write `value` in decimal at `out` (room for 20 bytes); returns the bytes written."""
    text: cython.uchar[20]
    i: cython.Py_ssize_t = 20
    rest: cython.ulonglong
    # Most numbers are sizes of small messages.
    if value < 10:
        out[0] = cython.cast(cython.uchar, 48 + value)
        return 1
    if value < 100:
        memcpy(out, PAIRS + 2 * value, 2)
        return 2
    while value >= 100:
        rest = value // 100
        i -= 2
        memcpy(cython.address(text[i]), PAIRS + 2 * (value - rest * 100), 2)
        value = rest
    i -= 2
    memcpy(cython.address(text[i]), PAIRS + 2 * value, 2)
    if value < 10:
        i += 1
    memcpy(out, cython.address(text[i]), 20 - i)
    return 20 - i


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def parse_size(text: cython.p_const_uchar, n: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """The size written in `n` bytes of text; -1 when it is empty, too long or not a number."""
    value: cython.Py_ssize_t = 0
    i: cython.Py_ssize_t
    if n < 1 or n > SIZE_DIGITS_MAX:
        return -1
    for i in range(n):
        if text[i] < 48 or text[i] > 57:
            return -1
        value = value * 10 + (text[i] - 48)
    return value


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def parse_number(text: cython.p_const_uchar, n: cython.Py_ssize_t) -> cython.longlong:
    """The number written in up to 19 digits; -1 when empty, 9e18 or more, or not a number."""
    value: cython.longlong = 0
    i: cython.Py_ssize_t
    if n < 1 or n > 19 or (n == 19 and text[0] > 56):
        return -1
    for i in range(n):
        if text[i] < 48 or text[i] > 57:
            return -1
        value = value * 10 + (text[i] - 48)
    return value
