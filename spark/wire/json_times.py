"""Times and dates as RFC 3339 writes them; what is written in another way is left to the caller."""

import cython
from cython.cimports.libc.stdint import int32_t, int64_t

# Days from 1 March of the year 0 to 1 January 1970, and in 400 years.
_EPOCH = cython.declare(int64_t, 719468)
_ERA = cython.declare(int64_t, 146097)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _digits(text: cython.p_const_char, count: cython.Py_ssize_t) -> cython.int:
    """So many decimal digits, at most 6; -1 when they are none."""
    value: cython.int = 0
    i: cython.Py_ssize_t
    for i in range(count):
        if text[i] < 48 or text[i] > 57:
            return -1
        value = value * 10 + (text[i] - 48)
    return value


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _days_of(year: int64_t, month: int64_t, day: int64_t) -> int64_t:
    """Days since 1970 in the Gregorian calendar; years begin in March, so that a leap day is last.

    Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms", days_from_civil.
    """
    if month <= 2:
        year -= 1
        month += 12
    era: int64_t = year // 400
    of_era: int64_t = year - era * 400
    of_year: int64_t = (153 * (month - 3) + 2) // 5 + day - 1
    return era * _ERA + of_era * 365 + of_era // 4 - of_era // 100 + of_year - _EPOCH


@cython.cfunc
@cython.exceptval(check=False)
def read_date(
    text: cython.p_const_char, size: cython.Py_ssize_t, days: cython.pointer(int32_t)
) -> cython.bint:
    """`2026-11-25` as days since 1970; false for anything else."""
    if size != 10 or text[4] != 45 or text[7] != 45:
        return False
    year: cython.int = _digits(text, 4)
    month: cython.int = _digits(text + 5, 2)
    day: cython.int = _digits(text + 8, 2)
    if year < 1 or month < 1 or month > 12 or day < 1 or day > 31:
        return False
    if day > 30 and (month == 4 or month == 6 or month == 9 or month == 11):
        return False
    if month == 2:
        leap: cython.bint = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
        if day > 29 or (day == 29 and not leap):
            return False
    days[0] = cython.cast(int32_t, _days_of(year, month, day))
    return True


@cython.cfunc
@cython.exceptval(check=False)
def read_time(
    text: cython.p_const_char, size: cython.Py_ssize_t, micros: cython.pointer(int64_t)
) -> cython.bint:
    """`2026-11-25T15:36:05.123456+01:00` as microseconds since 1970; false for anything else.

    There may be a fraction, which is rounded by its seventh digit, and `Z` or nothing for UTC.
    """
    days: int32_t = 0
    if size < 19 or text[10] != 84 or text[13] != 58 or text[16] != 58:
        return False
    if not read_date(text, 10, cython.address(days)):
        return False
    hour: cython.int = _digits(text + 11, 2)
    minute: cython.int = _digits(text + 14, 2)
    second: cython.int = _digits(text + 17, 2)
    if hour < 0 or hour > 23 or minute < 0 or minute > 59 or second < 0 or second > 59:
        return False
    at: cython.Py_ssize_t = 19
    fraction: int64_t = 0
    places: cython.int = 0
    if at < size and text[at] == 46:
        at += 1
        while at < size and 48 <= text[at] <= 57:
            if places < 6:
                fraction = fraction * 10 + (text[at] - 48)
            elif places == 6 and text[at] >= 53:
                fraction += 1
            places += 1
            at += 1
        if places == 0:
            return False
        while places < 6:
            fraction *= 10
            places += 1
    offset: cython.int = 0
    if size - at == 6 and (text[at] == 43 or text[at] == 45) and text[at + 3] == 58:
        hours: cython.int = _digits(text + at + 1, 2)
        minutes: cython.int = _digits(text + at + 4, 2)
        if hours < 0 or hours > 23 or minutes < 0 or minutes > 59:
            return False
        offset = (hours * 60 + minutes) * (-1 if text[at] == 45 else 1)
    elif not (size == at or (size - at == 1 and text[at] == 90)):
        return False
    # Years at whose ends a zone, or rounding, leads out of the calendar are left to the caller.
    if (offset or places > 6) and (_digits(text, 4) < 2 or _digits(text, 4) > 9998):
        return False
    second += (hour * 60 + minute - offset) * 60
    micros[0] = (cython.cast(int64_t, days) * 86400 + second) * 1000000 + fraction
    return True
