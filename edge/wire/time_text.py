"""Moments as RFC 3339 text in UTC, with nanoseconds where there are any."""

import cython
from cython.cimports.cpython.bytes import PyBytes_FromStringAndSize
from cython.cimports.libc.string import memcpy

SECOND = cython.declare(cython.longlong, 1_000_000_000)
# From 0000-03-01 to 1970-01-01, and in 400 years, of the calendar that has always been Gregorian.
DAYS_BEFORE = cython.declare(cython.longlong, 719_468)
ERA_DAYS = cython.declare(cython.longlong, 146_097)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def two(out: cython.p_uchar, value: cython.int) -> cython.void:
    """Write a number below 100."""
    out[0] = cython.cast(cython.uchar, 48 + value // 10)
    out[1] = cython.cast(cython.uchar, 48 + value % 10)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def put_date(out: cython.p_uchar, days: cython.longlong) -> cython.void:
    """Write the ten characters of the day that many days after 1970-01-01.

    Years begin in March here, so that the day of a leap year is the last one. See Howard Hinnant,
    "chrono-Compatible Low-Level Date Algorithms", civil_from_days.
    """
    shifted: cython.longlong = days + DAYS_BEFORE
    era: cython.longlong = (shifted if shifted >= 0 else shifted - ERA_DAYS + 1) // ERA_DAYS
    of_era: cython.int = cython.cast(cython.int, shifted - era * ERA_DAYS)
    year_of_era: cython.int = (
        of_era - of_era // 1460 + of_era // 36524 - of_era // 146096
    ) // 365
    of_year: cython.int = of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month: cython.int = (5 * of_year + 2) // 153
    year: cython.int = year_of_era + cython.cast(cython.int, era) * 400
    day: cython.int = of_year - (153 * month + 2) // 5 + 1
    month += 3
    if month > 12:
        month -= 12
        year += 1
    two(out, year // 100)
    two(out + 2, year % 100)
    out[4] = 45
    two(out + 5, month)
    out[7] = 45
    two(out + 8, day)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def put_time(out: cython.p_uchar, ns: cython.longlong) -> cython.Py_ssize_t:
    """Write `ns` since the Unix epoch, at most TIME_CHARS; returns how many. Trailing zeros of the
    fraction are left out."""
    second: cython.longlong = ns // SECOND
    fraction: cython.longlong
    days: cython.longlong
    rest: cython.int
    size: cython.Py_ssize_t = 19
    digits: cython.Py_ssize_t = 9
    at: cython.Py_ssize_t
    if second * SECOND > ns:
        second -= 1
    fraction = ns - second * SECOND
    days = second // 86400
    if days * 86400 > second:
        days -= 1
    rest = cython.cast(cython.int, second - days * 86400)
    put_date(out, days)
    memcpy(out + 10, cython.cast(cython.p_const_char, b"T00:00:00"), 9)
    two(out + 11, rest // 3600)
    two(out + 14, rest // 60 % 60)
    two(out + 17, rest % 60)
    if fraction:
        while fraction % 10 == 0:
            fraction //= 10
            digits -= 1
        out[19] = 46
        size = 20 + digits
        for at in range(size - 1, 19, -1):
            out[at] = cython.cast(cython.uchar, 48 + fraction % 10)
            fraction //= 10
    out[size] = 90
    return size + 1


def time_text(ns: int) -> bytes:
    """`ns` since the Unix epoch, of 64 bits with a sign. Raises OverflowError."""
    out: cython.uchar[TIME_CHARS]
    size: cython.Py_ssize_t = put_time(out, ns)
    return PyBytes_FromStringAndSize(cython.cast(cython.p_char, cython.address(out[0])), size)
