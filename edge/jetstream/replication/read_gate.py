"""Whether a replica may answer what it is asked at once, and what waits until it may.

No answer may be older than what was committed when it was asked for. The node that leads the stream
knows what is committed, as long as no other one can lead. Every other replica has to ask it first,
so that what was asked meanwhile waits here; whoever drives the replica takes it, asks for all of it
at once, and has it answered or refused.
"""

import logging

import cython
from cython.cimports.cpython.bytes import PyBytes_GET_SIZE
from cython.cimports.headwater.edge.kernel.kernel import Kernel

# Of one replica: requests that wait, and their bytes.
READS_MAX = cython.declare(cython.Py_ssize_t, 10000)
BYTES_MAX = cython.declare(cython.Py_ssize_t, 16 << 20)
# What a request takes besides its content.
OVERHEAD = cython.declare(cython.Py_ssize_t, 300)
REFUSED: bytes = b"NATS/1.0 503\r\n\r\n"

log = logging.getLogger("headwater.jetstream")


@cython.cclass
class ReadGate:
    """Of one replica, whoever leads. A stream of one replica has none."""

    def __init__(self, kernel: Kernel):
        self.kernel = kernel
        self.waiting = []
        self.ask = self.refuse_all

    def sure(self, left_ns: int) -> None:
        """For `left_ns` this node leads, no other one can, and everything that is committed is
        applied; 0 when that is not known."""
        self.sure_until = self.kernel.monotonic_ns() + left_ns if left_ns else 0
        # A machine that was suspended has another time of day at once.
        self.sure_wall = self.kernel.wall_ns() + left_ns

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def is_open(self) -> cython.bint:
        """Whether this node may answer at once."""
        if self.sure_until == 0:
            return False
        return (
            self.kernel.monotonic_ns() < self.sure_until and self.kernel.wall_ns() < self.sure_wall
        )

    def answers_now(self) -> bool:
        """`is_open`, for interpreted callers."""
        return self.is_open()

    @cython.ccall
    def hold(
        self,
        answer: object,
        account: object,
        reply: bytes,
        request: object,
        size: cython.Py_ssize_t,
    ):
        """Have `answer(stream, reply, request)` called later, or a 503 sent to `reply`: at once
        when too much waits. `size`: bytes of the request."""
        size += OVERHEAD + PyBytes_GET_SIZE(reply)
        if self.held >= READS_MAX or self.weight + size > BYTES_MAX:
            account.send(reply, b"", b"", REFUSED)
            return
        self.waiting.append((answer, account, reply, request, size))
        self.held += 1
        self.weight += size
        if len(self.waiting) == 1:
            self.since = self.kernel.monotonic_ns()
            self.ask()

    def drain(self) -> list:
        """What waits; it is the caller's to answer, or to put back."""
        drained, self.waiting = self.waiting, []
        return drained

    def put_back(self, batch: list, since: int) -> None:
        """Nobody could say what is committed: what `drain` gave waits again, since `since`."""
        if batch:
            self.waiting = batch + self.waiting
            self.since = since

    def answer(self, batch: list) -> None:
        """What was committed when these were asked is applied."""
        for one in batch:
            self.let_go(one)
            if self.stream is None:
                one[1].send(one[2], b"", b"", REFUSED)
                continue
            try:
                one[0](self.stream, one[2], one[3])
            except Exception:
                log.exception(
                    "a read of stream '%s' failed; it is refused, others go on; report this fault",
                    self.stream.name,
                )
                one[1].send(one[2], b"", b"", REFUSED)

    def refuse(self, batch: list) -> None:
        """Nobody knows what is committed."""
        for one in batch:
            self.let_go(one)
            one[1].send(one[2], b"", b"", REFUSED)

    def refuse_all(self) -> None:
        """Nobody will know."""
        self.refuse(self.drain())

    def let_go(self, one: tuple) -> None:
        """One waits no more."""
        self.held -= 1
        self.weight -= one[4]
