"""Decimal numbers on the wire, without Python objects."""

import cython

# Nine digits hold any size that a connection may announce (max_payload is at most 64 MiB).
SIZE_DIGITS_MAX = cython.declare(cython.Py_ssize_t, 9)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def put_number(out: cython.p_uchar, value: cython.ulonglong) -> cython.Py_ssize_t:
    """Write `value` in decimal at `out` (room for 20 bytes); returns the bytes written."""
    text: cython.uchar[20]
    i: cython.Py_ssize_t = 0
    k: cython.Py_ssize_t
    while True:
        text[i] = cython.cast(cython.uchar, 48 + value % 10)
        value //= 10
        i += 1
        if value == 0:
            break
    for k in range(i):
        out[k] = text[i - 1 - k]
    return i


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
