from headwater.edge.broker.output cimport Output

cdef class Conn(Output):
    cdef public tuple peer              # host and port of the other end, as it was at first
    cdef public object on_closed        # called once with (conn, reason)
    cdef public str reason
    cdef unsigned char* buffered            # bytes of an unfinished frame
    cdef Py_ssize_t buffered_len
    cdef Py_ssize_t buffered_capacity
    cdef bint severed                   # what the peer has not received is not to reach it
    cdef bint reading
    cdef bint paused
    cdef bint unfed                     # the filter still has bytes that were not taken
    cdef bint direct                    # all of the last read was content as it is, behind a filter
    cdef bint refitted                  # a filter came while bytes from before it were parsed
    cdef const unsigned char* message_end   # of the message that is being handled; see parse_on
    cdef public bint deciding           # a login is being decided: nothing is read or parsed
    cdef public Py_ssize_t allowance    # bytes that it may still send before its login; -1: proven
    cdef public long long received_ns   # last time bytes came in, monotonic ns
    cdef public unsigned long long read_bytes   # taken from the socket so far
    cdef public unsigned long long in_msgs
    cdef public unsigned long long in_bytes
    cdef public unsigned long long out_msgs
    cdef public unsigned long long out_bytes
    cdef public unsigned long long stalls
    cdef Py_ssize_t parse_on(self, const unsigned char* data, Py_ssize_t n) except -1
    cdef Py_ssize_t parse(self, const unsigned char* data, Py_ssize_t n) except -1
    cdef int parse_received(self, const unsigned char* data, Py_ssize_t n) except -1
    cdef int parse_piece(self, const unsigned char* data, Py_ssize_t n) except -1
    cdef int handle(self, Py_ssize_t n) except -1
    cdef int feed_direct(self, Py_ssize_t n) except -1
    cdef int reserve_buffered(self, Py_ssize_t n) except -1
    cdef int parse_buffered(self) except -1
    cdef int through(self, bytes rest) except -1
    cdef int buffer(self, const unsigned char* data, Py_ssize_t n) except -1
    cdef int pause(self) except -1
    cdef int spend(self, Py_ssize_t n) except -1
