# What a stream reads in header blocks. See headers.py.

from headwater.edge.wire.header_block cimport Slice

cdef struct PublishHeaders:             # the headers that a stream acts on
    bint any                            # whether one of them was there
    bint slow                           # whether one that is handled outside of the fast path was
    bint more                           # whether one was that is neither of those below
    Slice msg_id
    Slice expected_stream
    Slice expected_last_id
    Slice expected_last
    Slice expected_subject_last
    Slice expected_subject
    Slice rollup
    Slice ttl
    Slice batch_id                      # these three are slow, and not among `any`
    Slice batch_sequence
    Slice batch_commit

cdef bint has_status(const unsigned char* block, Py_ssize_t n) noexcept nogil
cdef int scan_publish(const unsigned char* block, Py_ssize_t n, PublishHeaders* out) noexcept nogil
