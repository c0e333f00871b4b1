"""What the leader knows about one other member.

       PROBE  --- accepted --->  REPLICATE
         ^  ^---- refused ---------'   |
         |                             | what it needs is compacted
         '------ snapshot done --- SNAPSHOT <-'

In PROBE one message is under way; in REPLICATE many, and `next` runs ahead of what is confirmed.
"""

from collections import deque
from dataclasses import dataclass, field
from enum import Enum


class State(Enum):
    """How a member is fed."""

    PROBE = "probe"  # one message at a time
    REPLICATE = "replicate"  # many under way
    SNAPSHOT = "snapshot"  # what it needs is compacted


@dataclass(slots=True)
class MemberProgress:
    """Invariant: 0 <= match < next."""

    incarnation: int
    """Only replies of this incarnation count."""
    next: int
    """The index to send next."""
    match: int = 0
    """Everything up to here is durable there."""
    state: State = State.PROBE  # how it is fed now
    paused: bool = False
    """PROBE: a message is under way; a heartbeat's reply sends again."""
    inflight: deque[tuple[int, int]] = field(default_factory=deque)
    """REPLICATE: (last index, bytes) of messages under way; bounded by `Options.inflight_max`."""
    inflight_bytes: int = 0  # of `inflight`
    snapshot_index: int = 0  # of the state whose end was sent last; 0: none
    session: int = 0  # of the transfer of the state
    position: int = -1
    """What of the state has arrived; -1 until the member has said what it has."""
    position_sent: int = 0  # behind the newest part on its way
    flying: deque[int] = field(default_factory=deque)
    """Positions behind the parts on their way; bounded by `Options.snapshot_parts_max`."""
    silent: int = 0  # rounds of heartbeats since a part was answered
    active: bool = False
    """It was heard since the last check of the quorum."""
    round: int = 0
    """Newest round of heartbeats it has answered."""
    nudged: int = 0
    """Newest round of heartbeats that had begun when an answer to one made the leader send again.
    Only answers to later ones do so again: a node that stood still answers hundreds at once."""
    commit_sent: int = 0  # commit index that was sent last
    asleep: bool = False
    """It agreed to hibernate."""
    hello_ticks: int = 0
    """How long another incarnation of this node has been asking to come back."""
    hello_boot: int = 0  # number of the start that asks to come back

    def to_probe(self) -> None:
        """Find out where the logs agree."""
        self.state = State.PROBE
        self.next = max(self.match, self.snapshot_index if self.snapshot_index else 0) + 1
        self.snapshot_index = 0
        self.clear()

    def to_replicate(self) -> None:
        """The logs agree at `match`: send without waiting."""
        self.state = State.REPLICATE
        self.next = self.match + 1
        self.snapshot_index = 0
        self.clear()

    def to_snapshot(self, session: int) -> None:
        """The log does not reach back far enough."""
        self.state = State.SNAPSHOT
        self.snapshot_index = 0
        self.session = session
        self.position = -1
        self.silent = 0
        self.clear()

    def rewind(self, position: int) -> None:
        """Send the state from a position on: nothing behind it is on its way."""
        self.position = self.position_sent = position
        self.flying.clear()
        self.silent = 0

    def arrived(self, position: int) -> bool:
        """Learn how far the state has arrived. Returns whether that is news."""
        if position <= self.position:
            return False
        if self.position < 0 or position > self.position_sent:
            self.rewind(position)
            return True
        self.position = position
        self.silent = 0
        while self.flying and self.flying[0] <= position:
            self.flying.popleft()
        return True

    def clear(self) -> None:
        """Nothing is under way."""
        self.paused = False
        self.inflight.clear()
        self.inflight_bytes = 0

    def forget(self) -> None:
        """The node started again: nothing about it is certain."""
        self.match = 0
        self.snapshot_index = 0
        self.flying.clear()
        self.state = State.PROBE
        self.round = self.nudged = 0
        self.asleep = False
        self.commit_sent = 0
        self.clear()

    def accepted(self, index: int) -> bool:
        """Learn that everything up to `index` is there. Returns whether that is news."""
        news = index > self.match
        if news:
            self.match = index
        self.next = max(self.next, index + 1)
        while self.inflight and self.inflight[0][0] <= index:
            self.inflight_bytes -= self.inflight.popleft()[1]
        return news

    def refused(self, index: int, hint: int) -> bool:
        """Learn of a refusal of the append that followed `index`. False when it is an old one."""
        if self.state is State.REPLICATE:
            if index <= self.match:
                return False
            self.to_probe()
            return True
        if self.next - 1 != index:
            return False
        self.next = max(min(index, hint + 1), self.match + 1)
        self.paused = False
        return True

    def sent(self, last: int, size: int) -> None:
        """Remember an append whose last entry is at `last`."""
        if self.state is State.REPLICATE:
            self.inflight.append((last, size))
            self.inflight_bytes += size
            self.next = last + 1
        else:
            self.paused = True

    def full(self, messages_max: int, bytes_max: int) -> bool:
        """Whether nothing more may be sent now."""
        if self.state is State.PROBE:
            return self.paused
        return len(self.inflight) >= messages_max or self.inflight_bytes >= bytes_max
