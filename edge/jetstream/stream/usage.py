"""Bytes that streams use, counted against the limit of an account and of the node."""

import cython

from headwater.edge.jetstream.model import errors

REFUSALS = {
    1: errors.INSUFFICIENT_RESOURCES,
    2: errors.ACCOUNT_RESOURCES_EXCEEDED,
    3: errors.NO_LIMITS,
}
"""What answers `Usage.refuses`, by what it returns."""


@cython.cclass
class Usage:
    """A counter of bytes with a limit (-1: none). What is counted counts in `parent` as well.

    The first one in a row of parents is what a stream draws on, the last one is the node's; the
    limits between them are the account's. `reserved` is what the streams below have been promised
    by their `max_bytes`. `elsewhere` is what counts against the limit and is on other nodes of the
    cluster, as far as they have told. `replicas` is how often a stream's bytes are stored, and so
    how much a new one weighs with the account. `granted` is False for replicas that none of the
    account's tiers is for.
    """

    def __init__(self, name: str, limit: int = -1, parent: "Usage | None" = None):
        self.name = name
        self.limit = limit
        self.parent = parent
        self.used = 0
        self.reserved = 0
        self.elsewhere = 0
        self.replicas = 1
        self.granted = True

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def refuses(self, more: cython.longlong) -> cython.int:
        """Whether `more` bytes would not fit: 1 the node has no room, 2 the account, 3 the account
        has no tier for them; 0 they do.

        As in nats-server the node refuses when it is above its limit: one message may pass it, so
        that a stream that may have all of it goes on and discards its oldest."""
        return self.full(more, more, self.replicas)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def full(
        self, more: cython.longlong, weight: cython.longlong, replicas: cython.int
    ) -> cython.int:
        """`refuses` from here on: `more` bytes weigh `weight` here, and `replicas` times as much as
        they are with the parents below the node's."""
        refused: cython.int
        if self.parent is None:
            return 1 if self.limit >= 0 and self.used > self.limit else 0
        refused = self.parent.full(more, more * replicas, replicas)
        if (
            refused == 0
            and self.limit >= 0
            and self.used + self.elsewhere + weight > self.limit
        ):
            refused = 2 if self.granted else 3
        return refused

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

    def is_over(self) -> bool:
        """Whether more is used than the limit of this one."""
        return 0 <= self.limit < self.used

    def room_for(self, reservation: int) -> bool:
        """Whether a reservation (0 or less: one byte at least) fits below every limit."""
        more: int = reservation if reservation > 0 else 1
        if self.limit >= 0 and self.reserved + more > self.limit:
            return False
        return self.parent is None or self.parent.room_for(reservation)
