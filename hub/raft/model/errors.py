"""What a group refuses, and the check that stays on in production."""


class RaftError(Exception):
    """The root of what a group refuses."""


class NotLeader(RaftError):
    """Only the leader does this. `leader` is the node to ask, 0 when none is known."""

    def __init__(self, leader: int) -> None:
        super().__init__(f"not the leader; ask node {leader}" if leader else "there is no leader")
        self.leader = leader  # the node to ask; 0 when none is known


class ProposalsFull(RaftError):
    """Too many bytes wait for a quorum; propose again when some are committed."""


class ChangeRefused(RaftError):
    """A membership change that cannot be made now, or not at all; the text says why."""


class ReadsFull(RaftError):
    """Too many reads wait for a quorum."""


class InvariantBroken(RaftError):
    """A state that must not exist. The group stops; nothing is repaired blindly."""


class Contradiction(RaftError):
    """A leader's log is another than what is committed here: one of the two has lost what was
    acknowledged. The member stops and keeps what it has."""

    def __init__(self, index: int, here: int, there: int) -> None:
        super().__init__(f"entry {index} is committed here in term {here}, not in term {there}")


def invariant(condition: bool, text: str) -> None:
    """Raise `InvariantBroken` unless `condition` holds. Unlike `assert` it is never stripped."""
    if not condition:
        raise InvariantBroken(text)
