# What the commit log needs of the stores that write to it. See logged_store.py.
from headwater.edge.kernel.kernel cimport Msg
from headwater.edge.storage.index.index cimport IndexEntry
from headwater.edge.storage.packing.packing cimport Packer
from headwater.edge.storage.format.record cimport RecordHeader
from headwater.edge.storage.index.store cimport MessageStore

cdef class LoggedStore(MessageStore):
    cdef public unsigned long long stream_id
    cdef public object directory                # pathlib.Path of the stream
    cdef unsigned long long touched_batch       # last batch that the log knows of this store
    cdef unsigned long long run_batch           # batch of the run below
    cdef unsigned int run_index
    cdef unsigned long long reached             # every sequence up to here is written
    cdef public unsigned long long reserved_to      # acks before the sync go up to here
    cdef public unsigned long long reserve_at     # last_seq above this: the log calls `on_low`
    cdef public unsigned int watermark           # number of its watermark; 0: none
    cdef bint in_turn                        # flush_turn is due
    cdef public object on_erase                 # called with a sequence that is to be overwritten
    cdef public Packer packer                   # seals and compresses bodies
    cdef int rise(self) except -1
    cdef bint may_reach(self, unsigned long long last) except -1
    cdef Py_ssize_t body_size(self, Msg* m) except -1
    cdef int write_body(self, RecordHeader* header, Msg* m) except -1
    cdef Py_ssize_t body_length(self, const IndexEntry* entry) noexcept nogil
    cdef const unsigned char* plain_body(self, const unsigned char* record)
    cdef Py_ssize_t plain_size(self, const unsigned char* record) noexcept
    cdef int flush_turn(self) except -1
    cdef int before_erase(self, unsigned long long sequence) except -1
    cdef int moved(self, unsigned long long sequence, unsigned long long old, unsigned long long new) except -1
