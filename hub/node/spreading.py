"""Leaders are spread again after a failover: who leads much more than another node gives one away.

One move at a time, and none while a member is missing or has come back only now. A difference of
one is left alone, so what an operator has asked for stays where it is.
"""

from headwater.hub.api.cluster import Cluster
from headwater.hub.meta.assignment import META_GROUP
from headwater.hub.raft.progress import State
from headwater.hub.raft.raft import Raft

CALM_SECONDS = 30.0
"""For which all members must be there before a leader moves."""
PAUSE_SECONDS = 5.0
"""Between two moves of a node."""
UNEVEN = 2
"""By how many streams a node must lead more than the other."""


class Spreading:
    """What one node gives away. Times are monotonic seconds."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.calm_seconds = CALM_SECONDS
        self.pause_seconds = PAUSE_SECONDS
        self._calm_since: float | None = None
        self._moved = 0.0

    def next_move(self, now: float, groups: dict[int, Raft]) -> tuple[int, int] | None:
        """A group that is led here and the node that should lead it; None when all is even enough
        or it is too early. Asked once a second."""
        cluster = self.cluster
        members = cluster.group.members
        if not all(cluster.founding.is_online(number) for number in members):
            self._calm_since = None
            return None
        if self._calm_since is None:
            self._calm_since = now
        if now - self._calm_since < self.calm_seconds or now - self._moved < self.pause_seconds:
            return None
        led = {n: raft for n, raft in groups.items() if n != META_GROUP and raft.is_leader}
        found = [
            (hello.leads, number, group)
            for group, raft in led.items()
            for number in ready_to_lead(raft)
            if (hello := cluster.founding.hello_of(number)) and hello.may_lead
        ]
        if not found or len(led) - min(found)[0] < UNEVEN:
            return None
        self._moved = now
        _, number, group = min(found)
        return group, number


def ready_to_lead(raft: Raft) -> list[int]:
    """The voters that have everything."""
    return [
        number
        for number, one in raft.progress.items()
        if number in raft.log.config.voters
        and one.state is State.REPLICATE
        and one.match >= raft.log.committed
    ]
