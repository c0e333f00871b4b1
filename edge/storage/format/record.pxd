# Records, as they lie in the commit log and in segments. See record.py and docs/STORAGE.md.

cdef enum:
    MAGIC = 0x31525748                  # "HWR1"
    VERSION = 1
    HEADER_BYTES = 64
    FILE_HEADER_BYTES = 512             # before the first record of every file

cdef enum:
    KIND_MESSAGE = 1
    KIND_DELETE = 2                     # body: runs of sequences taken out
    KIND_HEAD = 3                       # first_seq moved; sequence: first, body: last
    KIND_SKIP = 4                       # last_seq moved without a message; sequence: last
    KIND_LOST = 5                       # body: runs of sequences known to be damaged
    KIND_STATE_PUT = 6                  # body: owner, key, value
    KIND_STATE_DELTA = 7
    KIND_STATE_DELETE = 8
    KIND_STREAM_DELETE = 10             # tombstone; body: incarnation
    KIND_FOOTER = 11                    # ends a batch of the log, or of a segment
    KIND_CHECKPOINT = 12                   # sequence: oldest segment of the log that is still needed
    KIND_ERASE = 13                     # body: where messages stand that shall be overwritten
    KIND_ERASE_DONE = 14                # sequence: number of the newest ERASE that is done
    KIND_ADOPT = 15                     # messages that stand in an entry; sequence: the first
    KIND_BUNDLE = 16                    # messages that follow each other; sequence and timestamp
                                        # are those of the first, subject_len is their number,
                                        # header_len the length of the stem ahead of them

cdef enum:
    FLAG_COPY = 1                       # second copy of a footer
    FLAG_PART = 2                       # the batch goes on in the next segment, and counts with it
    FLAG_SEALED = 4                     # the body is sealed; what is below is inside
    FLAG_COMPRESSED = 8                 # the body is compressed
    FLAG_LAZY = 16                      # a batch of interval streams only, not synced at once
    FLAG_ERASED = 0x8000                # a message that was overwritten with zeros

cdef struct RecordHeader:               # 64 bytes, little endian
    unsigned int magic
    unsigned char version
    unsigned char kind
    unsigned short flags
    unsigned int length                 # of the body
    unsigned int subject_len            # first part of the body
    unsigned int header_len             # second part of the body
    unsigned int body_crc
    unsigned long long sequence
    long long timestamp                 # ns since the epoch
    unsigned long long stream           # local id
    unsigned int segment                # number of the file
    unsigned int offset                 # of this record in the file
    unsigned int chain                  # header_crc of the record before
    unsigned int header_crc

cdef struct Adoption:                   # body of an ADOPT record; offsets are in its own segment
    unsigned int record                 # offset of the record that holds the entry
    unsigned int start                  # offset of the first message's head
    unsigned int length                 # bytes of heads and messages
    unsigned int unused                 # 0
    unsigned long long last             # sequence of the last message; all between are there

cdef enum:
    BUNDLED_HEADERS = 1                 # ahead of the body stands the length of its headers, 16 bits
    BUNDLED_ERASED = 2                  # overwritten with zeros
    BUNDLED_STEM = 16                   # its subject begins and ends as the bundle's stem says

cdef struct Bundled:                    # head of a message in a BUNDLE; its body follows
    unsigned short length               # of what follows: body, and the length of its headers
    unsigned char subject_len           # of all of it
    unsigned char flags                 # FLAG_SEALED, FLAG_COMPRESSED, BUNDLED_*
    unsigned int later                  # ns from the bundle's timestamp to the message's
    unsigned int crc                    # see bundled_crc

cdef struct Run:                        # a footer's account of what its batch holds
    unsigned long long stream
    unsigned long long first
    unsigned long long last

cdef unsigned int packed_bits(const unsigned char* record) noexcept nogil
cdef Py_ssize_t record_size(Py_ssize_t length) noexcept nogil
cdef void seal_header(RecordHeader* header, unsigned int seed) noexcept nogil
cdef bint header_ok(const unsigned char* data, Py_ssize_t room, unsigned int seed, unsigned int segment, unsigned int offset) noexcept nogil
cdef bint body_ok(const unsigned char* record) noexcept nogil
cdef unsigned int bundled_crc(const unsigned char* record, Py_ssize_t at, unsigned long long sequence) noexcept nogil
cdef Py_ssize_t bundled_size(const unsigned char* head) noexcept nogil
cdef bint bundled_ok(const unsigned char* record, Py_ssize_t at, unsigned long long sequence) noexcept nogil
cdef Py_ssize_t find_record(const unsigned char* data, Py_ssize_t start, Py_ssize_t end, unsigned int seed, unsigned int segment) noexcept nogil
cdef bytes body_of(const unsigned char* record)
