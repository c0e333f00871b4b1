# The commit log of a node. See commit_log.py.
from headwater.edge.kernel.kernel cimport Endpoint, Task
from headwater.edge.storage.log.batch_writer cimport BatchWriter
from headwater.edge.storage.log.commit_progress cimport CommitProgress
from headwater.edge.storage.log.commit_thread cimport CommitThread
from headwater.edge.storage.log.log_segment cimport LogSegment
from headwater.edge.storage.log.logged_store cimport LoggedStore
from headwater.edge.storage.log.lone_commit cimport LoneCommit
from headwater.edge.storage.format.record cimport RecordHeader
from headwater.edge.storage.log.second_copies cimport SecondCopies

cdef class CommitLog

cdef class TurnEnd(Task):
    cdef CommitLog log                  # handed over when the turn ends

cdef class CommitLog(BatchWriter):
    cdef public object directory        # pathlib.Path
    cdef public object files            # log_files.LogFiles
    cdef public object table            # states.StateTable
    cdef LogSegment donor               # checkpointed last; its memory serves the next segment
    cdef public list live               # LogSegments that are still needed, oldest first
    cdef public object failure          # StoreError that stops appends; None
    cdef public object on_full          # called with the StoreFull that stops appends
    cdef public object on_broken        # called with why a write or sync failed
    cdef public object on_checkpoint    # called when segments wait to be checkpointed
    cdef public object on_low           # called with a LoggedStore above its low mark
    cdef public bytes node_id           # of this store, in the header of every segment: 16 bytes
    cdef public Py_ssize_t segment_bytes    # of a new segment
    cdef public unsigned int keep       # full segments kept in memory besides the active one
    cdef public unsigned long long sync_failures # since the start, for monitoring
    cdef CommitThread thread            # writes and syncs what is handed over
    cdef LoneCommit lone                # does the thread's work for a lone publisher
    cdef Task turn_hook                 # a TurnEnd: hands the batch over
    cdef Endpoint gate                  # producers wait here while too much is unsynced
    cdef Py_ssize_t held                # begin of a batch that is handed over with this one; -1
    cdef object gather_timer            # ends the batch that is open over turns; None: none is
    cdef double gather_due              # when, on the loop's clock
    cdef double gather_began            # when its first turn ended, on the same clock
    cdef Py_ssize_t gather_first        # bytes of the records of that turn
    cdef SecondCopies again             # what follows this batch once more
    cdef list turn_stores               # LoggedStores whose flush_turn is due
    cdef public CommitProgress progress # how far what was handed over is written and synced
    cdef Py_ssize_t high_water          # unwritten bytes above which producers wait
    cdef bint slow                      # checkpoints are far behind: producers wait for them
    cdef public bint checkpointing       # a checkpoint writes: it may pass LIVE_LIMIT
    cdef public bint blocked             # a checkpoint met a full device: no publishes
    cdef bint watching                  # whether the loop watches the thread's descriptor
    cdef public object stepper          # commit_stepper.CommitStepper in place of the thread; None
    cdef bint is_congested(self) noexcept
    cdef int join_turn(self, LoggedStore store) except -1
    cdef int roll(self, Py_ssize_t need, bint message) except -1
    cdef int begin_segment(self, object slot, unsigned int number, unsigned int previous, Py_ssize_t previous_end, unsigned int previous_chain) except -1
    cdef int close_batch(self, bint part) except -1
    cdef int defer_batch(self, Py_ssize_t align) except -1
    cdef int write_copies(self) except -1
    cdef int lazy_flag(self) noexcept
    cdef int end_turn(self) except -1
    cdef bint gathers(self) except -1
    cdef int stop_gathering(self) except -1
    cdef long long left_to_wait(self) noexcept
    cdef int advance(self, unsigned long long written, unsigned long long synced) except -1
    cdef int let_go_on(self) except -1
    cpdef when_durable(self, unsigned long long lsn, object waiter)
    cpdef when_written(self, unsigned long long lsn, object waiter)
    cpdef hurry(self, unsigned long long lsn)
    cpdef unsigned long long put_state(self, bytes owner, bytes key, bytes value, long long delay_ns=*, bint near=*, bint once=*) except 0
    cpdef unsigned long long add_delta(self, bytes owner, bytes key, bytes value, long long delay_ns=*, bytes more=*) except 0
