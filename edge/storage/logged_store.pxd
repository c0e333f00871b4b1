# What the commit log needs of the stores that write to it. See logged_store.py.
from headwater.edge.storage.store cimport MessageStore

cdef class LoggedStore(MessageStore):
    cdef public unsigned long long stream_id
    cdef unsigned long long touched_batch       # batch in which the log noted this store last
    cdef unsigned long long run_batch           # batch of the run below
    cdef unsigned int run_index
    cdef bint turn_noted                        # flush_turn is due
    cdef public object on_erase                 # called with a sequence that is to be overwritten
    cdef int flush_turn(self) except -1
    cdef int note_erase(self, unsigned long long sequence) except -1
    cdef int moved(self, unsigned long long sequence, unsigned long long old, unsigned long long new) except -1
