from headwater.edge.kernel.kernel cimport Endpoint, Kernel

cdef enum:
    UNBOUNDED = 0x3fffffff              # bytes that no call passes

cdef class Output(Endpoint):
    cdef public Kernel kernel
    cdef public object loop
    cdef public object sock
    cdef public object filter           # TLS or WebSocket codec between socket and protocol; None
    cdef public object tracer           # `ProtocolLog` of a connection that is traced; None
    cdef str last_words                 # why nothing is sent any more, though it still hears; None
    cdef int fd
    cdef unsigned char* out             # queued protocol bytes: out[out_start:out_end]
    cdef Py_ssize_t out_start
    cdef Py_ssize_t out_end
    cdef Py_ssize_t out_capacity
    cdef bint returning                 # `give_back` is on its way
    cdef object wire                    # bytearray of filtered bytes on their way; None without filter
    cdef Py_ssize_t kept                # a buffer that grew beyond this is given back when it is empty
    cdef bint writing
    cdef readonly bint held             # what waits behind `out` may not be sent yet
    cdef public bint overtaken          # slow and without progress: producers no longer wait for it
    cdef readonly Py_ssize_t max_pending
    cdef Py_ssize_t high_water          # queued bytes above which producers wait
    cdef Py_ssize_t most                # bytes that the socket is given at a time, or UNBOUNDED
    cdef readonly unsigned long long passed     # bytes that it has taken
    cdef Py_ssize_t piece               # bytes for the filter at a time while the socket is full
    cdef long long full_ns              # when the socket was found full last, monotonic ns
    cdef public long long progress_ns   # last time that the peer took something, monotonic ns
    cdef int room(self, Py_ssize_t need) except -1
    cdef int count_queued(self, Py_ssize_t used) except -1
    cdef int made_progress(self) except -1
    cpdef queue(self, bytes data)
    cdef int send_plain(self) except -1
    cdef int send_filtered(self) except -1
    cdef Py_ssize_t send_wire(self) except -1
    cdef int measure_piece(self, Py_ssize_t total) except -1
    cdef int filter_piece(self) except -1
    cdef bint next_lane(self) except -1
    cdef Py_ssize_t unsent(self) except -1
    cdef int finish_send(self) except -1
    cpdef give_back(self)
    cpdef close(self, str reason)
