# What crosses between accounts. See responses.py.
from headwater.edge.broker.account cimport Account
from headwater.edge.kernel.kernel cimport Endpoint, Kernel, Msg, Sink
from headwater.edge.broker.msg_trace cimport Trace

cdef bint is_ack(Msg* m) noexcept nogil
cdef bytes subject_of(Msg* m)

cdef class ServiceExport:
    cdef readonly int kind                  # how many answers there are: RESPONSE_KINDS
    cdef readonly long long threshold_ns    # how long an answer may take
    cdef readonly object latency            # ServiceLatency of a service that is measured; None
    cdef readonly bint allow_trace          # traces of messages may follow

cdef class Response:
    cdef Account account            # of the requester
    cdef bytes reply                # where answers go, in that account
    cdef ServiceExport export       # what was asked
    cdef long long stamp_ns         # when it was asked, or answered last
    cdef object measured            # Measurement that ends with the first answer; None

cdef class Crossing:
    cdef Kernel kernel
    cdef object describe            # (sender, account, share, via) -> the sender as JSON
    cdef Msg* message               # that is being routed and came across; NULL
    cdef tuple chain                # ServiceExports by which it came
    cdef int depth                  # crossings within one another
    cdef Trace trace                # of the message that crosses next; None
    cdef object relay               # makes the subject to which its trace goes on; None
    cdef readonly dict waiting      # account -> its Responses
    cdef public object remote       # RemoteLatency; None without a system account
    cdef dict watches               # account -> its InterestWatch
    cdef Py_ssize_t cross(self, Account account, Msg* m, Endpoint sender, tuple chain) except -1

cdef class Responses(Sink):
    cdef Crossing crossing
    cdef Account account            # in which the services are
    cdef bytes prefix               # of the subjects on which answers come
    cdef object entries             # OrderedDict: subject -> Response, the oldest first
    cdef object timer               # for what is due first; None
    cdef long long due_ns           # when it fires
    cdef bytes expect(self, Account account, bytes reply, ServiceExport export, object measured)
    cdef forget(self, bytes subject)
