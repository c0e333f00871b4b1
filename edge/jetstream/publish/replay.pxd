# Applies entries of a stream's group. See replay.py.
from headwater.edge.jetstream.replication.operations cimport Operation
from headwater.edge.jetstream.stream.stream cimport Stream
from headwater.edge.storage.log.commit_log cimport CommitLog

cdef int apply_one(Stream stream, Operation* op, const unsigned char* at, object log) except -1
cdef const unsigned char* adopt(Stream stream, const unsigned char* begin, const unsigned char* at, const unsigned char* end, CommitLog log)
