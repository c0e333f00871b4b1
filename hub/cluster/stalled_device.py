"""Whether the device of a node that leads has stopped while the devices of the others go on.

What a group commits without this node's device is not applied here before that has written it. So a
leader whose device stalls holds up everybody who asks it for something: another one is to lead.
"""

from headwater.hub.raft.log import RaftLog
from headwater.hub.raft.raft import Raft

STALL_TICKS = 40
"""For which a leader's device may write nothing that the others' have, before one of them is asked
to lead: two seconds. What waits for an ack then is refused, so a shorter pause is better borne."""


class StalledDevice:
    """Of one group on this node. Not thread-safe."""

    def __init__(self) -> None:
        self._since = 0
        self._durable = -1
        """Up to where this node's device had the log when it was looked at last."""

    def look(self, raft: Raft, leaves: bool) -> bool:
        """Look at a leader's log, once a tick or more often. True when another node is to lead;
        after that again in `STALL_TICKS`. `leaves`: one is asked to already."""
        rows: RaftLog = raft.log
        if rows.durable >= rows.committed or rows.durable != self._durable:
            self._durable, self._since = rows.durable, raft.ticks
        elif raft.ticks - self._since >= STALL_TICKS and not leaves:
            self._since = raft.ticks
            return True
        return False
