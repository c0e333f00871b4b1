"""Peers that held producers back for too long: for a while they are not listened to.

A link is made again in no time, so what it did is remembered of who made it.
"""

from collections.abc import Hashable

PASSED_OVER_S = 600.0
KEPT_MAX = 1024


class SlowPeers:
    """Who has held back for too long of late: the newest `KEPT_MAX` of them."""

    def __init__(self) -> None:
        self._until: dict[Hashable, float] = {}

    def add(self, peer: Hashable, now_s: float) -> None:
        """Pass over what a peer asks, for `PASSED_OVER_S`."""
        self._until.pop(peer, None)
        if len(self._until) >= KEPT_MAX:
            del self._until[next(iter(self._until))]
        self._until[peer] = now_s + PASSED_OVER_S

    def has(self, peer: Hashable, now_s: float) -> bool:
        """Whether what a peer asks is passed over."""
        return self._until.get(peer, now_s) > now_s
