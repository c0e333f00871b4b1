# The fast path of KV reads. See last_sink.py.
from headwater.edge.kernel.kernel cimport Endpoint, Msg, Sink
from headwater.edge.jetstream.stream.stream cimport Stream

cdef class LastSink(Sink):
    cdef Stream stream
    cdef Py_ssize_t prefix_len          # of `$JS.API.DIRECT.GET.<stream>.`
    cdef object fallback
    cdef object later                   # `answer_later`, made once
    cdef int hand_on(self, Msg* m, Endpoint sender) except -1
    cdef int answer(self, Msg* m, Endpoint sender) except -1
