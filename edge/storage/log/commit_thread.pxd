# The thread that writes and syncs the log. See commit_thread.py.
from posix.time cimport timespec

cdef extern from "pthread.h" nogil:
    ctypedef struct pthread_mutex_t:
        pass
    ctypedef struct pthread_cond_t:
        pass
    ctypedef struct pthread_condattr_t:
        pass
    int pthread_mutex_init(pthread_mutex_t*, void*)
    int pthread_mutex_destroy(pthread_mutex_t*)
    int pthread_mutex_lock(pthread_mutex_t*)
    int pthread_mutex_unlock(pthread_mutex_t*)
    int pthread_cond_init(pthread_cond_t*, pthread_condattr_t*)
    int pthread_condattr_init(pthread_condattr_t*)
    int pthread_condattr_setclock(pthread_condattr_t*, int)
    int pthread_condattr_destroy(pthread_condattr_t*)
    int pthread_cond_destroy(pthread_cond_t*)
    int pthread_cond_wait(pthread_cond_t*, pthread_mutex_t*)
    int pthread_cond_timedwait(pthread_cond_t*, pthread_mutex_t*, const timespec*)
    int pthread_cond_signal(pthread_cond_t*)

cdef enum:
    JOBS_MAX = 64
    BLOCK_BYTES = 512                   # a batch begins and ends at multiples of this
    SMALL_BYTES = 32768                 # a batch up to this tells how fast the device syncs

cdef enum: # No sync is asked for; larger than every time.
    NO_SYNC = 0x4000000000000000

cdef struct Job:                        # bytes of one file that end with a batch
    int fd
    int direct_fd                       # the same file past the page cache; -1
    const unsigned char* data
    Py_ssize_t length
    long long offset
    unsigned long long batch
    long long delay_ns                  # how long the sync may wait; NO_SYNC
    bint notify                           # somebody waits for the write only

cdef class CommitThread:
    cdef pthread_mutex_t mutex
    cdef pthread_cond_t wake
    cdef Job jobs[JOBS_MAX]
    cdef int job_count
    cdef bint waiting
    cdef bint stopping
    cdef bint threaded                  # the thread was started
    cdef bint lent                      # the caller of `commit_here` writes: the thread must not
    cdef bint held_up                   # the thread wanted to go on meanwhile
    cdef unsigned long long lone        # batches that the event loop committed
    cdef long long small_ns             # median of what small batches took lately; 0: unknown
    cdef long long rested_ns            # until then the device counts as slow
    cdef int error                      # errno of a failed write or sync; jobs are dropped while set
    cdef unsigned long long written     # newest batch handed to the kernel
    cdef unsigned long long synced      # newest batch on the device
    cdef int begun_fd                   # file of which the system was asked to write up to `begun`
    cdef long long begun
    cdef unsigned long long wanted      # batch up to which a sync was asked for
    cdef long long due_ns               # when the next sync is due; NO_SYNC
    cdef bint stepped                   # without the thread; `now_ns` is the clock then
    cdef long long now_ns
    cdef int done_fd                    # an eventfd, readable when something completed
    cdef bint no_direct                 # the device wants larger blocks than a batch is made of
    cdef int dirty_fd                   # written and not yet synced; -1
    cdef unsigned long long syncs
    cdef long long synced_ns            # when the last one ended
    cdef unsigned long long bytes_written
    cdef object thread
    cdef int submit(self, int fd, int direct_fd, const unsigned char* data, Py_ssize_t length, long long offset, unsigned long long batch, long long delay_ns, bint notify, bint wake) noexcept nogil
    cdef bint commit_here(self) noexcept nogil
    cdef bint is_fast(self) noexcept nogil
    cdef void measure(self, long long took, long long now) noexcept nogil
    cdef void hurry(self, unsigned long long batch) noexcept nogil
    cdef bint sync_is_due(self, Job* jobs, int count, unsigned long long batch) noexcept nogil
    cdef void notify_written(self, Job* jobs, int count, unsigned long long batch) noexcept nogil
    cdef void loop(self) noexcept nogil
    cdef void perform(self, Job* jobs, int count) noexcept nogil
    cdef long long clock(self) noexcept nogil
    cdef unsigned long long newest_synced(self) noexcept nogil
    cdef int next_jobs(self, Job* jobs) noexcept nogil
    cdef int write_job(self, Job* job) noexcept nogil
    cdef int write_jobs(self, Job* jobs, int count) noexcept nogil
    cdef void write_ahead(self, Job* job) noexcept nogil
    cdef int sync(self) noexcept nogil
    cdef int results(self, unsigned long long* written, unsigned long long* synced) noexcept nogil
