# The machine's clocks for compiled code. See machine_clock.py.

cdef long long machine_wall_ns() noexcept nogil
cdef long long machine_monotonic_ns() noexcept nogil
