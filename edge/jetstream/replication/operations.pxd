# What an entry of a stream's group says. See operations.py.

cdef enum:
    ENTRY_VERSION = 1                   # first byte of every entry; operations follow it
    OP_MESSAGE = 1                      # store a message: subject, header block, payload
    OP_PASS = 2                         # use up a sequence; first part: the subject
    OP_REMOVE = 3                       # take a message out; flag 1: overwrite it, too
    OP_PURGE = 4                        # take out below `sequence` but for the newest `timestamp`; subject
    OP_SKIP = 5                         # `sequence` is the last one from now on
    OP_STATE_PUT = 6                    # whole value of a state; first part: its key
    OP_STATE_DELTA = 7                  # an addition to it
    OP_STATE_DELETE = 8
    OP_CONFIG = 9                       # the stream's description from now on
    FLAG_ERASE = 1

cdef packed struct Operation:
    unsigned int length                 # bytes that follow
    unsigned int header_len             # of a message's header block
    unsigned short first                # bytes of the first part: subject or key
    unsigned char kind
    unsigned char flags
    unsigned long long sequence
    long long timestamp                 # ns since the epoch

cdef Py_ssize_t room_for(bytes data) except -1
