"""What may pass a leaf link in one direction: an allow list and a deny list of subjects.

Links have few rules, so they are simply tried one after the other; most differ from a subject in
their first bytes.
"""

from collections.abc import Iterable

import cython
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_GET_SIZE
from cython.cimports.headwater.edge.subjects.tokens import subject_matches

from headwater.edge.subjects.tokens import covers, literal_subject, overlap

# Interest in acknowledgements and answers of imported services passes any rule.
EXEMPT = (b"$JS.ACK.", b"_R_.")


@cython.cfunc
@cython.exceptval(-1, check=False)
def any_matches(
    patterns: tuple, subject: cython.p_const_uchar, n: cython.Py_ssize_t
) -> cython.bint:
    pattern: bytes
    for item in patterns:
        pattern = cython.cast(bytes, item)
        if subject_matches(
            cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(pattern)),
            PyBytes_GET_SIZE(pattern),
            subject,
            n,
        ):
            return True
    return False


@cython.cclass
class Rules:
    """An allow list (None admits everything) that a deny list overrules."""

    def __init__(self, allow: Iterable[bytes] | None = None, deny: Iterable[bytes] = ()):
        self.allow = None if allow is None else tuple(allow)
        self.deny = tuple(deny)

    def denying(self, more: Iterable[bytes]) -> object:
        """These rules with further denied subjects."""
        return Rules(self.allow, self.deny + tuple(more))

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def permits(self, subject: cython.p_const_uchar, n: cython.Py_ssize_t) -> cython.bint:
        """Whether a message on a literal subject may pass."""
        if self.allow is None and not self.deny:
            return True
        if self.allow is not None and not any_matches(self.allow, subject, n):
            return False
        return not any_matches(self.deny, subject, n)

    def permits_interest(self, subject: bytes) -> bool:
        """Whether interest in `subject`, which may hold wildcards, may pass.

        Interest that only overlaps the rules passes: its messages are checked one by one.
        """
        if subject.startswith(EXEMPT):
            return True
        if literal_subject(subject):
            return self.permits(subject, len(subject))
        for pattern in self.deny:
            if covers(pattern, subject):
                return False
        return self.allow is None or any(overlap(pattern, subject) for pattern in self.allow)
