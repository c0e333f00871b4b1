"""The state machine at one index of the log. The state itself is the driver's: it travels in parts
that consensus hands on and never looks into."""

from dataclasses import dataclass

from headwater.hub.raft.model.config import Config


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything up to and including `index`."""

    index: int  # of the last entry that it has in it
    term: int  # of that entry
    config: Config  # in force there


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a leader's state, as its driver made it. Positions are the driver's: they grow,
    and say how much of the state is known to be there."""

    position: int  # behind which it goes on
    next: int  # position behind it
    data: bytes  # for the receiving driver
    snapshot: Snapshot | None = None
    """Of which index the state is; None while that is open. A part without data that has it asks
    again whether the state is in force."""
    size: int = 0  # of what belongs to `snapshot`, in bytes
    digest: int = 0  # for the receiving driver
    whole: int = 0
    """How many positions the state has by now, for a measure of progress."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A member can take another part."""

    node: int  # number of the member
    session: int
    """Which transfer: grows with each that a leader begins in a term."""
    position: int  # what the part has to follow
