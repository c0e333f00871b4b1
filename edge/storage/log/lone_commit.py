"""Commits on the event loop what a lone publisher waits for.

The way to the commit thread and back wakes two threads, which takes about as long as a fast device
takes to sync. While one connection alone sends, and waits for each ack, the loop would only wait
for the thread. So it writes and syncs the small batch itself, after everything else of the turn was
sent, and the ack leaves at once. It stands still for one sync. Whatever else sends meanwhile, a
larger batch or a slow device has batches go to the thread, as all others do.
"""

from collections.abc import Callable

import cython
from cython.cimports.headwater.edge.kernel.kernel import Kernel, Task
from cython.cimports.headwater.edge.storage.log.commit_thread import SMALL_BYTES, CommitThread

# Whether every small batch is committed on the loop, whoever sends. Tests set this.
ALWAYS = False
# So many batches in a row have to be such that somebody alone waits for each.
WAITS_MIN = cython.declare(cython.int, 4)


@cython.cclass
class LoneCommit(Task):
    """See the module. `done` is what the loop calls when the thread has completed something."""

    def __init__(self, kernel: Kernel, thread: CommitThread, done: Callable[[], None]):
        self.kernel = kernel
        self.thread = thread
        self.done = done
        self.always = ALWAYS

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def accepts(
        self,
        length: cython.Py_ssize_t,
        batches: cython.Py_ssize_t,
        delay_ns: cython.longlong,
        notify: cython.bint,
    ) -> cython.bint:
        """Whether the next batch is left to this: it has `length` bytes, `batches` with it are not
        durable, its sync may wait `delay_ns`, and with `notify` somebody waits for its write."""
        if length > SMALL_BYTES or batches != 1 or delay_ns != 0 or notify:
            self.waits = 0
            return False
        if self.always:
            return True
        if not self.kernel.lone:
            self.waits = 0
            return False
        if self.waits < WAITS_MIN:
            self.waits += 1
            return False
        return self.thread.is_fast()

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def leave(self) -> cython.int:
        """The batch is queued, and the thread was not woken: commit it when the turn is over."""
        if self.kernel.lone:
            self.kernel.after_read = self
        else:
            self.kernel.loop.call_soon(self.commit)
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def run(self) -> cython.int:
        completed: cython.bint
        with cython.nogil:
            completed = self.thread.commit_here()
        if completed:
            self.done()
        return 0

    def commit(self) -> None:
        """`run`, called by the loop."""
        self.run()
