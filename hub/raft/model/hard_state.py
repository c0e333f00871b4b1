"""What a node must remember of a group before it speaks: term, vote, and which incarnation it is
in."""

import struct
from dataclasses import dataclass

FIELDS = struct.Struct("<QQQQQQQB")


@dataclass(frozen=True, slots=True)
class HardState:
    """Kept in two checksummed copies by storage. A node that finds none of them good is not at
    term 0: it is recovering."""

    term: int = 0  # the newest one that was known
    vote: int = 0
    """Node voted for in `term`; 0 for none."""
    commit: int = 0
    """An index known to be committed; only a hint, it may lag."""
    incarnation: int = 0
    """The incarnation of this node that is a member of the group."""
    vote_floor: int = 0
    """No vote and no candidacy in a smaller term: there might have been one that was forgotten."""
    barrier_term: int = 0  # see `Core.barrier`
    barrier_index: int = 0
    """No vote for, and no candidacy with, a log that ends before this: acks might be forgotten."""
    removed: bool = False
    """The group took this member out; it stays silent."""

    def encode(self) -> bytes:
        return FIELDS.pack(
            self.term,
            self.vote,
            self.commit,
            self.incarnation,
            self.vote_floor,
            self.barrier_term,
            self.barrier_index,
            self.removed,
        )


def decode_hard_state(data: bytes) -> HardState:
    """What `encode` made. Raises ValueError when it is something else."""
    try:
        term, vote, commit, incarnation, floor, end_term, end, removed = FIELDS.unpack(data)
    except struct.error as error:
        raise ValueError(f"no hard state: {error}") from error
    return HardState(term, vote, commit, incarnation, floor, end_term, end, bool(removed))
