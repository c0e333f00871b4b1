# What the two ends of a link ask each other to hold back. See halts.py.
from headwater.edge.kernel.kernel cimport Endpoint, Kernel, Task

cdef class Gate(Endpoint):
    cdef readonly bytes pattern         # subjects that are held back; None: all of the account's
    cdef bint asked_again               # whether the peer has said it since that was looked at last
    cdef readonly bint shut             # whether producers wait
    cdef double since_s                 # loop's time up to which `debt_s` counts, while it is shut
    cdef double debt_s                  # seconds for which the peer held back and let nothing pass

cdef class Halt(Task):
    cdef object link                    # whose session tells the peer
    cdef Halts halts                    # those of the link
    cdef bytes key                      # what it holds back, see `Halts.asked`
    cdef Py_ssize_t met                 # bytes of such messages that came all the same

cdef class Halts:
    cdef Kernel kernel
    cdef Py_ssize_t most                # bytes that may still come while the peer holds back
    cdef readonly dict asked            # of the peer: account, or account and pattern -> Halt
    cdef readonly dict held             # by the peer: account -> {pattern, None for all: Gate}
    cdef readonly Py_ssize_t count      # gates in `held`, shut or open
    cdef public object too_long         # called when the peer held back for too long; None: it may
    cdef public bint deaf               # whether the peer is listened to no more
    cdef double debt_s                  # seconds owed for gates that are gone, as of `debt_at_s`
    cdef double debt_at_s               # loop's time
    cdef bint ask(self, object link, bytes account, bytes pattern, Endpoint receiver, Py_ssize_t size) except -1
    cdef Gate gate_for(self, bytes account, const unsigned char* subject, Py_ssize_t n, Py_ssize_t size)
