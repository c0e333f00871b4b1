# A message as direct gets answer with it. See direct_body.py.
from headwater.edge.storage.index.store cimport Record

cdef struct BatchPlace:                 # where in a batch of direct gets a message stands
    unsigned long long pending          # how many more would match
    unsigned long long last             # sequence of the message before; 0 for the first

cdef bytes direct_body(bytes stream, Record* record, BatchPlace* place)
