"""Who waits until the commit log is written, or synced, up to some batch."""

import cython
from cython.cimports.headwater.edge.kernel.kernel import Kernel, Task


@cython.cclass
class Waiters:
    """Tasks and callables, each with the number of the batch that it waits for. Whoever asks for
    something waits once, so their number is bounded by that of requests and streams."""

    def __init__(self, kernel: Kernel):
        self.kernel = kernel
        self.waiting = []

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def add(self, batch: cython.ulonglong, waiter: object) -> cython.int:
        """Have `waiter` released with `batch`."""
        self.waiting.append((batch, waiter))
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def release(self, batch: cython.ulonglong) -> cython.int:
        """Release what waits for batches up to `batch`. When one raises, the others are released
        all the same, and the first error is raised behind that."""
        left: list
        error: object = None
        before: list = self.waiting
        if not before:
            return 0
        left = []
        self.waiting = []
        for wait in before:
            if wait[0] > batch:
                left.append(wait)
                continue
            try:
                self.let_go(wait[1])
            except Exception as raised:
                error = error or raised
        # What was released may have added somebody.
        self.waiting = left + self.waiting
        if error is not None:
            raise error
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def let_go(self, waiter: object) -> cython.int:
        """Schedule a Task, or call a callable."""
        if isinstance(waiter, Task):
            self.kernel.schedule(cython.cast(Task, waiter))
        else:
            cython.cast(object, waiter)()
        return 0
