"""Decimal numbers on the wire, without Python objects."""

import cython
from cython.cimports.libc.string import memcpy

# Nine digits hold any size that a connection may announce (max_payload is at most 64 MiB).
SIZE_DIGITS_MAX = cython.declare(cython.Py_ssize_t, 9)

INT64_MAX = cython.declare(cython.ulonglong, 2**63 - 1)

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
def put_kept(
    out: cython.p_uchar, kept: cython.pointer(NumberText), value: cython.ulonglong
) -> cython.Py_ssize_t:
    """As `put_number`, where `value` is often one more or less than the last one, or the same.

    It writes 20 bytes always. A `kept` of zeros has no digits yet.
    """
    last: cython.uchar = kept.text[19]
    digits: cython.uchar[20]
    n: cython.Py_ssize_t
    if value and value - 1 == kept.value and 48 <= last < 57:
        last += 1
    elif value + 1 == kept.value and last > 48:
        last -= 1
    elif value != kept.value or last == 0:
        n = put_number(digits, value)
        kept.start = 20 - n
        memcpy(cython.address(kept.text[20 - n]), digits, n)
        last = kept.text[19]
    kept.value = value
    # As many always: that is two moves, and no call. The digit that changes is written behind
    # them: a processor that reads 16 bytes waits until the one written last is in its cache.
    memcpy(out, cython.address(kept.text[kept.start]), 20)
    out[19 - kept.start] = last
    kept.text[19] = last
    return 20 - kept.start


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def put_moment(
    out: cython.p_uchar, seconds: cython.pointer(NumberText), ns: cython.ulonglong
) -> cython.Py_ssize_t:
    """As `put_number`, for moments that are often of one second; it may write 29 bytes."""
    whole: cython.ulonglong = ns // 1_000_000_000
    rest: cython.uint = cython.cast(cython.uint, ns - whole * 1_000_000_000)
    # Two numbers that the processor takes apart at the same time.
    high: cython.uint = rest // 100_000
    low: cython.uint = rest - high * 100_000
    n: cython.Py_ssize_t
    if whole == 0:
        return put_number(out, ns)
    n = put_kept(out, seconds, whole)
    memcpy(out + n, PAIRS + 2 * (high // 100), 2)
    memcpy(out + n + 2, PAIRS + 2 * (high % 100), 2)
    memcpy(out + n + 4, PAIRS + 2 * (low // 1000), 2)
    memcpy(out + n + 6, PAIRS + 2 * (low // 10 % 100), 2)
    out[n + 8] = cython.cast(cython.uchar, 48 + low % 10)
    return n + 9


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
    """The number written in up to 19 digits; -1 when empty, 2^63 or more, or not a number."""
    value: cython.ulonglong = 0
    i: cython.Py_ssize_t
    if n < 1 or n > 19:
        return -1
    for i in range(n):
        if text[i] < 48 or text[i] > 57:
            return -1
        value = value * 10 + (text[i] - 48)
    return cython.cast(cython.longlong, value) if value <= INT64_MAX else -1
