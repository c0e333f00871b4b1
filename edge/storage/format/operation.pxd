# The head of what a leader decided, as entries of a stream's group hold it. The log reads messages
# from entries with it; what the other kinds mean is told in edge/jetstream/replication/operations.pxd.

cdef enum:
    OP_MESSAGE = 1                      # store a message: subject, header block, payload

cdef packed struct Operation:
    unsigned int length                 # bytes that follow
    unsigned int header_len             # of a message's header block
    unsigned short first                # bytes of the first part: subject or key
    unsigned char kind
    unsigned char flags
    unsigned long long sequence
    long long timestamp                 # ns since the epoch
