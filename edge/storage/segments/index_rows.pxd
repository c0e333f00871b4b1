# One message of an index file. See index_rows.py and docs/STORAGE.md.
cdef struct IndexRow:                   # one message of an index file, 32 bytes
    unsigned long long sequence
    long long timestamp
    unsigned int offset
    unsigned int size
    unsigned int header_len
    unsigned int subject
