# The commit log of a node. See commit_log.py.
from headwater.edge.broker.core cimport Endpoint, Kernel, Msg, Task
from headwater.edge.storage.commit_thread cimport CommitThread
from headwater.edge.storage.log_segment cimport LogSegment
from headwater.edge.storage.logged_store cimport LoggedStore
from headwater.edge.storage.record cimport RecordHeader, Run

cdef class CommitLog

cdef class TurnEnd(Task):
    cdef CommitLog log

cdef class CommitLog:
    cdef public Kernel kernel
    cdef public object directory        # pathlib.Path
    cdef public object files            # log_files.LogFiles
    cdef public object table            # states.StateTable
    cdef public dict stores             # stream id -> LoggedStore
    cdef public LogSegment active
    cdef LogSegment donor               # retired last; its memory serves the next segment
    cdef public list live               # LogSegments that are still needed, oldest first
    cdef public object failure          # StoreError that stops appends; None
    cdef public object on_retire        # called when segments wait to be retired
    cdef public unsigned int seed
    cdef public bytes node_id
    cdef public Py_ssize_t segment_bytes
    cdef public unsigned int keep       # full segments kept in memory besides the active one
    cdef public unsigned long long sync_failures
    cdef CommitThread thread
    cdef Task ender
    cdef Endpoint gate                  # producers wait here while too much is unsynced
    cdef unsigned long long batch       # number of the batch being filled
    cdef Py_ssize_t batch_start
    cdef Py_ssize_t batch_records
    cdef Run* runs
    cdef unsigned int run_count
    cdef unsigned int run_capacity
    cdef unsigned int chain
    cdef list touched                   # LoggedStores with appends in this batch
    cdef list turn_stores               # LoggedStores whose flush_turn is due
    cdef object pending                 # deque of batches handed over
    cdef list waiters                   # (batch, Task or callable)
    cdef unsigned long long durable
    cdef unsigned int durable_segment
    cdef Py_ssize_t durable_end
    cdef unsigned int durable_chain
    cdef unsigned long long written     # bytes of records so far
    cdef unsigned long long settled     # of these durable
    cdef Py_ssize_t high_water
    cdef public double retry_delay
    cdef public bint closed
    cdef bint slow                      # retirement is far behind
    cdef bint blocked                   # retirement met a full device
    cdef bint watching
    cdef public object stepper          # commit_stepper.CommitStepper in place of the thread; None
    cdef double interval                # seconds between syncs; 0: every batch
    cdef unsigned char* reserve(self, Py_ssize_t length, bint message)
    cdef int finish(self, unsigned char* at, Py_ssize_t length) except -1
    cdef int add_run(self, LoggedStore store, unsigned long long sequence) except -1
    cdef unsigned long long write_message(self, LoggedStore store, Msg* m, long long timestamp, unsigned long long sequence) except 0
    cdef int touch(self, LoggedStore store) except -1
    cdef int note_turn(self, LoggedStore store) except -1
    cdef int roll(self, Py_ssize_t need, bint message) except -1
    cdef int begin_segment(self, object slot, unsigned int number, unsigned int previous, Py_ssize_t previous_end, unsigned int previous_chain) except -1
    cdef int close_batch(self, bint part) except -1
    cdef int write_footer(self, int flags) except -1
    cdef int end_turn(self) except -1
    cdef int complete(self, unsigned long long batch) except -1
    cdef int copy_again(self, unsigned char* old) except -1
    cpdef unsigned long long write_record(self, int kind, unsigned long long stream, unsigned long long sequence, bytes first, bytes second, bytes rest) except 0
    cpdef when_durable(self, unsigned long long lsn, object waiter)
    cpdef unsigned long long put_state(self, bytes owner, bytes key, bytes value) except 0
    cpdef unsigned long long add_delta(self, bytes owner, bytes key, bytes value) except 0
