"""What messages may do, decided in one place for whoever sends them.

A message carries how it came to be (`Msg.via`). One from a peer was taken out of a frame, so its
words are clean, and its connection has asked for its rights here. One that the node makes itself
goes where somebody else said: the subject of a push consumer, the reply of a request, a republish.
Such a subject never reaches what the node serves, since whoever named it may lack the right to ask
for that, and it never reaches a wire unless it is clean: it may come out of JSON, an archive or a
transform. `Account.route` asks `admits` for every message that is not a peer's.
"""

import cython
from cython.cimports.headwater.edge.broker.core import FROM_PEER, MADE, Msg
from cython.cimports.headwater.edge.subjects.tokens import is_clean
from cython.cimports.libc.string import memcmp

JETSTREAM = cython.declare(cython.p_const_char, b"$JS.")
SYSTEM = cython.declare(cython.p_const_char, b"$SYS.")
# Where servers of a cluster wait for answers to their own requests.
SYSTEM_INBOX = cython.declare(cython.p_const_char, b"$SYS._INBOX")
REPLICATION = cython.declare(cython.p_const_char, b"$NRG.")
ACK = cython.declare(cython.p_const_char, b"$JS.ACK.")
RESPONSE = cython.declare(cython.p_const_char, b"_R_.")
# What the node serves below `$JS.`, and below `$JS.<domain>.`.
API = cython.declare(cython.p_const_char, b"API.")
ACKS = cython.declare(cython.p_const_char, b"ACK.")
TRANSFERS = cython.declare(cython.p_const_char, b"SNAPSHOT.")


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def starts(
    text: cython.p_const_uchar,
    n: cython.Py_ssize_t,
    prefix: cython.p_const_char,
    prefix_len: cython.Py_ssize_t,
) -> cython.bint:
    return n > prefix_len and memcmp(text, prefix, prefix_len) == 0


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def reserved(subject: cython.p_const_uchar, n: cython.Py_ssize_t) -> cython.bint:
    """Whether a subject is one on which the node serves: its API, acknowledgements, transfers of
    backups, the system's requests and events, replication."""
    i: cython.Py_ssize_t
    if n < 5 or subject[0] != 36:
        return False
    if starts(subject, n, SYSTEM, 5):
        return not starts(subject, n, SYSTEM_INBOX, 11)
    if starts(subject, n, REPLICATION, 5):
        return True
    if not starts(subject, n, JETSTREAM, 4):
        return False
    subject += 4
    n -= 4
    if (
        starts(subject, n, API, 4)
        or starts(subject, n, ACKS, 4)
        or starts(subject, n, TRANSFERS, 9)
    ):
        return True
    for i in range(n):
        if subject[i] == 46:
            return starts(subject + i + 1, n - i - 1, API, 4)
    return False


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def reserved_reply(reply: cython.p_const_uchar, n: cython.Py_ssize_t) -> cython.bint:
    """Whether a client may not ask for an answer on this subject: it is an acknowledgement or the
    answer of an imported service, which the node gives meaning to."""
    if n < 5 or (reply[0] != 36 and reply[0] != 95):
        return False
    return starts(reply, n, RESPONSE, 4) or starts(reply, n, ACK, 8)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def admits(m: cython.pointer(Msg)) -> cython.bint:
    """Whether a message may be routed at all."""
    if m.via == FROM_PEER:
        return True
    if m.subject_len == 0 or not is_clean(m.subject, m.subject_len):
        return False
    if not is_clean(m.reply, m.reply_len) or not is_clean(m.shown, m.shown_len):
        return False
    return m.via != MADE or not reserved(m.subject, m.subject_len)


def is_reserved(subject: bytes) -> bool:
    """`reserved` for interpreted callers."""
    return reserved(subject, len(subject))
