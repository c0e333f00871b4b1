# When a batch that is open over turns had better end. See block_fit.py.
cpdef bint fits_best(Py_ssize_t size, Py_ssize_t records, Py_ssize_t footers, double more, Py_ssize_t once=*) noexcept
