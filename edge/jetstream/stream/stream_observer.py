"""What a stream asks and tells those who read it: its consumers."""

import cython
from cython.cimports.headwater.edge.kernel.kernel import Task


@cython.cclass
class StreamObserver(Task):
    """Scheduled when the stream has something new."""

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def needs(self, sequence: cython.ulonglong) -> cython.bint:
        """Whether a message must stay for this reader."""
        return False

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def removed(self, sequence: cython.ulonglong) -> cython.int:
        """The stream dropped a message."""
        return 0
