# Applies entries of a stream's group. See replay.py.
from headwater.edge.jetstream.replication.operations cimport Operation
from headwater.edge.jetstream.stream.stream cimport Stream

cdef int apply_one(Stream stream, Operation* op, const unsigned char* at, object log) except -1
