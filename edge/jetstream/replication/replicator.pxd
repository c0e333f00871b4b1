# What a leader has decided and its group has not applied yet. See replicator.py.
from headwater.edge.kernel.kernel cimport Endpoint, Kernel, Msg, Task
from headwater.edge.jetstream.replication.operations cimport Operation
from headwater.edge.storage.index.store cimport MessageStore
from headwater.edge.storage.log.commit_log cimport CommitLog
from headwater.edge.storage.log.log_waiters cimport Waiters

cdef class Proposals(Task):
    cdef object soon                    # callable: have `offer` called in this round of the loop
    cdef object stood                   # callable: others may lead what was handed out in this turn
    cdef Kernel kernel
    cdef list due                       # Replicators that have something to propose
    cdef long long until                # monotonic ns: what was handed out in this turn may be sent till then
    cdef long long until_wall           # the same o'clock

cdef class Replicator:
    cdef Kernel kernel
    cdef MessageStore store
    cdef Proposals proposals
    cdef CommitLog log                  # the node's CommitLog, for what is applied
    cdef object propose                 # called with an entry; whether it was taken
    cdef public unsigned long long last_seq     # the last sequence, proposed or applied
    cdef public long long last_ts
    cdef public unsigned long long messages     # proposed and not applied
    cdef public unsigned long long stored_bytes # of these, as the store will count them
    cdef public bint closed
    cdef bint keeps_bodies              # a counter's next value needs the one before
    cdef dict lasts                     # subject -> last sequence proposed and not applied
    cdef dict counts                    # subject -> messages proposed and not applied
    cdef dict bodies                    # subject -> (headers, payload) of the last one of a counter
    cdef dict grown                     # key of a state -> bytes of additions since its whole value
    cdef unsigned char* buffer          # the entry being filled
    cdef Py_ssize_t used
    cdef Py_ssize_t capacity
    cdef int held                       # what is written now must be one entry
    cdef bint due
    cdef unsigned long long turn        # number of the entry being filled
    cdef unsigned long long done        # entries of this leader that are applied
    cdef object sizes                   # deque of bytes of entries proposed and not applied
    cdef Py_ssize_t flying              # their sum
    cdef Waiters waiters
    cdef Endpoint gate                  # producers wait here while too much is on its way
    cdef object asked                   # deque of callables: who asked for a purge gets its count
    cdef set futures
    cdef long long sure_until           # monotonic ns: until then no other node can lead
    cdef long long sure_wall            # the same by the time of day
    cdef list unsure                    # Tasks that wait until this node is known to lead
    cdef object confirm                 # asks the others whether it does
    cdef unsigned char* space_for(self, Py_ssize_t need)
    cdef int write(self, Operation* op, const unsigned char* first, const unsigned char* rest) except -1
    cdef int track(self, Msg* m, unsigned long long sequence) except -1
    cdef unsigned long long append(self, Msg* m, long long timestamp, unsigned long long sequence, int kind) except 0
    cdef int applied(self, const unsigned char* subject, Py_ssize_t n, unsigned long long sequence, unsigned long long cost) except -1
    cdef unsigned long long last_for(self, const unsigned char* subject, Py_ssize_t n) except? 0
    cdef unsigned long long count_for(self, const unsigned char* subject, Py_ssize_t n) except? 0
    cdef Py_ssize_t cost(self, Py_ssize_t subject_len, Py_ssize_t header_len, Py_ssize_t size) noexcept
    cdef bint must_wait(self, Task task, long long now, long long wall) except -1
    cdef Endpoint full_gate(self)
    cpdef unsigned long long put_state(self, bytes owner, bytes key, bytes value, long long delay_ns=*, bint near=*) except 0
    cpdef unsigned long long add_delta(self, bytes owner, bytes key, bytes value, long long delay_ns=*) except 0
    cpdef flush(self)
    cpdef offer(self)
    cpdef when_durable(self, unsigned long long lsn, object waiter)
