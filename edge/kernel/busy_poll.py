"""Look at the sockets a moment longer before the event loop sleeps.

A client that asks, waits for the answer and asks again finds the loop asleep each time. To wake a
processor can take longer than to serve a message, in a virtual machine above all. So while
messages come close behind one another, the loop asks the system again and again for `LOOK_NS`,
and sleeps when nothing comes. It is what `SO_BUSY_POLL` of Linux does for a socket, and
`halt_poll_ns` of KVM for a machine; Go's scheduler looks around like that, too.

What it can cost is bounded. Only reads count of clients that were sent something since their last
one: who only sends is not waiting. It begins when `EAGER` of these in a row came soon, and so does
it again after each look in vain. When a look finds work at once, the loop would not have slept, and
`EAGER` reads go by without one. Who looks lets others run that wait for this processor. When one
did for long, nobody looks for `PAUSE_MIN_NS`, and each time for twice as long.
"""

import cython
from cython.cimports.headwater.edge.kernel.scheduling import sched_yield
from cython.cimports.headwater.edge.ports.machine_clock import machine_monotonic_ns

# A read that comes so soon behind the last may have been waited for; waking up is in it.
SOON_NS = cython.declare(cython.longlong, 120_000)
# How long one look takes at the most.
LOOK_NS = cython.declare(cython.longlong, 60_000)
EAGER = cython.declare(cython.int, 8)
# Between two questions to the system: it had something else to do on this processor.
HELD_UP_NS = cython.declare(cython.longlong, 150_000)
PAUSE_MIN_NS = cython.declare(cython.longlong, 10_000_000)
PAUSE_MAX_NS = cython.declare(cython.longlong, 1_000_000_000)
# After so many good looks in a row, the next pause is short again.
CALM = cython.declare(cython.int, 1000)


@cython.cclass
class BusyPoll:
    """Whether and how long one event loop looks before it sleeps. It begins switched off.

    `looks` counts, and `found` those that found something.
    """

    def __cinit__(self):
        self.fd = -1
        self.pause_ns = PAUSE_MIN_NS

    def watch(self, fd: int) -> None:
        """Look at `fd` from now on, the poll descriptor of the loop; -1 for nothing."""
        self.fd = fd

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def arrived(self, at_ns: cython.longlong) -> cython.int:
        """Somebody was read who had been sent something, at that monotonic time."""
        if at_ns - self.ended_ns > SOON_NS:
            self.soon = 0
        elif self.soon < EAGER:
            self.soon += 1
        return 0

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def wanted(self, now: cython.longlong) -> cython.bint:
        """Whether a look may pay. A read was served at that monotonic time."""
        self.ended_ns = now
        return self.soon == EAGER and now >= self.resume_ns

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def judge(
        self,
        ready: cython.bint,
        waited: cython.bint,
        held_up: cython.bint,
        now: cython.longlong,
    ) -> cython.int:
        """Learn from a look that ended `now`: it found something or not, at once or after a wait,
        and the system may have held it up."""
        self.ended_ns = now
        self.looks += 1
        if ready:
            self.found += 1
        if not (ready and waited):
            self.soon = 0
        if held_up:
            self.calm = 0
            self.resume_ns = now + self.pause_ns
            self.pause_ns = min(2 * self.pause_ns, PAUSE_MAX_NS)
        elif ready:
            self.calm += 1
            if self.calm >= CALM:
                self.calm = 0
                self.pause_ns = PAUSE_MIN_NS
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def look(self) -> cython.int:
        """A read has been served: look for the next, when that may pay."""
        entry: pollfd
        ready: cython.int = 0
        rounds: cython.int = 0
        begin: cython.longlong = machine_monotonic_ns()
        now: cython.longlong = begin
        last: cython.longlong = begin
        if not self.wanted(begin):
            return 0
        entry.fd = self.fd
        entry.events = POLLIN
        entry.revents = 0
        with cython.nogil:
            while ready == 0 and now - last <= HELD_UP_NS and now - begin < LOOK_NS:
                last = now
                ready = poll(cython.address(entry), 1, 0)
                if ready == 0:
                    sched_yield()
                now = machine_monotonic_ns()
                rounds += 1
        self.judge(ready != 0, rounds > 1, now - last > HELD_UP_NS, now)
        return 0
