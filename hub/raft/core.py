"""One member of one group, as the rules see it: its state, what it can say, and its transitions.

The rules (`election`, `recovery`, `replication`, ...) are functions over this state and import
nothing above it. A transition concerns several of them; `raft` composes it, and the rules call it
here.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable

from headwater.hub.raft.log import RaftLog
from headwater.hub.raft.model.errors import invariant
from headwater.hub.raft.model.hard_state import HardState
from headwater.hub.raft.model.message import OUT_OF_TERM, Kind, Message
from headwater.hub.raft.model.options import Options
from headwater.hub.raft.model.ready import ReadState, Restored, Unsynced
from headwater.hub.raft.model.role import Role
from headwater.hub.raft.model.snapshot import Snapshot, Wanted
from headwater.hub.raft.model.state import Reading, Recovery, Sleep, Transfer
from headwater.hub.raft.progress import MemberProgress

AFTER_SYNC = frozenset(
    (Kind.VOTE, Kind.VOTE_REPLY, Kind.APPEND_REPLY, Kind.SNAPSHOT_REPLY, Kind.HELLO_REPLY)
)
"""These promise something. A HELLO_REPLY tells where the log ends: others refuse logs that end
before that, so it must not be lost."""


class Core(ABC):
    """`chance(n)` gives a number below n, from the driver's random port. Terms, indexes and ticks
    begin at 1; 0 is none."""

    def __init__(
        self,
        group: int,
        node: int,
        boot: int,
        restored: Restored,
        chance: Callable[[int], int],
        options: Options | None = None,
    ) -> None:
        invariant(node > 0 and boot > 0, "node and boot begin at 1")
        self.group = group  # its number
        self.tag = 0
        """Of what the group is, as a number; 0 where that is not said. A group of another thing
        under the same number is not listened to."""
        self.node = node  # this node's number
        self.boot = boot
        """Number of this start of the node, greater than that of every start before."""
        self.options = options or Options()  # timeouts and bounds
        self.chance = chance  # see the class
        self.log = RaftLog(
            restored.snapshot, list(restored.entries)
        )  # entries behind the newest snapshot
        hard = restored.hard_state or HardState()
        self.term = hard.term  # the newest one that is known
        self.vote = hard.vote
        """The node voted for in this term."""
        self.incarnation = hard.incarnation
        """As which incarnation this node is a member: the start in which it was taken in."""
        self.vote_floor = hard.vote_floor
        """No vote in a term below: one may have been given and forgotten."""
        self.barrier = (hard.barrier_term, hard.barrier_index)
        """No vote for a log that ends before this (term, index)."""
        self.removed = hard.removed
        """Removed for good: says nothing any more."""
        self.role = Role.FOLLOWER  # follower, candidate, leader, ...
        self.leader = 0  # the node that leads this term; 0 when none is known
        self.ticks = 0  # since the start
        self.led = -self.options.election_ticks
        """The tick at which a leader was heard last, in whatever term."""
        self.now_ns = 0
        """The driver's monotonic clock, as it was told last."""
        self.moment_ns: int | None = None
        """What that clock says while a packet is taken; None when nobody has looked at it."""
        self.elapsed = 0
        """Ticks since a leader's word, or, in a leader, since it last checked its quorum."""
        self.timeout = 0
        """Ticks of silence after which this node stands."""
        self.started_quiet = True
        """No election timeout has passed since the start: a lease may still count on this node."""
        self.votes: dict[int, bool] = {}  # a candidate's: who granted
        self.progress: dict[int, MemberProgress] = {}  # a leader's: every other member
        self.peer_boots: dict[int, int] = {}
        """The newest start of each node that was heard."""
        self.sessions = 0
        """Transfers of the state that this leader has begun."""
        self.transfer = Transfer()  # a handover under way
        self.reading = Reading()  # reads that wait for a quorum
        self.sleep = Sleep()  # whether the group hibernates
        self.recovery = Recovery(
            restored.seeds, restored.incarnation_floor
        )  # how a member that may have forgotten comes back
        self.recovering = False
        """Votes or acks may be forgotten: no vote, no candidacy, no counted ack."""
        self.append_due = False
        """There is news for the members, to be sent with the next `Ready`."""
        self.commit_due = False
        """Some members may not know of the newest commit, and it waits for entries to go with."""
        self.verified = 0
        """Up to here the log is known to be that of the leader of this term."""
        self._begin_outputs(restored)

    def _begin_outputs(self, restored: Restored) -> None:
        """Nothing is due to be said or written."""
        self._now: list[Message] = []  # messages to send at once
        self._held: list[Message] = []  # messages to send after the next sync
        self._reads_done: list[ReadState] = []  # reads to answer with the next Ready
        self._unsynced: deque[Unsynced] = deque()  # what waits for the disk, in order
        self._number = 0  # of the newest Ready
        self._hard_version = 0  # counts changes of the hard state
        self._hard_synced = 0  # the newest version on disk
        self._hard_handed = 0  # the newest version in a Ready
        self._hard_last = restored.hard_state  # the hard state that was handed over last
        self._installed: Snapshot | None = None  # a leader's snapshot for the next Ready
        self.parts: list[Message] = []  # of a leader's state, for the next Ready
        self.wanted: dict[int, Wanted] = {}  # parts that members can take, for the next Ready

    # -- what may be asked ----------------------------------------------------

    @property
    def is_leader(self) -> bool:
        return self.role is Role.LEADER

    @property
    def is_voter(self) -> bool:
        """Whether this incarnation of this node is a voter of the newest configuration here."""
        return self.log.config.voters.get(self.node) == self.incarnation

    @property
    def below_barrier(self) -> bool:
        """Acks may have been forgotten that this log has not made good yet."""
        return (self.log.last_term, self.log.last) < self.barrier

    @property
    def whole(self) -> bool:
        """Whether a stop now may be marked clean."""
        return not self.recovering

    def hard_state(self) -> HardState:
        """What storage must remember."""
        return HardState(
            self.term,
            self.vote,
            min(self.log.committed, self.log.durable),
            self.incarnation,
            self.vote_floor,
            *self.barrier,
            self.removed,
        )

    # -- what the rules do to it ----------------------------------------------

    def send(self, m: Message) -> None:
        """Say something, at once or when what it promises is durable."""
        m.group = self.group
        m.tag = self.tag
        m.boot = self.boot
        m.incarnation = self.incarnation
        if not m.term and m.kind not in OUT_OF_TERM:
            m.term = self.term
        if m.kind in AFTER_SYNC or self._hard_version != self._hard_synced:
            self._held.append(m)
        else:
            self._now.append(m)

    def reply(self, to: Message, kind: Kind, **fields: object) -> None:
        """Answer one start of the sender, and no later one."""
        self.send(Message(kind, self.node, to.sender, to_boot=to.boot, **fields))  # type: ignore[arg-type]

    def hard_changed(self) -> None:
        """Something that must be durable before anything else is said has changed."""
        self._hard_version += 1

    def set_term(self, term: int, vote: int = 0) -> None:
        """Enter a term. Terms never go back, and a vote is never changed within one."""
        invariant(term >= self.term, "a term goes back")
        invariant(term > self.term or self.vote in (0, vote), "a second vote in one term")
        if (term, vote) != (self.term, self.vote):
            self.term = term
            self.vote = vote
            self.hard_changed()

    def read_done(self, context: int, index: int | None) -> None:
        """A read of this node has ended; None: ask again."""
        self._reads_done.append(ReadState(context, index))

    # -- transitions, composed in `raft` --------------------------------------

    @abstractmethod
    def become_follower(self, term: int, leader: int) -> None:
        """Follow `leader`, or nobody (0)."""

    @abstractmethod
    def become_leader(self) -> None:
        """A majority voted for this node."""

    @abstractmethod
    def commit_to(self, index: int) -> None:
        """Everything up to `index` is committed."""

    @abstractmethod
    def snapshot_installed(self, snapshot: Snapshot) -> None:
        """A leader's snapshot has replaced the log."""

    @abstractmethod
    def check_config(self) -> None:
        """Notice that the log brought another configuration, or took one back."""
