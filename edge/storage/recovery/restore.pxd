# What a start enters into a store. See restore.py.
from headwater.edge.storage.segments.file_store cimport FileStore

cdef int restore_message(FileStore store, const unsigned char* subject, Py_ssize_t n, unsigned long long sequence, long long timestamp, unsigned int size, unsigned int header_len, unsigned long long location, unsigned int flags) except -1
