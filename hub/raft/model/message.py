"""What members of a group say to each other."""

from dataclasses import dataclass, field
from enum import IntEnum

from headwater.hub.raft.model.config import Config
from headwater.hub.raft.model.entry import Entry


class Kind(IntEnum):
    """Kinds of messages. Those with a reply are followed by it."""

    PRE_VOTE = 1
    PRE_VOTE_REPLY = 2
    VOTE = 3
    VOTE_REPLY = 4
    APPEND = 5
    APPEND_REPLY = 6
    HEARTBEAT = 7
    HEARTBEAT_REPLY = 8
    SNAPSHOT = 9
    SNAPSHOT_REPLY = 10
    TIMEOUT_NOW = 11
    """Campaign at once: the leader hands over."""
    READ = 12
    """A follower asks for a read index."""
    READ_REPLY = 13
    HELLO = 14
    """A member that may have forgotten something asks what the others know."""
    HELLO_REPLY = 15
    GONE = 16
    """You were removed."""


REPLIES = frozenset(
    (
        Kind.PRE_VOTE_REPLY,
        Kind.VOTE_REPLY,
        Kind.APPEND_REPLY,
        Kind.HEARTBEAT_REPLY,
        Kind.SNAPSHOT_REPLY,
        Kind.READ_REPLY,
        Kind.HELLO_REPLY,
        Kind.GONE,
    )
)
FROM_LEADER = frozenset((Kind.APPEND, Kind.HEARTBEAT, Kind.SNAPSHOT))
OUT_OF_TERM = frozenset((Kind.HELLO, Kind.HELLO_REPLY, Kind.GONE))
"""These say nothing about the term of a leader or a candidate."""


@dataclass(slots=True)
class Message:
    """One message; treat it as immutable once sent. Fields that a kind does not use stay 0."""

    kind: Kind  # what it says
    sender: int  # number of the node
    to: int  # number of the node
    group: int = 0  # its number
    term: int = 0  # of the sender; 0 where none is meant
    incarnation: int = 0
    """Which incarnation of the sender speaks as a member."""
    boot: int = 0
    """The sender's start; greater than that of every start before."""
    to_boot: int = 0
    """In replies: the start that asked. A reply to an earlier start is dropped."""
    index: int = 0
    """APPEND: index before the first entry. Its reply: last index at which the logs are the same,
    or the one refused. VOTE, HELLO_REPLY: end of the log. SNAPSHOT: its index, 0 while that is
    open. READ_REPLY: read index."""
    log_term: int = 0
    """Term at `index`."""
    commit: int = 0  # the sender's commit index; SNAPSHOT: `whole` of `snapshot.Part`
    entries: list[Entry] = field(default_factory=list)  # APPEND: behind `index`, in order
    reject: bool = False  # replies: refused; HELLO_REPLY: as `lost` of `state.Answer`
    hint: int = 0
    """APPEND_REPLY that refuses: an index at or before which the logs may agree, of term
    `log_term`. SNAPSHOT: the position behind `part`."""
    context: int = 0
    """Round of heartbeats, the asker's number of a read, or the session of a SNAPSHOT."""
    force: bool = False
    """VOTE: the leader wants this election. HEARTBEAT: go to sleep, all is quiet."""
    offset: int = 0
    """SNAPSHOT: the position before `part`. Its reply: the position that is reached; one that
    refuses has nothing more of what it had."""
    size: int = 0  # SNAPSHOT: as of `snapshot.Part`
    digest: int = 0  # SNAPSHOT: as of `snapshot.Part`
    part: bytes = b""  # SNAPSHOT: what the sender's driver made
    config: Config | None = None
    """SNAPSHOT, HELLO_REPLY."""
    tag: int = 0
    """Of what the group is on the sender's node, as a number; 0 when it does not say."""
