# What the two ends of a link ask each other to hold back. See halts.py.
from headwater.edge.kernel.kernel cimport Endpoint, Kernel, Task

cdef class Gate(Endpoint):
    cdef readonly bytes pattern         # subjects that are held back; None: all of the account's
    cdef bint asked_again               # whether the peer has said it since that was looked at last

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
    cdef readonly Py_ssize_t count      # gates in `held`
    cdef bint ask(self, object link, bytes account, bytes pattern, Endpoint receiver, Py_ssize_t size) except -1
    cdef Gate gate_for(self, bytes account, const unsigned char* subject, Py_ssize_t n)
