"""What the meta group's entries say, and what its state consists of.

An entry is one operation as JSON; operations are decided by the meta leader and only recorded here.
"""

from typing import Any

import msgspec

from headwater.edge.jetstream.model.models import Placement, StreamConfig

META_GROUP = 1
FIRST_STREAM_GROUP = 2
NO_GROUP = 0
"""Of a stream with one replica: its node's log alone decides."""
NEW_GROUP = -1
"""In an operation: the state gives the stream a group number that no stream had before."""

_CONFIG = msgspec.json.Decoder(StreamConfig)


class Origin(msgspec.Struct, kw_only=True):
    """What a stream was before a reconfiguration, which a cancellation gives it back."""

    num_replicas: int
    placement: Placement | None = None
    peers: list[int]
    boots: list[int]


class Change(msgspec.Struct, kw_only=True):
    """A reconfiguration that is under way: the members of a stream's group are not yet those that
    are wanted."""

    began_ns: int
    """Wall-clock time in ns at which the first step was ordered."""
    moves: bool = False
    """Another place was ordered, not another number of replicas."""
    leaving: list[int] = []
    """Nodes that are not wanted any more, and may still have the stream."""
    origin: Origin | None = None
    """None when nobody may take the order back."""


class Assignment(msgspec.Struct, kw_only=True, tag="stream"):
    """One stream: where it is, and what it is to be."""

    account: str
    name: str
    incarnation: str
    created_ns: int
    config: msgspec.Raw
    group: int = NO_GROUP
    peers: list[int] = []
    """Node numbers of the replicas; the first one is preferred as the leader."""
    founders: dict[int, int] = {}
    """The first members of the group, with the start in which each was taken into the cluster:
    all replicas of a stream that is made with several, the holder of one that gets more. Never
    changed later."""
    boots: list[int] = []
    """Of each peer, `Member.boot`: which of its disks is meant."""
    version: int = 0
    """Counts changes of this incarnation."""
    lost: str = ""
    """Why nothing is left of it. It stays so until it is deleted: made anew under the same
    incarnation it would use its sequence numbers a second time."""
    change: Change | None = None
    """Until the group has the members that are wanted."""
    evacuated: dict[int, int] = {}
    """Nodes that were to give it up when no other one could have it, each with `Member.boot`. They
    get it back by an order only, or as members that were taken in anew."""

    @property
    def stream_config(self) -> StreamConfig:
        """The configuration, complete."""
        return _CONFIG.decode(self.config)

    @property
    def holders(self) -> list[int]:
        """The nodes that may lead it: those that are wanted, and those that still have it."""
        return [*self.peers, *(self.change.leaving if self.change is not None else ())]

    @property
    def key(self) -> tuple[str, str]:
        """Account and name."""
        return self.account, self.name


class ChangeDone(msgspec.Struct, kw_only=True, tag="settled"):
    """The group of a stream has the members that this version of it wants."""

    account: str
    name: str
    incarnation: str
    version: int


class Gone(msgspec.Struct, kw_only=True, tag="gone"):
    """A stream is deleted for good: whoever holds this incarnation removes it."""

    account: str
    name: str
    incarnation: str


class Member(msgspec.Struct, kw_only=True, tag="member"):
    """A node as others know it, also while it is away."""

    number: int
    name: str
    cluster: str = ""
    tags: list[str] = []
    boot: int = 0
    """The start in which it was taken in with an empty store: what was placed on it before is not
    there. 0 for one that came back as it was."""
    entries: int = 1
    """The newest version of streams' entries that it knows."""


class Left(msgspec.Struct, kw_only=True, tag="left"):
    """A node was removed by order."""

    number: int


class Founded(msgspec.Struct, kw_only=True, tag="founded"):
    """The first entry: who this JetStream is among all that ever were."""

    identity: int


class EntriesRaised(msgspec.Struct, kw_only=True, tag="entries"):
    """Every member knows a newer version of streams' entries: leaders may write it from now on."""

    version: int


Operation = Assignment | ChangeDone | Gone | Member | Left | Founded | EntriesRaised
_OPERATION = msgspec.json.Decoder(Operation)


def encode(operation: Operation) -> bytes:
    """An operation as an entry's bytes."""
    return msgspec.json.encode(operation)


def decode(data: bytes) -> Operation:
    """What `encode` made. Raises msgspec.DecodeError."""
    found: Any = _OPERATION.decode(data)
    return found  # type: ignore[no-any-return]
