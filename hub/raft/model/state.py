"""What each rule remembers of a group between two inputs, one record for each.

Records know nothing of the rules: those are in the modules named with them.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from headwater.hub.raft.model.config import Config
from headwater.hub.raft.model.message import Message

ROUNDS_MAX = 64
"""Rounds whose start is remembered; older ones are worth no lease."""


class Round(NamedTuple):
    """When a round of heartbeats was sent."""

    number: int  # grows with every round
    ticks: int  # when it was sent, in ticks
    now_ns: int  # and by the driver's clock


class Pending(NamedTuple):
    """A read that waits for round `round`."""

    round: int  # of heartbeats that has to be answered
    index: int  # type: ignore[assignment]  # hides tuple.index
    context: int  # of who asked, handed back
    request: Message | None  # a follower's message; None: asked here


@dataclass(slots=True)
class Reading:
    """`reads` and `heartbeat`. Bounded by `Options.reads_max` and `ROUNDS_MAX`."""

    since_heartbeat: int = 0  # ticks
    number: int = 0  # grows with every round
    rounds: deque[Round] = field(
        default_factory=lambda: deque(maxlen=ROUNDS_MAX)
    )  # those that may still be answered
    confirmed: Round | None = None
    """The newest round that a quorum answered."""
    pending: deque[Pending] = field(default_factory=deque)  # reads that wait for a round
    early: list[tuple[int, Message | None]] = field(default_factory=list)
    """Reads before this leader's first commit: it does not know the commit index yet."""
    asked: dict[int, int] = field(default_factory=dict)
    """A follower's own reads: context -> tick of asking."""


@dataclass(slots=True)
class Transfer:
    """`transfer`: a handover under way. No proposal is taken meanwhile."""

    target: int = 0  # the node that shall lead; 0: none
    since: int = 0
    """The tick at which it was asked for."""
    asked: int = -1
    """The tick at which the target was asked to campaign first; -1: it was not."""
    spent: bool = False
    """A TIMEOUT_NOW was sent in this term: it may arrive late and end a lease, so there is none
    any more."""

    def clear(self) -> None:
        """Another term, or another role."""
        self.target = 0
        self.spent = False


@dataclass(slots=True)
class Sleep:
    """`hibernation`: whether the group sleeps, and how long it has been quiet."""

    asleep: bool = False  # no ticks count until somebody wakes it
    quiet_ticks: int = 0  # ticks without anything new
    quiet_last: int = 0  # the log's end then
    restless: bool = False
    """The driver has something to try again with the next ticks: no sleep."""


class Answer(NamedTuple):
    """What another voter knows."""

    term: int  # the newest one it knows
    log_term: int  # of its last entry
    last: int  # index of its last entry
    config: Config  # the newest configuration it has
    lost: bool = False  # as of `Recovery`, and it is not made good yet


@dataclass(slots=True)
class Recovery:
    """`recovery`. Bounded by the number of members."""

    seeds: tuple[int, ...]  # nodes to ask when no member is known
    incarnation_floor: int = 0
    """Incarnations below this number are over, even when the present start has their number."""
    lost: bool = False  # as of `Restored`
    gap: bool = False
    """So many voters had lost something at once that entries which were acknowledged may be in no
    log any more."""
    since_hello: int = 0  # ticks since the others were asked
    answers: dict[int, Answer] = field(default_factory=dict)  # by node, of this recovery
