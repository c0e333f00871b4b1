"""Small numbers as planes of bits: where one stands is found without reading the others.

`PLANE_NUMBERS` numbers of `width` bits lie as words of 64 bits: for each 64 numbers, a word of
their lowest bits, then one of the next bits, and so on. So 64 numbers are compared with one by
`width` operations.
"""

import cython

# Of eight rows of eight bits: what changes places within pairs of rows and columns, within fours
# and within all eight.
PAIRS = cython.declare(cython.ulonglong, 0x00AA00AA00AA00AA)
FOURS = cython.declare(cython.ulonglong, 0x0000CCCC0000CCCC)
EIGHTS = cython.declare(cython.ulonglong, 0x00000000F0F0F0F0)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def put_number(
    planes: cython.pointer(cython.ulonglong),
    width: cython.int,
    i: cython.int,
    number: cython.ulonglong,
) -> cython.int:
    """Write number `i`, where nothing was written before."""
    word: cython.pointer(cython.ulonglong) = planes + (i >> 6) * width
    plane: cython.int
    for plane in range(width):
        word[plane] |= ((number >> plane) & 1) << (i & 63)
    return 0


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def number_at(
    planes: cython.pointer(cython.const[cython.ulonglong]), width: cython.int, i: cython.int
) -> cython.uint:
    """Number `i`."""
    word: cython.pointer(cython.const[cython.ulonglong]) = planes + (i >> 6) * width
    number: cython.uint = 0
    plane: cython.int
    for plane in range(width):
        number |= cython.cast(cython.uint, (word[plane] >> (i & 63)) & 1) << plane
    return number


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def equal_bits(
    planes: cython.pointer(cython.const[cython.ulonglong]),
    width: cython.int,
    word: cython.int,
    number: cython.uint,
) -> cython.ulonglong:
    """A bit for each of the 64 numbers of a word: whether it is `number`, which fits `width`."""
    at: cython.pointer(cython.const[cython.ulonglong]) = planes + word * width
    differs: cython.ulonglong = 0
    plane: cython.int
    for plane in range(width):
        differs |= at[plane] ^ (
            cython.cast(cython.ulonglong, 0) - ((number >> plane) & 1)
        )
    return ~differs


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def turned(rows: cython.ulonglong) -> cython.ulonglong:
    """Bit `c` of byte `r` as bit `r` of byte `c`."""
    swap: cython.ulonglong = (rows ^ (rows >> 7)) & PAIRS
    rows ^= swap ^ (swap << 7)
    swap = (rows ^ (rows >> 14)) & FOURS
    rows ^= swap ^ (swap << 14)
    swap = (rows ^ (rows >> 28)) & EIGHTS
    return rows ^ swap ^ (swap << 28)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def all_numbers(
    planes: cython.pointer(cython.const[cython.ulonglong]),
    width: cython.int,
    least: cython.uint,
    out: cython.p_uint,
) -> cython.int:
    """All numbers, each with `least` added."""
    at: cython.pointer(cython.const[cython.ulonglong])
    rows: cython.ulonglong
    plane: cython.int
    low: cython.int
    eight: cython.int
    k: cython.int
    for k in range(PLANE_NUMBERS):
        out[k] = least
    for eight in range(0, PLANE_NUMBERS, 8):
        at = planes + (eight >> 6) * width
        for low in range(0, width, 8):
            rows = 0
            for plane in range(low, min(low + 8, width)):
                rows |= ((at[plane] >> (eight & 63)) & 0xFF) << (8 * (plane - low))
            rows = turned(rows)
            for k in range(8):
                out[eight + k] += cython.cast(cython.uint, (rows >> (8 * k)) & 0xFF) << low
    return 0
