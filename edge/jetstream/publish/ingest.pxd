# Publishing into a stream. See ingest.py.
from headwater.edge.kernel.kernel cimport Endpoint, Msg, Sink
from headwater.edge.jetstream.model.headers cimport PublishHeaders, Slice
from headwater.edge.jetstream.publish.fast_batch cimport FastBatch, FastBatches
from headwater.edge.jetstream.stream.stream cimport Stream

cdef class IngestSink(Sink):
    cdef public Stream stream
    cdef public object shut             # a set of Endpoints whose messages come twice; None: none
    cdef long long now_ns
    cdef bint quiet                     # keep a refusal in `refusal` instead of answering
    cdef object refusal
    cdef int ingest(self, Msg* m) except -1
    cdef bint held(self, Msg* m, PublishHeaders* h) except -1
    cdef int accept_step(self, Msg* m) except -1
    cdef int store_quietly(self, Msg* m) except -1
    cdef int accept_level(self, Msg* m, FastBatches batches, FastBatch batch) except -1
    cdef int accept(self, Msg* m) except -1
    cdef bint too_large(self, Msg* m) except -1
    cdef int accept_without_status(self, Msg* m) except -1
    cdef int store_plain(self, Msg* m) except -1
    cdef int store_special(self, Msg* m) except -1
    cdef bytes reply_of(self, Msg* m)
    cdef int store_checked(self, Msg* m, PublishHeaders* h, bytes extra) except -1
    cdef int finish(self, Msg* m, PublishHeaders* h, bytes msg_id, bytes extra) except -1
    cdef bint refused_rights(self, Msg* m, PublishHeaders* h) except -1
    cdef bint answered_before(self, Msg* m, PublishHeaders* h) except -1
    cdef bint answered_by_headers(self, Msg* m, PublishHeaders* h) except -1
    cdef bint refused_expectations(self, Msg* m, PublishHeaders* h) except -1
    cdef bint refused_subject_last(self, Msg* m, PublishHeaders* h) except -1
    cdef bint refused_last(self, Msg* m, PublishHeaders* h) except -1
    cdef bint refused_limits(self, Msg* m) except -1
    cdef bint refused_discard(self, Msg* m, long long size) except -1
    cdef int refuse(self, Msg* m, object kind) except -1
    cdef int refuse_with(self, Msg* m, object error) except -1
    cdef bint rolls_up(self, Msg* m) except -1
    cdef int roll_up(self, Msg* m, PublishHeaders* h, int keep) except -1
    cdef unsigned long long last_of(self, Msg* m, Slice other) except? 0
    cdef bint refuse_full(self, Msg* m, str text) except -1
    cdef bint refused_roll_up(self, Msg* m, PublishHeaders* h) except -1
    cdef int remember_id(self, bytes msg_id, unsigned long long sequence) except -1

cdef class LastIngest(IngestSink):
    cdef public set senders             # Endpoints whose messages are still taken
