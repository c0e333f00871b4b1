"""Who is in a group, and which incarnation of each node is meant.

A member is a node *and an incarnation*. A node whose disk was lost, or that came back from an
unclean stop, is another member than before; so its forgotten votes and acks can never be counted
twice. `removed` remembers incarnations that are gone for good.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

from headwater.hub.raft.model.errors import ChangeRefused

MEMBERS_MAX = 64
"""Voters and learners of one group. More voters make every commit slower and nothing safer."""
REMOVED_MAX = 1024
"""Removed nodes that are remembered; the one removed first is forgotten first."""

HEAD = struct.Struct("<HHHH")
PAIR = struct.Struct("<QQ")
NODE = struct.Struct("<Q")


@dataclass(frozen=True, slots=True)
class Config:
    """The members of a group at one index of its log."""

    voters: Mapping[int, int] = field(default_factory=dict)
    """Node -> incarnation."""
    learners: Mapping[int, int] = field(default_factory=dict)
    """Node -> incarnation; they get everything and count for nothing."""
    returning: frozenset[int] = frozenset()
    """Learners that the leader makes voters as soon as they are caught up."""
    removed: Mapping[int, int] = field(default_factory=dict)
    """Node -> the greatest incarnation that was removed."""

    def incarnation(self, node: int) -> int | None:
        """Which incarnation of `node` is a member; None when it is none."""
        found = self.voters.get(node)
        return self.learners.get(node) if found is None else found

    def members(self) -> list[int]:
        """Nodes, voters first."""
        return [*self.voters, *self.learners]

    def fenced(self, node: int, incarnation: int) -> bool:
        """Whether messages of this incarnation of `node` are to be dropped."""
        current = self.incarnation(node)
        if current is not None:
            return incarnation < current
        return incarnation <= self.removed.get(node, -1)

    def with_learner(self, node: int, incarnation: int, returning: bool) -> "Config":
        """`node` as a learner, in this incarnation. A voter of an earlier incarnation becomes one
        too."""
        if self.fenced(node, incarnation):
            raise ChangeRefused(f"incarnation {incarnation} of node {node} was removed")
        if self.incarnation(node) == incarnation and node in self.voters:
            raise ChangeRefused(f"node {node} is a voter")
        if len({*self.members(), node}) > MEMBERS_MAX:
            raise ChangeRefused(f"a group has at most {MEMBERS_MAX} members")
        voters = {key: value for key, value in self.voters.items() if key != node}
        if not voters and node in self.voters:
            raise ChangeRefused("the last voter cannot become a learner")
        back = self.returning | {node} if returning else self.returning - {node}
        return Config(voters, {**self.learners, node: incarnation}, back, self.removed)

    def with_voter(self, node: int) -> "Config":
        """A learner made a voter."""
        if node not in self.learners:
            raise ChangeRefused(f"node {node} is no learner")
        learners = {key: value for key, value in self.learners.items() if key != node}
        voters = {**self.voters, node: self.learners[node]}
        return Config(voters, learners, self.returning - {node}, self.removed)

    def without(self, node: int) -> "Config":
        """`node` removed for good, in every incarnation up to its present one."""
        incarnation = self.incarnation(node)
        if incarnation is None:
            raise ChangeRefused(f"node {node} is no member")
        if set(self.voters) == {node}:
            raise ChangeRefused("the last voter cannot be removed")
        gone = {key: value for key, value in self.removed.items() if key != node}
        while len(gone) >= REMOVED_MAX:
            gone.pop(next(iter(gone)))
        return Config(
            {key: value for key, value in self.voters.items() if key != node},
            {key: value for key, value in self.learners.items() if key != node},
            self.returning - {node},
            {**gone, node: incarnation},
        )

    def encode(self) -> bytes:
        """Bytes for an entry, a snapshot or the wire."""
        maps = (self.voters, self.learners, self.removed)
        parts = [HEAD.pack(*map(len, maps), len(self.returning))]
        parts += [PAIR.pack(*pair) for each in maps for pair in each.items()]
        parts += [NODE.pack(node) for node in sorted(self.returning)]
        return b"".join(parts)


def decode_config(data: bytes) -> Config:
    """What `encode` made. Raises ValueError when it is something else."""
    try:
        *counts, back = HEAD.unpack_from(data)
        at = HEAD.size
        maps: list[dict[int, int]] = []
        for size in counts:
            maps.append(dict(PAIR.unpack_from(data, at + PAIR.size * i) for i in range(size)))
            at += PAIR.size * size
        returning = frozenset(NODE.unpack_from(data, at + NODE.size * i)[0] for i in range(back))
    except struct.error as error:
        raise ValueError(f"no configuration: {error}") from error
    if len(data) != at + NODE.size * back:
        raise ValueError("no configuration: wrong length")
    return Config(maps[0], maps[1], returning, maps[2])
