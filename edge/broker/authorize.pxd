# What messages may do. See authorize.py.
from headwater.edge.broker.core cimport Endpoint, Msg

cdef bint reserved(const unsigned char* subject, Py_ssize_t n) noexcept nogil
cdef bint reserved_reply(const unsigned char* reply, Py_ssize_t n) noexcept nogil
cdef bint admits(Msg* m) noexcept nogil
