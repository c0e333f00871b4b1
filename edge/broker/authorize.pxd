# Who may do what. See authorize.py.
from headwater.edge.kernel.kernel cimport Msg
from headwater.edge.broker.rights.rules cimport Rules

cdef enum:
    PUBLISH = 0                         # put a message on a subject
    REPLY = 1                           # want the answer to a message on a subject
    SUBSCRIBE = 2                       # want the messages of a subject, wildcards included
    RECEIVE = 3                         # be given a message on a subject
    ASK = 4                             # be asked for the messages of a subject

cdef class Principal:
    cdef public object account          # `served_as(subject)` knows the aliases of its domain
    cdef int may(self, int action, const unsigned char* subject, Py_ssize_t n, bytes queue) except -1
    cdef bytes served(self, const unsigned char* subject, Py_ssize_t n)

cdef class Login(Principal):
    cdef readonly object rights         # `Rights` (rights/grants.py) of a login; None: everything is allowed
    cdef dict verdicts                  # verdicts already known of `rights`
    cdef bytes last                     # the subject last allowed to be published on
    cdef bint administrates(self) except -1
    cdef int publishes(self, const unsigned char* subject, Py_ssize_t n) except -1

cdef class Peer(Principal):
    cdef public Rules comes             # what may come in by the link
    cdef public Rules aliased           # denies of the user's own, for what aliases stand for
    cdef public Rules leaves            # what may leave by it
    cdef public Rules wants             # interest that the peer may tell of
    cdef public Rules asks              # interest that the peer may be told of
    cdef public bint acks_leave         # acks and answers leave against any rule, too
    cdef public bint wide               # wildcards may be wanted against any rule; messages are asked for

cdef int authorize(Principal principal, int action, const unsigned char* subject, Py_ssize_t n, int via, bytes queue) except -1
# Whether a subject begins as one that servers alone use: `$G`, `$N`, `_G`.
cdef inline bint may_be_servers(const unsigned char* subject, Py_ssize_t n) noexcept nogil:
    return n > 4 and (
        (subject[0] == 36 and (subject[1] == 71 or subject[1] == 78))
        or (subject[0] == 95 and subject[1] == 71)
    )
# `authorize` for a message that a client publishes. Most logins are restricted in nothing, which is
# seen here without a call.
cdef inline int may_put(Login login, Msg* m) except -1:
    if login.rights is None and not may_be_servers(m.subject, m.subject_len):
        return 1
    return authorize(login, PUBLISH, m.subject, m.subject_len, m.via, None)
# The same for the reply that a client gives with it: none but those that the node gives meaning to,
# `$JS.ACK.`, `_R_.` and those of clusters of clusters, are asked for.
cdef inline int may_ask(Login login, Msg* m) except -1:
    if m.reply_len < 5 or not (
        m.reply[0] == 36 or (m.reply[0] == 95 and (m.reply[1] == 82 or m.reply[1] == 71))
    ):
        return 1
    return authorize(login, REPLY, m.reply, m.reply_len, m.via, None)
cdef int admits(Msg* m) except -1
