"""Subject grammar: tokens between dots, `*` for one token, `>` for the rest.

A token is a run of bytes without dot, space or control byte. A wildcard counts only as a whole
token, and `>` only as the last one (NATS protocol, "Subject names"). What stands in a frame is
*clean*: one word, so that nothing in it can end the line and begin another frame.
"""

import cython
from cython.cimports.headwater.edge.subjects.word_scan import is_clean

DOT = cython.declare(cython.uchar, 46)
STAR = cython.declare(cython.uchar, 42)
TAIL = cython.declare(cython.uchar, 62)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def subject_matches(
    pattern: cython.p_const_uchar,
    np: cython.Py_ssize_t,
    subject: cython.p_const_uchar,
    ns: cython.Py_ssize_t,
) -> cython.bint:
    """Whether `subject` (taken literally) is matched by `pattern`, which may hold wildcards."""
    i: cython.Py_ssize_t = 0
    k: cython.Py_ssize_t = 0
    while i < np:
        if pattern[i] == TAIL and i + 1 == np:
            return k < ns
        if pattern[i] == STAR and (i + 1 == np or pattern[i + 1] == DOT):
            if k >= ns or subject[k] == DOT:
                return False
            while k < ns and subject[k] != DOT:
                k += 1
            i += 1
        else:
            while i < np and pattern[i] != DOT:
                if k >= ns or subject[k] != pattern[i]:
                    return False
                i += 1
                k += 1
        if i == np:
            return k == ns
        if k >= ns or subject[k] != DOT:
            return False
        i += 1
        k += 1
    return k == ns


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def is_literal(subject: cython.p_const_uchar, n: cython.Py_ssize_t) -> cython.bint:
    """Whether no token of `subject` is a wildcard."""
    i: cython.Py_ssize_t
    for i in range(n):
        if (
            (subject[i] == STAR or subject[i] == TAIL)
            and (i == 0 or subject[i - 1] == DOT)
            and (i + 1 == n or subject[i + 1] == DOT)
        ):
            return False
    return True


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def is_valid(subject: cython.p_const_uchar, n: cython.Py_ssize_t) -> cython.bint:
    """Whether every token is non-empty, the whole clean, and `>` stands only at the end."""
    i: cython.Py_ssize_t
    start: cython.Py_ssize_t = 0
    if n == 0 or not is_clean(subject, n):
        return False
    for i in range(n):
        if subject[i] == DOT:
            if i == start or (i == start + 1 and subject[start] == TAIL):
                return False
            start = i + 1
    return start < n


def matches(pattern: bytes, subject: bytes) -> bool:
    """`subject_matches` for interpreted callers."""
    return subject_matches(pattern, len(pattern), subject, len(subject))


def valid_subject(subject: bytes) -> bool:
    """Whether `subject` is well formed; wildcards are allowed."""
    return is_valid(subject, len(subject))


def clean_word(text: bytes) -> bool:
    """Whether `text` is one word that may stand in a frame."""
    return len(text) > 0 and is_clean(text, len(text))


def literal_subject(subject: bytes) -> bool:
    """Whether `subject` is well formed and holds no wildcard token."""
    return is_valid(subject, len(subject)) and is_literal(subject, len(subject))


def overlap(a: bytes, b: bytes) -> bool:
    """Whether some subject is matched by both patterns."""
    left = a.split(b".")
    right = b.split(b".")
    for i in range(max(len(left), len(right))):
        if i >= len(left) or i >= len(right):
            return False
        x = left[i]
        y = right[i]
        if x == b">" or y == b">":
            return True
        if x != y and x != b"*" and y != b"*":
            return False
    return True


def covers(outer: bytes, inner: bytes) -> bool:
    """Whether every subject matched by `inner` is matched by `outer`."""
    left = outer.split(b".")
    right = inner.split(b".")
    for i in range(len(left)):
        if left[i] == b">":
            return i < len(right)
        if i >= len(right) or right[i] == b">":
            return False
        if left[i] != b"*" and left[i] != right[i]:
            return False
    return len(left) == len(right)
