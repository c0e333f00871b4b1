"""What a group wants done. The driver does it; the group never waits."""

from dataclasses import dataclass, field

from headwater.hub.raft.model.config import Config
from headwater.hub.raft.model.entry import Entry
from headwater.hub.raft.model.errors import invariant
from headwater.hub.raft.model.hard_state import HardState
from headwater.hub.raft.model.message import Message
from headwater.hub.raft.model.snapshot import Snapshot, Wanted


@dataclass(frozen=True, slots=True)
class ReadState:
    """The end of a read: serve it when `index` is applied; None: no leader confirmed it, ask
    again."""

    context: int  # of who asked
    index: int | None  # None: no leader confirmed it


@dataclass(slots=True)
class Ready:
    """One batch of work, to be done in this order:

    1. send `messages`;
    2. install `snapshot` into the state machine;
    3. write `snapshot`, `hard_state` and `entries`, and sync them;
    4. call `Raft.synced(number)`, in the order of numbers, and send what it returns.

    `committed` may be applied at any time, in order, and `reads` are answered when their index is
    applied. More batches may be taken while one is being synced.
    """

    number: int  # grows by one
    messages: list[Message] = field(default_factory=list)  # to send at once
    hard_state: HardState | None = None  # to write; None: unchanged
    entries: list[Entry] = field(default_factory=list)
    """The first one's index tells from where on the disk's entries are replaced."""
    before_term: int = 0
    """The term of the index before `entries`."""
    snapshot: Snapshot | None = None
    """Takes the place of the whole log. Its state has arrived in parts before, and takes the place
    of the state machine's."""
    committed: list[Entry] = field(default_factory=list)  # to apply, in order
    reads: list[ReadState] = field(default_factory=list)  # that can be answered
    parts: list[Message] = field(default_factory=list)
    """SNAPSHOT messages: keep their parts, and answer with `Raft.part_kept`; with the last one
    comes `Raft.snapshot_arrived`."""
    wanted: list[Wanted] = field(default_factory=list)
    """Members that can take a part of the state: answer with `Raft.send_part`, now or never; it is
    asked again."""

    @property
    def writes(self) -> bool:
        """Whether there is anything to sync."""
        return bool(self.entries) or self.hard_state is not None or self.snapshot is not None


@dataclass(slots=True)
class Unsynced:
    """What waits for the disk, and what may be said when it is done."""

    number: int  # grows by one
    last: int  # index of the newest entry in it
    last_term: int  # its term
    hard_version: int  # of the hard state in it
    held: list[Message]  # messages to send when it is durable
    writes: bool  # whether there is anything to sync


@dataclass(frozen=True, slots=True)
class Restored:
    """What storage found of a group when the node started."""

    snapshot: Snapshot
    """The newest one; at index 0 it only tells the first configuration."""
    entries: list[Entry] = field(default_factory=list)
    """Behind the snapshot, without a hole: what follows damage is left out."""
    hard_state: HardState | None = None
    """None when no copy was good."""
    clean: bool = False
    """The last stop was orderly, and everything written then is here. Only then may this node
    vote at once."""
    lost: bool = False
    """What was here of the group is not all here any more, and more than the last syncs is gone."""
    seeds: tuple[int, ...] = ()
    """Nodes to ask when the snapshot knows no members."""
    incarnation_floor: int = 0
    """At least this is the number of the new incarnation: one more than the incarnation that was
    removed, when a replica is made again within one start of the node."""


def bootstrap(config: Config, node: int) -> Restored:
    """What the first members of a group begin with. Storage must hold it before they start."""
    incarnation = config.incarnation(node)
    invariant(incarnation is not None, f"node {node} is no first member")
    hard = HardState(term=1, commit=1, incarnation=incarnation or 0)
    return Restored(Snapshot(1, 1, config), [], hard, clean=True)
