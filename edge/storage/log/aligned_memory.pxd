# Memory for images of files. See aligned_memory.py.

cdef unsigned char* aligned_memory(Py_ssize_t capacity)
cdef unsigned char* shrink_aligned(unsigned char* image, Py_ssize_t capacity, Py_ssize_t smaller) noexcept
cdef void free_aligned(unsigned char* image, Py_ssize_t capacity) noexcept

cdef extern from *:
    """
    #include <stdlib.h>
    #if defined(__GLIBC__)
    #include <malloc.h>
    static int headwater_map_from(int size) { return mallopt(M_MMAP_THRESHOLD, size); }
    #else
    static int headwater_map_from(int size) { (void)size; return 0; }
    #endif
    """
    int headwater_map_from(int size) nogil
