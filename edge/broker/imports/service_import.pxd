# A service import. See service_import.py.
from headwater.edge.broker.account cimport Account
from headwater.edge.kernel.kernel cimport Endpoint, Msg
from headwater.edge.broker.imports.responses cimport Crossing, ServiceExport
from headwater.edge.broker.msg_trace cimport CrossingSink
from headwater.edge.subjects.transform cimport Transform

cdef class ServiceImport(CrossingSink):
    cdef Crossing crossing          # what all imports of the node share
    cdef Account account            # the importing one
    cdef Account exporter           # the account in which requests arrive
    cdef ServiceExport export       # what the exporter says of its service
    cdef bytes fixed                # subject there, when it is always the same; None
    cdef Transform rewrite          # makes the subject there; None
    cdef bint share                 # the exporter is told who asks, in full
    cdef dict infos                 # (kind, cid) of a connection -> who asks, as JSON
    cdef object measure(self, Msg* m, Endpoint sender)
    cdef bytes target(self, Msg* m)
    cdef bytes described(self, Msg* m, Endpoint sender, bint chained)
    cdef bytes info(self, Endpoint sender, bytes via)
