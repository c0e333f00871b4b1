# Ages and times to live of a stream's messages. See expiry.py.
from headwater.edge.jetstream.stream.stream cimport Stream
from headwater.edge.storage.index.store cimport Record

cdef class Expiry:
    cdef Stream stream
    cdef dict buckets                   # tick -> array of sequences that end in it
    cdef list ticks                     # heap of the keys of `buckets`
    cdef object timer
    cdef long long timer_at             # ns; 0 without a timer
    cdef unsigned long long kept        # messages up to here are kept for ever (TTL `never`)
    cdef unsigned long long ended       # the group was told to take out up to here
    cdef unsigned long long scanned     # TTLs of messages up to here are in `buckets`
    cdef list owed                      # subjects whose markers wait for room
    cdef bint stopped
    cdef bint stale                     # the spans are not kept yet
    cdef list spans                    # (first sequence, offset), see stream_states.load_spans
    cdef int load(self, unsigned long long sequence, Record* out) except -1
    cdef long long start_of(self, unsigned long long sequence, long long timestamp) except? -1
    cdef long long now_ns(self) except? -1
    cdef int begin_span(self, unsigned long long first, long long offset) except -1
    cdef int expire_old(self, long long now, int left) except -1
    cdef int expire_due(self, long long now, int left) except -1
    cdef int end(self, unsigned long long sequence) except -1
    cdef long long next_due(self) except? -1
