"""Deduplication by Nats-Msg-Id: the ids of a window of time, per stream."""

from collections import deque
from collections.abc import Iterator

import cython

# Ids remembered at most, so that a flood of distinct ids cannot take the memory of a gateway; the
# oldest are forgotten first.
IDS_MAX = cython.declare(cython.Py_ssize_t, 4_000_000)


@cython.cclass
class DedupeWindow:
    """Which message ids were stored in the last `window_ns`, and under which sequence.

    It is not stored: after a start the stream fills it from the messages of the window, when the
    first id is asked for (`loaded`). A replica that does not lead fills it with what it applies.
    """

    def __init__(self, window_ns: int):
        self.known = {}
        self.order = deque()
        self.window_ns = window_ns
        self.loaded = False

    @cython.cfunc
    @cython.exceptval(0, check=True)
    def find(self, msg_id: bytes, now_ns: cython.longlong) -> cython.ulonglong:
        """The sequence stored for `msg_id`, 0 when it is new."""
        self.expire(now_ns)
        found = self.known.get(msg_id)
        if found is None:
            return 0
        return found

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def put(self, msg_id: bytes, sequence: cython.ulonglong, now_ns: cython.longlong) -> cython.int:
        """Remember `msg_id`."""
        self.known[msg_id] = sequence
        self.order.append((now_ns, msg_id, sequence))
        if len(self.order) > IDS_MAX:
            self.forget_oldest()
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def expire(self, now_ns: cython.longlong) -> cython.int:
        """Forget the ids that are older than the window."""
        limit: cython.longlong = now_ns - self.window_ns
        while self.order and cython.cast(cython.longlong, self.order[0][0]) < limit:
            self.forget_oldest()
        return 0

    def forget_oldest(self) -> None:
        _, msg_id, sequence = self.order.popleft()
        if self.known.get(msg_id) == sequence:
            del self.known[msg_id]

    def cut(self, last: int) -> None:
        """Forget ids of sequences above `last`: nothing came to be there."""
        while self.order and self.order[len(self.order) - 1][2] > last:
            _, msg_id, sequence = self.order.pop()
            if self.known.get(msg_id) == sequence:
                del self.known[msg_id]

    def knows(self, msg_id: bytes, sequence: int) -> bool:
        """Whether an id was stored under that sequence, as far as is remembered."""
        return self.known.get(msg_id) == sequence

    def remember(self, msg_id: bytes, sequence: int, ns: int) -> None:
        """`put` for interpreted callers."""
        self.put(msg_id, sequence, ns)

    def sequence_of(self, msg_id: bytes, ns: int) -> int:
        """`find` for interpreted callers."""
        return self.find(msg_id, ns)

    def newest_first(self) -> Iterator[tuple[int, bytes, int]]:
        """What is remembered: nanoseconds, id and sequence."""
        return reversed(self.order)

    def resize(self, window_ns: int) -> None:
        """Change the window; what is outside of a smaller one is forgotten at the next look."""
        self.window_ns = window_ns

    def clear(self) -> None:
        """Forget everything."""
        self.known.clear()
        self.order.clear()

    def __len__(self) -> int:
        return len(self.known)
