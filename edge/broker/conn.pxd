from headwater.edge.kernel.kernel cimport Endpoint, Kernel, Msg, Sink, Task

cdef class Conn(Endpoint):
    cdef public Kernel kernel
    cdef public object loop
    cdef public object sock
    cdef public tuple peer              # host and port of the other end, as it was at first
    cdef public object filter           # TLS or WebSocket codec between socket and protocol; None
    cdef public object tracer           # `ProtocolLog` of a connection that is traced; None
    cdef public object on_closed        # called once with (conn, reason)
    cdef public str reason
    cdef str last_words                 # why nothing is sent any more, though it still hears; None
    cdef int fd
    cdef unsigned char* out             # queued protocol bytes: out[out_start:out_end]
    cdef Py_ssize_t out_start
    cdef Py_ssize_t out_end
    cdef Py_ssize_t out_capacity
    cdef bint returning                 # `give_back` is on its way
    cdef object wire                    # bytearray of filtered bytes on their way; None without filter
    cdef unsigned char* buffered            # bytes of an unfinished frame
    cdef Py_ssize_t buffered_len
    cdef Py_ssize_t buffered_capacity
    cdef Py_ssize_t kept                # a buffer that grew beyond this is given back when it is empty
    cdef bint reading
    cdef bint writing
    cdef bint paused
    cdef bint unfed                     # the filter still has bytes that were not taken
    cdef bint refitted                  # a filter came while bytes from before it were parsed
    cdef const unsigned char* message_end   # of the message that is being handled; see parse_on
    cdef public bint deciding           # a login is being decided: nothing is read or parsed
    cdef public Py_ssize_t allowance    # bytes that it may still send before its login; -1: proven
    cdef public bint overtaken          # slow and without progress: producers no longer wait for it
    cdef readonly Py_ssize_t max_pending
    cdef Py_ssize_t high_water          # queued bytes above which producers wait
    cdef Py_ssize_t piece               # bytes for the filter at a time while the socket is full
    cdef long long full_ns              # when the socket was found full last, monotonic ns
    cdef public long long progress_ns   # last time the socket took bytes, monotonic ns
    cdef public long long received_ns   # last time bytes came in, monotonic ns
    cdef public unsigned long long read_bytes   # taken from the socket so far
    cdef public unsigned long long in_msgs
    cdef public unsigned long long in_bytes
    cdef public unsigned long long out_msgs
    cdef public unsigned long long out_bytes
    cdef public unsigned long long stalls
    cdef int room(self, Py_ssize_t need) except -1
    cdef int count_queued(self, Py_ssize_t used) except -1
    cpdef queue(self, bytes data)
    cdef Py_ssize_t parse_on(self, const unsigned char* data, Py_ssize_t n) except -1
    cdef Py_ssize_t parse(self, const unsigned char* data, Py_ssize_t n) except -1
    cdef int parse_received(self, const unsigned char* data, Py_ssize_t n) except -1
    cdef int parse_piece(self, const unsigned char* data, Py_ssize_t n) except -1
    cdef int handle(self, Py_ssize_t n) except -1
    cdef int parse_buffered(self) except -1
    cdef int through(self, bytes rest) except -1
    cdef int buffer(self, const unsigned char* data, Py_ssize_t n) except -1
    cdef int send_plain(self) except -1
    cdef int send_filtered(self) except -1
    cdef int measure_piece(self, Py_ssize_t total) except -1
    cdef int filter_piece(self) except -1
    cdef bint next_lane(self) except -1
    cdef Py_ssize_t unsent(self) except -1
    cdef int finish_send(self) except -1
    cpdef give_back(self)
    cdef int pause(self) except -1
    cdef int spend(self, Py_ssize_t n) except -1
    cpdef close(self, str reason)
