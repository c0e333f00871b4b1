"""Takes out of a dictionary what stands in few messages only.

A trained dictionary is made of pieces of messages. So that none of them belongs to one message or
a few, every eight bytes of it in a row must stand in `SHARED_MIN` of the messages it was made from;
what does not is left out. The tables before the pieces are statistics and stay.
"""

import struct

import cython
from cython.cimports.cpython.bytes import PyBytes_AS_STRING
from cython.cimports.libc.stdlib import calloc, free
from cython.cimports.libc.string import memcpy

SHARED_MIN = 16
"""Messages that every piece of a dictionary stands in, at least."""
WINDOW = cython.declare(cython.Py_ssize_t, 8)
# A dictionary with less is not worth having.
PIECES_MIN = 64
MAGIC = b"\x37\xa4\x30\xec"
OFFSETS = struct.Struct("<III")


def shared_only(dictionary: bytes, samples: list[bytes]) -> bytes:
    """The dictionary with pieces alone that many samples have; b"" when that leaves too little, or
    it is not laid out as RFC 8878 (section 5) has it."""
    try:
        start = pieces_at(dictionary)
    except IndexError:
        return b""
    pieces = dictionary[start:]
    kept = shared(pieces, samples, SHARED_MIN)
    if start == 0 or len(kept) < PIECES_MIN:
        return b""
    offsets = OFFSETS.unpack_from(dictionary, start - OFFSETS.size)
    return dictionary[:start] + kept if max(offsets) <= len(kept) else b""


def pieces_at(data: bytes) -> int:
    """Where the pieces begin; 0 when it is no dictionary. Raises IndexError when it is too
    short."""
    if data[:4] != MAGIC:
        return 0
    first = data[8]
    at = 9 + (first if first < 128 else (first - 126) // 2)
    for _ in range(3):
        at += table_bytes(data, at)
    return at + OFFSETS.size


def table_bytes(data: bytes, at: int) -> int:
    """Bytes of an FSE table description (RFC 8878, section 4.1.1)."""
    bits = int.from_bytes(data[at : at + 512], "little")
    if at >= len(data):
        raise IndexError
    left = 1 << (bits & 15) + 5
    used = 4
    while left > 0:
        width = (left + 1).bit_length()
        low = (1 << width) - 2 - left
        value = bits >> used & (1 << width - 1) - 1
        if value < low:
            used += width - 1
        else:
            value = bits >> used & (1 << width) - 1
            used += width
            if value >= 1 << width - 1:
                value -= low
        left -= abs(value - 1)
        if value == 1:
            repeat = 3
            while repeat == 3:
                repeat = bits >> used & 3
                used += 2
    return (used + 7) // 8


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def bucket_of(
    keys: cython.pointer(cython.ulonglong), mask: cython.Py_ssize_t, key: cython.ulonglong
) -> cython.Py_ssize_t:
    """Where a key is in the table, or would be. 0 is the mark of a free bucket."""
    at: cython.Py_ssize_t = cython.cast(
        cython.Py_ssize_t, (key * cython.cast(cython.ulonglong, 0x9E3779B97F4A7C15)) >> 32
    )
    at &= mask
    while keys[at] != 0 and keys[at] != key:
        at = (at + 1) & mask
    return at


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def window_at(text: cython.p_const_uchar) -> cython.ulonglong:
    """Eight bytes as a number that is not 0."""
    key: cython.ulonglong
    memcpy(cython.address(key), text, 8)
    return key if key else 1


def shared(pieces: bytes, samples: list, least: cython.int) -> bytes:
    """The bytes of `pieces` that lie in a window which `least` samples have."""
    size: cython.Py_ssize_t = 64
    at: cython.Py_ssize_t
    bucket: cython.Py_ssize_t
    covered: cython.Py_ssize_t = 0
    number: cython.int = 0
    text: cython.p_const_uchar = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(pieces))
    length: cython.Py_ssize_t = len(pieces)
    kept: bytearray = bytearray()
    sample: bytes
    keys: cython.pointer(cython.ulonglong)
    counts: cython.p_int
    seen: cython.p_int
    while size < 2 * length:
        size *= 2
    keys = cython.cast(cython.pointer(cython.ulonglong), calloc(size, 8))
    counts = cython.cast(cython.p_int, calloc(size, cython.sizeof(cython.int)))
    seen = cython.cast(cython.p_int, calloc(size, cython.sizeof(cython.int)))
    try:
        if keys == cython.NULL or counts == cython.NULL or seen == cython.NULL:
            raise MemoryError
        for at in range(length - WINDOW + 1):
            bucket = bucket_of(keys, size - 1, window_at(text + at))
            keys[bucket] = window_at(text + at)
        for sample in samples:
            number += 1
            count_windows(
                cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(sample)),
                len(sample), number, keys, counts, seen, size,
            )  # fmt: skip
        for at in range(length - WINDOW + 1):
            bucket = bucket_of(keys, size - 1, window_at(text + at))
            if counts[bucket] >= least:
                kept += pieces[max(at, covered) : at + WINDOW]
                covered = at + WINDOW
    finally:
        free(keys)
        free(counts)
        free(seen)
    return bytes(kept)


@cython.cfunc
@cython.exceptval(-1, check=False)
def count_windows(
    text: cython.p_const_uchar,
    length: cython.Py_ssize_t,
    number: cython.int,
    keys: cython.pointer(cython.ulonglong),
    counts: cython.p_int,
    seen: cython.p_int,
    size: cython.Py_ssize_t,
) -> cython.int:
    """Count a sample for every window of the table that it has."""
    at: cython.Py_ssize_t
    bucket: cython.Py_ssize_t
    with cython.nogil:
        for at in range(length - WINDOW + 1):
            bucket = bucket_of(keys, size - 1, window_at(text + at))
            if keys[bucket] != 0 and seen[bucket] != number:
                seen[bucket] = number
                counts[bucket] += 1
    return 0
