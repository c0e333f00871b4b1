cimport cython

from headwater.edge.kernel.kernel cimport Sink

@cython.final
cdef class Match:
    cdef public tuple plain             # Sinks without a queue, in order of subscription
    cdef public tuple queues            # one tuple of Sinks per queue group

@cython.final
cdef class Node:
    cdef dict children                  # None: no more than one literal token follows
    cdef bytes token                    # the only literal token that follows; None: there are none, or
    cdef Node only                      # more, which are in `children`; and its node
    cdef Node star
    cdef Node tail
    cdef Sink first                     # the oldest plain sink; most nodes have no other one
    cdef list more                      # the plain sinks after it; None: there are none
    cdef dict queues

@cython.final
cdef class Walk:
    cdef list plain
    cdef dict queues
    cdef const unsigned char* fixed
    cdef bint varied
    cdef bint open_ended
    cdef collect(self, Node node)
    cdef step(self, Node node, const unsigned char* subject, Py_ssize_t n)
    cdef Match result(self)

@cython.final
cdef class Trie:
    cdef Node root
    cdef public Py_ssize_t size
    cdef Walk walk(self, const unsigned char* subject, Py_ssize_t n, Py_ssize_t fixed, bint open_ended)
    cdef Match match(self, const unsigned char* subject, Py_ssize_t n)
    cpdef insert(self, Sink sink)
    cpdef bint remove(self, Sink sink)
    cdef Node child(self, Node node, bytes token)
    cdef bint unhook(self, Node node, Sink sink) except -1
    cdef prune(self, list path, list tokens)
