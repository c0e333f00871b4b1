# Recovery's reading of records. See replay.py.
from headwater.edge.storage.log.commit_log cimport CommitLog
from headwater.edge.storage.segments.file_store cimport FileStore
from headwater.edge.storage.log.log_segment cimport LogSegment
from headwater.edge.storage.format.record cimport Adoption, RecordHeader

cdef class Survey:
    cdef public Py_ssize_t end          # after the last footer that counts
    cdef public unsigned long long batch
    cdef public unsigned int chain
    cdef public unsigned int oldest
    cdef public list deleted            # (offset, stream id) of tombstones
    cdef public bint damaged
    cdef public list erases             # (offset, number, stream id, body) of ERASE records
    cdef public unsigned long long erase_done   # number of the newest ERASE known to be done
    cdef public list own                # (offset, owner, key, value; None: deleted) of its states
    cdef public Py_ssize_t part_start   # begin of a last batch that goes on elsewhere; 0: none does
    cdef public unsigned int part_chain # checksum of the record before it

cdef class LogReplay:
    cdef CommitLog log
    cdef public list problems
    cdef public dict watched            # stream id -> [(first, last)]: runs it takes out of that
    cdef public dict firsts             # stream id -> first_seq
    cdef public dict last_times         # stream id -> last_ts
    cdef public dict orphans            # id of an unknown stream -> records
    cdef public set deleted
    cdef public Py_ssize_t unknown_bytes    # damaged bytes of batches whose account is lost, too
    cdef unsigned long long last_batch
    cdef list dropped                   # (stream id, first, last) taken out by the batch being read
    cdef public bint gap_is_lost        # records are missing of which nothing tells what they were
    cdef bint near_damage               # some of the batch being read are
    cdef bint unsure                    # an ADOPT record of the batch being read is damaged
    cdef list gaps                      # (store, sequence) found missing in that batch
    cdef public tuple copied            # segment and offset from which on `touched` is kept
    cdef public set touched             # (owner, key) of states put or deleted
    cdef tuple sound                    # segment and offset of the last record with entries
    cdef unsigned long long store_id
    cdef FileStore store
    cdef FileStore store_of(self, unsigned long long stream)
    cdef int apply(self, const unsigned char* record, LogSegment segment) except -1
    cdef int apply_message(self, const unsigned char* record) except -1
    cdef int apply_bundle(self, const unsigned char* record, LogSegment segment) except -1
    cdef Py_ssize_t enter_bundled(self, FileStore store, const unsigned char* record, Py_ssize_t at, unsigned long long sequence, unsigned long long made) except -1
    cdef int enter(self, FileStore store, const unsigned char* record) except -1
    cdef int lose_before(self, FileStore store, unsigned long long sequence) except -1
    cdef int apply_adoption(self, RecordHeader* header, LogSegment segment) except -1
    cdef bint holds(self, LogSegment segment, RecordHeader* header, Adoption* adoption) except -1
    cdef int lose_adopted(self, FileStore store, unsigned long long first, Adoption* adoption) except -1
    cdef int apply_state(self, const unsigned char* record, LogSegment segment) except -1
    cdef int lose(self, FileStore store, unsigned long long sequence, str reason) except -1
    cdef int check_runs(self, const unsigned char* record, Py_ssize_t damaged) except -1
