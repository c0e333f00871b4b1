"""Memory of streams that were deleted."""

import gc

from headwater.edge.kernel.kernel import Kernel
from headwater.edge.storage.index.store import MessageStore

WORTH_BYTES = 4 << 20
"""What deleted streams may keep before somebody looks: an empty one keeps 12 KiB."""
REST = 50
"""A look takes one of so many seconds at most: it walks through all objects of the node."""
WAIT_S = 1.0
"""Until a look: whoever still reads from a deleted stream is done by then, mostly."""

_STREAM_BYTES = 12 << 10
_SUBJECT_BYTES = 128
_MESSAGE_BYTES = 40


def give_back() -> None:
    """Let the system have memory that was freed, where the C library can (glibc): what is freed
    below something that stays would be this process's for good."""
    import ctypes

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


class Leftovers:
    """Has Python look for deleted streams, which refer to themselves: their memory serves again.

    Python looks by itself after two million new objects (`GARBAGE` in `deploy/serve.py`). It counts
    objects, and one store's index is a single object of any size.
    """

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._bytes = 0
        self._waits = False
        self._next_ns = 0
        """Time of the kernel's monotonic clock before which nobody looks."""

    def add(self, store: MessageStore) -> None:
        """A stream is deleted, with what its store has in memory."""
        state = store.state()
        self._bytes += (
            _STREAM_BYTES
            + _SUBJECT_BYTES * state["num_subjects"]
            + _MESSAGE_BYTES * state["messages"]
        )
        if self._bytes >= WORTH_BYTES and not self._waits:
            self._waits = True
            wait_s = max((self._next_ns - self._kernel.monotonic_ns()) / 1e9, WAIT_S)
            self._kernel.loop.call_later(wait_s, self._look)

    def _look(self) -> None:
        self._waits = False
        self._bytes = 0
        begin = self._kernel.monotonic_ns()
        gc.collect()
        give_back()
        end = self._kernel.monotonic_ns()
        self._next_ns = end + REST * (end - begin)
