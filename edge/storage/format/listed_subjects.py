"""The subjects that an index file lists, as they lie in it: number and length (u32 each), then the
text. A start reads a thousand of them for each segment."""

import cython
from cython.cimports.cpython.bytes import (
    PyBytes_AS_STRING,
    PyBytes_FromStringAndSize,
    PyBytes_GET_SIZE,
)
from cython.cimports.libc.string import memcpy


def listed_subjects(data: bytes, at: cython.Py_ssize_t, count: cython.Py_ssize_t) -> tuple:
    """[(number, subject)] of `count` subjects from `at` on, and where they end. Raises ValueError
    when there are not so many."""
    text: cython.p_const_char = PyBytes_AS_STRING(data)
    size: cython.Py_ssize_t = PyBytes_GET_SIZE(data)
    found: list = []
    number: cython.uint = 0
    length: cython.uint = 0
    _: cython.Py_ssize_t
    for _ in range(count):
        if size - at < 8:
            raise ValueError("an index ends within its subjects")
        memcpy(cython.address(number), text + at, 4)
        memcpy(cython.address(length), text + at + 4, 4)
        at += 8
        if size - at < length:
            raise ValueError("an index ends within a subject")
        found.append((number, PyBytes_FromStringAndSize(text + at, length)))
        at += length
    return found, at
