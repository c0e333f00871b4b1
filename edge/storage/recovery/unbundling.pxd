# Messages out of a log's bundles. See unbundling.py.
from headwater.edge.storage.format.record cimport RecordHeader

cdef Py_ssize_t room_of_bundle(RecordHeader* header) noexcept
cdef Py_ssize_t find_bundled(const unsigned char* record, Py_ssize_t at, unsigned long long sequence, unsigned long long* found) noexcept
cdef void unbundle(unsigned char* made, const unsigned char* record, Py_ssize_t at, unsigned long long sequence) noexcept
