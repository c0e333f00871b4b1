"""The words of a message line between servers, without Python objects."""

import cython
from cython.cimports.libc.string import memchr

# Arguments of one message line: a queue group each, beyond account, subject and sizes.
ARGS_MAX = cython.declare(cython.int, 512)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def is_printed(line: cython.p_const_uchar, n: cython.Py_ssize_t) -> cython.bint:
    """Whether no byte is a control byte. It looks at all, which the compiler does 16 at a time."""
    control: cython.uchar = 0
    i: cython.Py_ssize_t
    for i in range(n):
        control |= (line[i] < 32) | (line[i] == 127)
    return control == 0


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def word_end(
    line: cython.p_const_uchar, i: cython.Py_ssize_t, n: cython.Py_ssize_t, printed: cython.bint
) -> cython.Py_ssize_t:
    """Where the word at `i` ends. A control byte ends it, and stands where the next one should
    begin."""
    if printed:
        blank: cython.p_const_uchar = cython.cast(
            cython.p_const_uchar, memchr(line + i, 32, n - i)
        )
        return n if blank == cython.NULL else blank - line
    while i < n and line[i] > 32 and line[i] != 127:
        i += 1
    return i


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def arguments(
    line: cython.p_const_uchar,
    n: cython.Py_ssize_t,
    starts: cython.pointer(cython.Py_ssize_t),
    ends: cython.pointer(cython.Py_ssize_t),
) -> cython.int:
    """Where the arguments of a message line begin and end; returns how many, -1 for too many."""
    count: cython.int = 0
    i: cython.Py_ssize_t = 5
    printed: cython.bint = n > 5 and is_printed(line + 5, n - 5)
    while i < n:
        while i < n and (line[i] == 32 or line[i] == 9):
            i += 1
        if i == n:
            break
        if count == ARGS_MAX:
            return -1
        starts[count] = i
        i = word_end(line, i, n, printed)
        ends[count] = i
        count += 1
    return count
