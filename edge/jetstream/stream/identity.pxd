# Copies of messages that say which ones they are. See identity.py.

cdef enum:
    LINES_MAX = 256                     # bytes of the lines of four numbers and a time

cdef struct Content:                    # a message as it is stored
    const unsigned char* subject
    Py_ssize_t subject_len
    const unsigned char* body           # header block followed by the payload
    Py_ssize_t header_len

cdef unsigned char* put(unsigned char* out, const char* text, Py_ssize_t size) noexcept nogil
cdef unsigned char* put_place(unsigned char* out, unsigned long long sequence, long long timestamp) noexcept nogil
cdef bytes identified(bytes stream, Content* original, Py_ssize_t payload, const unsigned char* lines, const unsigned char* end)
