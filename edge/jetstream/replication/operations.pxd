# What an entry of a stream's group says. See operations.py. Kind 1 is OP_MESSAGE of the storage.
from headwater.edge.storage.format.operation cimport OP_MESSAGE, Operation

cdef enum:
    ENTRY_VERSION = 1                   # first byte of every entry; operations follow it
    OP_PASS = 2                         # use up a sequence; first part: the subject
    OP_REMOVE = 3                       # take a message out; flag 1: overwrite it, too
    OP_PURGE = 4                        # take out below `sequence` but for the newest `timestamp`; subject
    OP_SKIP = 5                         # `sequence` is the last one from now on
    OP_STATE_PUT = 6                    # whole value of a state; first part: its key
    OP_STATE_DELTA = 7                  # an addition to it
    OP_STATE_DELETE = 8
    OP_CONFIG = 9                       # the stream's description from now on
    FLAG_ERASE = 1

cdef Py_ssize_t room_for(bytes data) except -1
