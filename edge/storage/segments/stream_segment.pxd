cdef class StreamSegment:
    cdef public unsigned int number
    cdef public unsigned int generation
    cdef public unsigned int index_number   # of the index asked for last
    cdef public object path
    cdef public long long created       # ns; tells files apart that had one number
    cdef public Py_ssize_t end          # valid bytes, file header included; 0: not yet created
    cdef public Py_ssize_t durable_end  # of these durable and known to be
    cdef public unsigned int chain
    cdef public unsigned long long first
    cdef public unsigned long long last
    cdef public unsigned long long live
    cdef public unsigned long long live_bytes
    cdef public Py_ssize_t rest         # bytes of it that no rewriting gives back
    cdef public bint sealed
    cdef public bint indexed            # its index file is written
    cdef public bint busy               # being rewritten
    cdef public bint pressed            # to be rewritten though it is the first
    cdef public bint avoided            # rewriting failed lately
    cdef public Py_ssize_t written_rest # `rest` as it was when it was rewritten
    cdef public bint dirty              # its file may hold records of messages that are gone
    cdef public bint erased             # messages were erased while it was being rewritten
    cdef public bint stale              # to be rewritten with the newest key and dictionary
    cdef public object before           # what `abandon_builders` goes back to
    cdef public bytearray deletes       # packed runs, as in DELETE records
    cdef public list lost
    cpdef bint mostly_dead(self)
    cpdef bint is_dead_end(self, unsigned long long first_alive)
