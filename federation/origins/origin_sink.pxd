# The receiving end of a mirror or source. See origin_sink.py.
from headwater.edge.kernel.kernel cimport Endpoint, Kernel, Msg, Sink, Task
from headwater.edge.jetstream.stream.stream cimport Stream
from headwater.edge.storage.index.store cimport MessageStore

cdef class Cursors(Task):
    cdef object log                     # storage.commit_log.CommitLog
    cdef list dirty
    cdef int schedule_save(self, OriginSink sink) except -1

cdef class Confirmations(Task):
    cdef MessageStore store
    cdef public list sinks

cdef class OriginSink(Sink):
    cdef public Stream stream
    cdef public Kernel kernel
    cdef public object follower             # origin_follower.OriginFollower: decides; told of gaps and failures
    cdef public bint mirror
    cdef public bint foreign            # the origin keeps no window by itself: see origin_window.py
    cdef public bytes consumer          # name of the consumer that is listened to
    cdef public unsigned long long sseq     # origin's sequence of the last message taken
    cdef public unsigned long long dseq     # deliveries of this consumer
    cdef public long long pending       # messages behind the last one, as the origin said
    cdef public unsigned long long sparse   # so many deliveries leave out what is between them
    cdef public unsigned long long left_out # sequences of the origin that these passed over
    cdef public bint heard              # something came since `silent_ns` was asked
    cdef public long long heard_ns      # last sign of life of the consumer, monotonic ns
    cdef public long long last_ts       # origin's time of the last message taken, ns; 0 before it
    cdef public unsigned long long messages
    cdef public unsigned long long bytes_stored
    cdef public Endpoint via            # where the last message came from; None: this node
    cdef public list transforms         # edge.subjects.transform.Transform
    cdef public bytes head              # `Nats-Stream-Source: <origin> `
    cdef public bytes middle            # ` <filter> <destination> `
    cdef public bytes identity          # of the origin; b"" while unknown
    cdef public bytes earlier           # part of the cursor: incarnations that were taken before
    cdef public Cursors cursors         # None: nothing is kept
    cdef public bytes owner             # whose state the cursor is
    cdef public bytes key
    cdef bint save_scheduled
    cdef public unsigned long long stored      # origin's sequence of the last message stored; 0: none
    cdef public unsigned long long kept # the same in the cursor written last
    cdef list owed                      # flow control answers: (local sequence, reply, dseq, sseq)
    cdef int control(self, Msg* m) except -1
    cdef void pass_over(self, unsigned long long sseq) noexcept
    cdef bytes source_header(self, Msg* m, unsigned long long sseq)
    cdef int store_message(self, Msg* m, unsigned long long sseq, long long timestamp) except -1
    cdef int release(self, unsigned long long committed) except -1
    cdef bytes cursor(self)
