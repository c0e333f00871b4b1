# Many sends of one turn, shared with other processors. See send_crew.py.

cdef enum:
    PIECES_MAX = 512                    # of one round

cdef struct Piece:                      # bytes for one socket
    int fd
    const unsigned char* data
    Py_ssize_t size
    Py_ssize_t sent                     # what the socket took; below 1: nothing

cdef extern from "pthread.h" nogil:
    ctypedef struct pthread_mutex_t:
        pass
    ctypedef struct pthread_cond_t:
        pass
    ctypedef struct pthread_attr_t:
        pass
    ctypedef unsigned long pthread_t
    int pthread_mutex_init(pthread_mutex_t*, void*)
    int pthread_mutex_lock(pthread_mutex_t*)
    int pthread_mutex_unlock(pthread_mutex_t*)
    int pthread_cond_init(pthread_cond_t*, void*)
    int pthread_cond_wait(pthread_cond_t*, pthread_mutex_t*)
    int pthread_cond_signal(pthread_cond_t*)
    int pthread_cond_broadcast(pthread_cond_t*)
    int pthread_attr_init(pthread_attr_t*)
    int pthread_attr_setstacksize(pthread_attr_t*, size_t)
    int pthread_attr_setdetachstate(pthread_attr_t*, int)
    int pthread_attr_destroy(pthread_attr_t*)
    int pthread_create(pthread_t*, pthread_attr_t*, void* (*)(void*) noexcept nogil, void*)
    int PTHREAD_CREATE_DETACHED

cdef extern from "signal.h" nogil:
    ctypedef struct sigset_t:
        pass
    int SIG_SETMASK
    int sigfillset(sigset_t*)
    int pthread_sigmask(int, const sigset_t*, sigset_t*)

# The compiler's own; their last word is how memory is ordered around them.
cdef extern from * nogil:
    int __atomic_fetch_add(int*, int, int)
    int __atomic_load_n(int*, int)
    int __atomic_exchange_n(int*, int, int)
    int __ATOMIC_ACQ_REL
    int __ATOMIC_ACQUIRE

cdef struct Crew:
    pthread_mutex_t mutex               # for what a member waits for: `round`, `busy`
    pthread_cond_t wake                 # a round begins
    pthread_cond_t idle                 # the last member is back from it
    Piece* pieces
    int count                           # pieces of this round
    int next                            # the first that nobody has taken; atomic
    int busy                            # members that are at work on this round; atomic to read
    bint going                          # a round is going on: members may join
    unsigned int round                  # grows with each; a member joins each once

cdef class SendCrew:
    cdef Crew* crew
    cdef readonly int members           # threads beside the caller's
    cdef int claimed                    # a loop uses it; atomic
    cdef Piece* claim(self) noexcept
    cdef void share(self, int count) noexcept nogil
    cdef void release(self) noexcept
cpdef SendCrew crew_of_process()
