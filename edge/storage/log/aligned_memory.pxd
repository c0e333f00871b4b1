# Memory for images of files. See aligned_memory.py.

cdef unsigned char* aligned_memory(Py_ssize_t capacity)
