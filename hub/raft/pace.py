"""How long ticks last: when a node is behind, all that hear of it tick more slowly.

Ticks are told apart by counting, so a node whose processor is taken away by others counts slowly,
and sends heartbeats as slowly. Peers that count faster would take it for gone, and each election
makes more work for all. So every packet says how late the sender's ticks are, and nodes tick at
the pace of the slowest one that they hear. A node that is silent holds nobody up.

Longer ticks are safe: silence and leases are counted in ticks that are never shorter than
`Options.tick_ns`, and a lease ends by the clock, too.
"""

from collections import deque

SLOWEST = 8
"""Times the shortest tick. An election then begins after four seconds of silence."""
LATE_TICKS = 4
"""The least late of so many ticks counts: one long turn is no reason to slow anybody."""
WORTH_NS = 10_000_000
"""What is late by less is on time."""


class Pace:
    """Of one node. Not thread-safe. `tick_ns` is the shortest tick."""

    def __init__(self, tick_ns: int) -> None:
        self.tick_ns = tick_ns  # the shortest tick
        self._late: deque[int] = deque(maxlen=LATE_TICKS)  # of the newest ticks, in ns
        self._heard: dict[int, int] = {}  # by node: how late it says it is, in ns

    def ticked(self, late_ns: int) -> None:
        """A tick came so much later than it was due."""
        self._late.append(late_ns)

    @property
    def own_ns(self) -> int:
        """How late this node is, for the others; 0 when it is on time."""
        late = min(self._late) if len(self._late) == LATE_TICKS else 0
        return late if late >= WORTH_NS else 0

    def hear(self, node: int, late_ns: int) -> None:
        """A node says how late it is."""
        if late_ns:
            self._heard[node] = late_ns
        else:
            self._heard.pop(node, None)

    def forget(self, node: int) -> None:
        """A node is silent."""
        self._heard.pop(node, None)

    def interval_ns(self) -> int:
        """How long the next tick lasts: twice as long as the latest node is late, so that it has
        time for more than ticks."""
        late = max([self.own_ns, *self._heard.values()])
        return min(max(self.tick_ns, 2 * late), SLOWEST * self.tick_ns)
