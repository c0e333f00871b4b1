"""The sends of a turn that touched many connections, shared with the machine's other processors.

A send to one of many connections costs the system several microseconds, most of a message's cost.
So when a turn ends with many of them, their first sends are taken one by one by whoever is free:
the loop's thread and the members of the crew. The loop waits for the last, so that nothing else
runs meanwhile, and each connection then goes on by itself with what is left. What one peer is sent
keeps its order; between peers there is none, in a turn.

The members never need the GIL and touch nothing but their piece. There is one crew in a process,
made when it is first wanted; it has no member on a machine with one processor.
"""

import os

import cython
from cython.cimports.headwater.edge.kernel.sockets import MSG_DONTWAIT, MSG_NOSIGNAL, send
from cython.cimports.headwater.edge.ports.machine_clock import machine_monotonic_ns
from cython.cimports.libc.stdlib import calloc

from headwater.edge.ports.processors import processors

MEMBERS_MAX = 3
STACK_BYTES = cython.declare(cython.size_t, 256 << 10)
# How long the loop looks for members to end their last piece before it sleeps.
PATIENCE_NS = cython.declare(cython.longlong, 20_000)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def work(crew: cython.pointer(Crew)) -> cython.void:
    """Send pieces of the round until all of them are taken."""
    piece: cython.pointer(Piece)
    at: cython.int = __atomic_fetch_add(cython.address(crew.next), 1, __ATOMIC_ACQ_REL)
    while at < crew.count:
        piece = cython.address(crew.pieces[at])
        piece.sent = send(piece.fd, piece.data, piece.size, MSG_DONTWAIT | MSG_NOSIGNAL)
        at = __atomic_fetch_add(cython.address(crew.next), 1, __ATOMIC_ACQ_REL)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def serve(argument: cython.p_void) -> cython.p_void:
    """The life of a member."""
    crew: cython.pointer(Crew) = cython.cast(cython.pointer(Crew), argument)
    seen: cython.uint = 0
    pthread_mutex_lock(cython.address(crew.mutex))
    while True:
        while not crew.going or crew.round == seen:
            pthread_cond_wait(cython.address(crew.wake), cython.address(crew.mutex))
        seen = crew.round
        __atomic_fetch_add(cython.address(crew.busy), 1, __ATOMIC_ACQ_REL)
        pthread_mutex_unlock(cython.address(crew.mutex))
        work(crew)
        pthread_mutex_lock(cython.address(crew.mutex))
        if __atomic_fetch_add(cython.address(crew.busy), -1, __ATOMIC_ACQ_REL) == 1:
            pthread_cond_signal(cython.address(crew.idle))


@cython.cfunc
@cython.exceptval(-1, check=False)
def hire(crew: cython.pointer(Crew), wanted: cython.int) -> cython.int:
    """Start so many members, which no signal reaches; returns how many there are."""
    count: cython.int = 0
    thread: pthread_t
    attributes: pthread_attr_t
    every: sigset_t
    before: sigset_t
    pthread_attr_init(cython.address(attributes))
    pthread_attr_setstacksize(cython.address(attributes), STACK_BYTES)
    pthread_attr_setdetachstate(cython.address(attributes), PTHREAD_CREATE_DETACHED)
    sigfillset(cython.address(every))
    pthread_sigmask(SIG_SETMASK, cython.address(every), cython.address(before))
    while count < wanted:
        if pthread_create(cython.address(thread), cython.address(attributes), serve, crew):
            break
        count += 1
    pthread_sigmask(SIG_SETMASK, cython.address(before), cython.NULL)
    pthread_attr_destroy(cython.address(attributes))
    return count


@cython.cclass
class SendCrew:
    """See the module. It lives as long as the process; so does its memory."""

    def __init__(self, wanted: int):
        self.crew = cython.cast(cython.pointer(Crew), calloc(1, cython.sizeof(Crew)))
        if self.crew == cython.NULL:
            raise MemoryError
        self.crew.pieces = cython.cast(
            cython.pointer(Piece), calloc(PIECES_MAX, cython.sizeof(Piece))
        )
        if self.crew.pieces == cython.NULL:
            raise MemoryError
        pthread_mutex_init(cython.address(self.crew.mutex), cython.NULL)
        pthread_cond_init(cython.address(self.crew.wake), cython.NULL)
        pthread_cond_init(cython.address(self.crew.idle), cython.NULL)
        self.members = hire(self.crew, wanted)

    @cython.cfunc
    @cython.exceptval(check=False)
    def claim(self) -> cython.pointer(Piece):
        """Where the caller may describe `PIECES_MAX` pieces, to `share` them before it `release`s
        the crew. NULL when there is nobody to help, or another loop is at it."""
        if self.members == 0 or __atomic_exchange_n(
            cython.address(self.claimed), 1, __ATOMIC_ACQ_REL
        ):
            return cython.cast(cython.pointer(Piece), cython.NULL)
        return self.crew.pieces

    @cython.cfunc
    @cython.exceptval(check=False)
    def release(self) -> cython.void:
        """Let other loops have the crew."""
        __atomic_exchange_n(cython.address(self.claimed), 0, __ATOMIC_ACQ_REL)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def share(self, count: cython.int) -> cython.void:
        """Have the first `count` pieces sent; `sent` of each says what came of it."""
        crew: cython.pointer(Crew) = self.crew
        until: cython.longlong
        pthread_mutex_lock(cython.address(crew.mutex))
        crew.count = count
        crew.next = 0
        crew.round += 1
        crew.going = True
        pthread_cond_broadcast(cython.address(crew.wake))
        pthread_mutex_unlock(cython.address(crew.mutex))
        work(crew)
        pthread_mutex_lock(cython.address(crew.mutex))
        crew.going = False
        pthread_mutex_unlock(cython.address(crew.mutex))
        until = machine_monotonic_ns() + PATIENCE_NS
        while __atomic_load_n(cython.address(crew.busy), __ATOMIC_ACQUIRE) != 0:
            if machine_monotonic_ns() > until:
                break
        pthread_mutex_lock(cython.address(crew.mutex))
        while crew.busy != 0:
            pthread_cond_wait(cython.address(crew.idle), cython.address(crew.mutex))
        pthread_mutex_unlock(cython.address(crew.mutex))


@cython.ccall
def crew_of_process() -> SendCrew:
    """The crew that all loops of this process share; a child that was forked has one of its own."""
    global _crew, _pid
    if _crew is None or _pid != os.getpid():
        _crew, _pid = SendCrew(min(MEMBERS_MAX, processors() - 1)), os.getpid()
    return _crew


_crew: SendCrew | None = None
_pid = 0
