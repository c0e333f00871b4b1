# Header lookup in raw header blocks. See headers.py.

cdef struct Slice:                      # n is -1 when the header is absent
    const unsigned char* at
    Py_ssize_t n

cdef struct PublishHeaders:             # the headers that a stream acts on
    bint any                            # whether one of them was there
    bint slow                           # whether one that is handled outside of the fast path was
    Slice msg_id
    Slice expected_stream
    Slice expected_last_id
    Slice expected_last
    Slice expected_subject_last
    Slice expected_subject
    Slice rollup
    Slice ttl

cdef Slice find_header(const unsigned char* block, Py_ssize_t n, const unsigned char* key, Py_ssize_t key_len) noexcept nogil
cdef int scan_publish(const unsigned char* block, Py_ssize_t n, PublishHeaders* out) noexcept nogil
