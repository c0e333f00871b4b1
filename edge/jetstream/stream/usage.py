"""Bytes that streams use, counted against the limit of an account and of the node."""

import cython


@cython.cclass
class Usage:
    """A counter of bytes with a limit (-1: none). What is counted counts in `parent` as well.

    `reserved` is what the streams below have been promised by their `max_bytes`.
    """

    def __init__(self, name: str, limit: int = -1, parent: "Usage | None" = None):
        self.name = name
        self.limit = limit
        self.parent = parent
        self.used = 0
        self.reserved = 0

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def exceeds(self, more: cython.longlong) -> cython.bint:
        """Whether `more` bytes would not fit."""
        return self.limit >= 0 and self.used + more > self.limit

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def change(self, by: cython.longlong) -> cython.int:
        """Count `by` bytes more, or fewer when negative."""
        self.used += by
        if self.parent is not None:
            self.parent.change(by)
        return 0

    def reserve(self, by: int) -> None:
        """Promise `by` bytes, or take a promise back when negative."""
        self.reserved += by
        if self.parent is not None:
            self.parent.reserve(by)

    def room_for(self, reservation: int) -> bool:
        """Whether a reservation (0 or less: one byte at least) fits below every limit."""
        more: int = reservation if reservation > 0 else 1
        if self.limit >= 0 and self.reserved + more > self.limit:
            return False
        return self.parent is None or self.parent.room_for(reservation)
