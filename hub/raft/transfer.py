"""Leadership handed over (thesis §3.10)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.hub.raft import election, hibernation
from headwater.hub.raft.errors import ChangeRefused, NotLeader
from headwater.hub.raft.message import Kind, Message
from headwater.hub.raft.progress import Progress

if TYPE_CHECKING:
    from headwater.hub.raft.raft import Raft


@dataclass(slots=True)
class Transfer:
    """A handover under way. No proposal is taken meanwhile."""

    target: int = 0
    since: int = 0
    """The tick at which it was asked for."""
    spent: bool = False
    """A TIMEOUT_NOW was sent in this term: it may arrive late and end a lease, so there is none
    any more."""

    def clear(self) -> None:
        """Another term, or another role."""
        self.target = 0
        self.spent = False


def begin(r: "Raft", target: int) -> None:
    """Hand over to a voter as soon as it has everything. Gives up after an election timeout, also
    when it is asked for again meanwhile. Raises `NotLeader`, `ChangeRefused`."""
    if not r.is_leader:
        raise NotLeader(r.leader)
    if target == r.node or target not in r.log.config.voters:
        raise ChangeRefused(f"node {target} is no other voter")
    hibernation.wake(r)
    if r.transfer.target != target:
        r.transfer.target = target
        r.transfer.since = r.ticks
    caught_up(r, target, r.progress[target])


def caught_up(r: "Raft", node: int, progress: Progress) -> None:
    """Tell the target to campaign when it has the whole log."""
    if node == r.transfer.target and progress.match == r.log.last:
        r.transfer.spent = True
        r.send(Message(Kind.TIMEOUT_NOW, r.node, node))


def tick(r: "Raft") -> None:
    """A target that did not do it in time is not waited for: lead on."""
    if r.ticks - r.transfer.since >= r.options.election_ticks:
        expire(r)


def expire(r: "Raft") -> None:
    """Lead on."""
    r.transfer.target = 0


def on_timeout_now(r: "Raft", m: Message) -> None:
    """Campaign without a pre-vote: the leader agrees."""
    if m.sender == r.leader and not r.is_leader and election.eligible(r):
        election.campaign(r, force=True)
