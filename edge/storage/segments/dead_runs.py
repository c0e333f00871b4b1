"""Which records of removals a segment must go on holding.

A removal needs to be known only as long as some other file still has the record of the message.
"""

import cython
from cython.cimports.cpython.bytes import (
    PyBytes_AS_STRING,
    PyBytes_FromStringAndSize,
    PyBytes_GET_SIZE,
)
from cython.cimports.libc.stdlib import free, malloc, qsort
from cython.cimports.libc.string import memcpy


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def by_first(a: cython.p_const_void, b: cython.p_const_void) -> cython.int:
    x: cython.ulonglong = cython.cast(cython.pointer(Span), a).first
    y: cython.ulonglong = cython.cast(cython.pointer(Span), b).first
    return (x > y) - (x < y)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def unite(spans: cython.pointer(Span), count: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Sort and join what touches; returns how many are left."""
    kept: cython.Py_ssize_t = 0
    i: cython.Py_ssize_t
    qsort(spans, count, cython.sizeof(Span), by_first)
    for i in range(count):
        if kept and spans[i].first <= spans[kept - 1].last + 1:
            if spans[i].last > spans[kept - 1].last:
                spans[kept - 1].last = spans[i].last
        else:
            spans[kept] = spans[i]
            kept += 1
    return kept


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def cut(
    runs: cython.pointer(Span),
    run_count: cython.Py_ssize_t,
    wanted: cython.pointer(Span),
    wanted_count: cython.Py_ssize_t,
    out: cython.pointer(Span),
) -> cython.Py_ssize_t:
    """The parts of `runs` that lie in `wanted`; returns how many. At most their sum."""
    i: cython.Py_ssize_t = 0
    j: cython.Py_ssize_t = 0
    count: cython.Py_ssize_t = 0
    while i < run_count and j < wanted_count:
        if runs[i].last < wanted[j].first:
            i += 1
        elif wanted[j].last < runs[i].first:
            j += 1
        else:
            out[count].first = max(runs[i].first, wanted[j].first)
            out[count].last = min(runs[i].last, wanted[j].last)
            count += 1
            if runs[i].last <= wanted[j].last:
                i += 1
            else:
                j += 1
    return count


def needed_runs(runs: bytes, wanted: bytes) -> bytes:
    """Both are packed (u64 first, u64 last); those parts of `runs` that lie in some `wanted`,
    sorted and joined."""
    a: cython.Py_ssize_t = PyBytes_GET_SIZE(runs) // cython.sizeof(Span)
    b: cython.Py_ssize_t = PyBytes_GET_SIZE(wanted) // cython.sizeof(Span)
    count: cython.Py_ssize_t
    room: cython.pointer(Span)
    if a == 0 or b == 0:
        return b""
    room = cython.cast(cython.pointer(Span), malloc(2 * (a + b) * cython.sizeof(Span)))
    if room == cython.NULL:
        raise MemoryError
    try:
        memcpy(room, PyBytes_AS_STRING(runs), a * cython.sizeof(Span))
        memcpy(room + a, PyBytes_AS_STRING(wanted), b * cython.sizeof(Span))
        with cython.nogil:
            count = cut(room, unite(room, a), room + a, unite(room + a, b), room + a + b)
        return PyBytes_FromStringAndSize(
            cython.cast(cython.p_char, room + a + b), count * cython.sizeof(Span)
        )
    finally:
        free(room)
