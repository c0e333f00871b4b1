"""Leadership handed over (thesis §3.10)."""

from headwater.hub.raft import hibernation
from headwater.hub.raft.core import Core
from headwater.hub.raft.model.errors import ChangeRefused, NotLeader
from headwater.hub.raft.model.message import Kind, Message
from headwater.hub.raft.progress import MemberProgress


def begin(r: Core, target: int) -> None:
    """Hand over to a voter as soon as it has everything. Gives up when it has not got that in an
    election timeout, or does not lead in another one, also when it is asked for again meanwhile.
    Raises `NotLeader`, `ChangeRefused`."""
    if not r.is_leader:
        raise NotLeader(r.leader)
    if target == r.node or target not in r.log.config.voters:
        raise ChangeRefused(f"node {target} is no other voter")
    hibernation.wake(r)
    if r.transfer.target != target:
        r.transfer.target = target
        r.transfer.since = r.ticks
        r.transfer.asked = -1
    caught_up(r, target, r.progress[target])


def caught_up(r: Core, node: int, progress: MemberProgress) -> None:
    """Tell the target to campaign when it has the whole log, and again while it has time to: one
    that stands when this node leads on costs its clients what they have just been promised."""
    now = r.transfer
    if node != now.target or progress.match != r.log.last:
        return
    if now.asked < 0:
        now.asked = r.ticks
    elif r.ticks - now.asked > r.options.election_ticks // 2:
        return
    now.spent = True
    r.send(Message(Kind.TIMEOUT_NOW, r.node, node))


def tick(r: Core) -> None:
    """A target that did not do it in time is not waited for: lead on."""
    if r.ticks - max(r.transfer.since, r.transfer.asked) >= r.options.election_ticks:
        expire(r)


def expire(r: Core) -> None:
    """Lead on."""
    r.transfer.target = 0
