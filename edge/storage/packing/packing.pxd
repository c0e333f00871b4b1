# Sealed and compressed bodies of one stream's records. See packing.py.
from headwater.edge.kernel.kernel cimport Msg
from headwater.edge.storage.format.record cimport RecordHeader

ctypedef int (*AeadSeal)(unsigned char*, unsigned long long*, const unsigned char*, unsigned long long, const unsigned char*, unsigned long long, const unsigned char*, const unsigned char*, const unsigned char*) noexcept nogil
ctypedef int (*AeadOpen)(unsigned char*, unsigned long long*, unsigned char*, const unsigned char*, unsigned long long, const unsigned char*, unsigned long long, const unsigned char*, const unsigned char*) noexcept nogil

cdef struct Bound:                      # what a sealed body is bound to; 40 bytes
    unsigned int flags                  # SEALED and COMPRESSED of the record
    unsigned int length
    unsigned int subject_len
    unsigned int header_len
    unsigned long long sequence
    long long timestamp
    unsigned long long stream

cdef class SealKey:
    cdef readonly unsigned int number
    cdef bytes secret
    cdef Py_ssize_t nonce_bytes
    cdef AeadSeal seal
    cdef AeadOpen open

cdef class Packer:
    cdef readonly unsigned long long stream
    cdef dict keys                      # number -> SealKey
    cdef SealKey newest                 # seals; None: nothing is sealed
    cdef unsigned char[24] nonce        # the last one that was used
    cdef readonly bint compress
    cdef readonly bint packs            # whether what is appended is changed at all
    cdef object compressor
    cdef readonly unsigned int dictionary   # number of the dictionary that `compressor` uses; 0: none
    cdef dict expanders                 # number of a dictionary -> its decompressor
    cdef dict contents                  # number of a dictionary -> its content
    cdef public unsigned long long unopened     # records that `repack` could not open
    cdef public list samples            # messages to make a dictionary from; None: no more wanted
    cdef Py_ssize_t sample_bytes
    cdef public object on_samples       # called once when there are enough
    cdef int tried                      # to compress, of late; below 0: so many are passed over
    cdef unsigned long long tried_bytes # of these
    cdef unsigned long long kept_bytes  # what they became
    cdef bytes squeezed                 # the message to be written, compressed; None: plain
    cdef bytes expanded                 # the message opened last when it was compressed
    cdef unsigned char* scratch
    cdef Py_ssize_t scratch_bytes
    cdef const unsigned char* plain     # the message opened last: subject, headers, payload
    cdef Py_ssize_t plain_length
    cdef Py_ssize_t prepare(self, Msg* m) except -1
    cdef int fill(self, RecordHeader* header, Msg* m) except -1
    cdef int open(self, const unsigned char* record) except -1
    cdef int expand(self, const unsigned char* data, Py_ssize_t length) except -1
    cdef int room(self, Py_ssize_t length) except -1
    cdef int next_nonce(self) except -1
    cdef bint worth_trying(self) except -1
    cdef int keep_sample(self, Msg* m) except -1
