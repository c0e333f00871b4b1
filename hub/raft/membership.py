"""Changes of who is in the group, one at a time (thesis §4.1–4.2).

A configuration counts from the moment it is in a log. Two that follow each other differ in one
voter, so any majority of one meets any majority of the other.
"""

from collections.abc import Iterable

from headwater.hub.raft import recovery, replication, transfer
from headwater.hub.raft.core import Core
from headwater.hub.raft.model.config import Config
from headwater.hub.raft.model.entry import EntryKind
from headwater.hub.raft.model.errors import ChangeRefused, NotLeader
from headwater.hub.raft.model.message import REPLIES, Kind, Message
from headwater.hub.raft.progress import MemberProgress
from headwater.hub.raft.quorum import quorum_size


def add_learner(r: Core, node: int, incarnation: int) -> int:
    """A member that counts for nothing. Returns the entry's index. Raises `ChangeRefused`."""
    return change(r, r.log.config.with_learner(node, incarnation, returning=False))


def add_voter(r: Core, node: int, incarnation: int) -> int:
    """A learner first, that becomes a voter by itself when it is caught up."""
    return change(r, r.log.config.with_learner(node, incarnation, returning=True))


def remove(r: Core, node: int) -> int:
    """Take a member out for good. A leader that removes itself leads until that is committed."""
    return change(r, r.log.config.without(node))


def may_leave(r: Core, nodes: Iterable[int], since: int) -> int:
    """Which of these members can be taken out now; 0 for none. The one that was heard the longest
    ago goes first, and only while a majority of those that stay has answered a round of heartbeats
    from `since` on: a configuration counts at once, and what it lacks then cannot be changed."""
    rounds = {node: one.round for node, one in r.progress.items()}
    config = r.log.config
    node = min(nodes, key=lambda each: rounds.get(each, 0), default=0)
    staying = [each for each in config.voters if each != node]
    heard = sum(1 for each in staying if each == r.node or rounds.get(each, 0) >= since)
    return node if heard >= quorum_size(len(staying)) else 0


def change(r: Core, config: Config) -> int:
    """Propose `config`. Raises `NotLeader` and `ChangeRefused`."""
    if not r.is_leader:
        raise NotLeader(r.leader)
    if not ready_for_change(r):
        raise ChangeRefused("a change is under way, or this leader has not committed yet")
    return replication.append_own(r, EntryKind.CONFIG, config.encode())


def ready_for_change(r: Core) -> bool:
    """The change before is committed, and so is an entry of this leader's term (the gap in the
    thesis's first version of single-server changes)."""
    log = r.log
    return log.config_index <= log.committed and log.term(log.committed) == r.term


def lead(r: Core) -> None:
    """A new leader knows nothing about the others yet."""
    r.progress = {}
    _follow_config(r)


def _follow_config(r: Core) -> None:
    """One `MemberProgress` for each other member, in its present incarnation."""
    config = r.log.config
    for node in list(r.progress):
        if config.incarnation(node) != r.progress[node].incarnation:
            del r.progress[node]
    for node in config.members():
        incarnation = config.incarnation(node)
        if node != r.node and node not in r.progress and incarnation is not None:
            r.progress[node] = MemberProgress(incarnation, r.log.last + 1, active=True)
    if r.transfer.target not in config.voters:
        transfer.expire(r)


def changed(r: Core) -> None:
    """Another configuration is in force here."""
    recovery.config_changed(r)
    if r.is_leader:
        _follow_config(r)


def committed(r: Core) -> None:
    """The commit moved; a configuration may be final now."""
    log = r.log
    config = log.config
    if log.config_index > log.committed:
        return
    recovery.config_changed(r)
    if r.is_leader and r.node not in config.voters:
        replication.tell_commit(r)
        r.become_follower(r.term, 0)
    if r.incarnation <= config.removed.get(r.node, -1) and config.incarnation(r.node) is None:
        r.removed = True
        r.hard_changed()


def tick(r: Core) -> None:
    """The leader brings back learners that are caught up."""
    if not r.log.config.returning or not ready_for_change(r):
        return
    for node in sorted(r.log.config.returning):
        if caught_up(r, node):
            change(r, r.log.config.with_voter(node))
            return


def caught_up(r: Core, node: int) -> bool:
    """Whether a learner has nearly everything."""
    progress = r.progress.get(node)
    if progress is None or progress.match < r.log.config_index:
        return False
    return r.log.last - progress.match <= r.options.promote_lag_max


def fenced(r: Core, m: Message) -> bool:
    """Whether an incarnation of the sender speaks that is over. Only what is committed counts: a
    node that is to be removed may be the only one that can lead. One that was taken back under the
    number of its present start may not have heard of it yet."""
    config = r.log.config_at(r.log.committed)
    if config.voters.get(m.sender) == m.incarnation:
        return False
    current = config.incarnation(m.sender)
    return config.fenced(m.sender, m.incarnation) and (current is None or current != m.boot)


def tell_gone(r: Core, m: Message) -> None:
    """A member that was removed, or that speaks for an incarnation that is over, is told so."""
    config = r.log.config_at(r.log.committed)
    current = config.incarnation(m.sender)
    if current is not None:
        r.reply(m, Kind.GONE, context=current, force=True)
    elif m.kind not in REPLIES:
        r.reply(m, Kind.GONE, context=config.removed[m.sender])


def on_gone(r: Core, m: Message) -> None:
    """This incarnation of this node is over: removed for good, or to be taken back under
    another."""
    if r.incarnation > m.context or r.is_leader:
        return
    if not m.force:
        r.removed = True
        r.hard_changed()
    elif r.incarnation < m.context:
        recovery.begin_again(r, m.context)


def on_hello(r: Core, m: Message) -> None:
    """Another member came back from an unclean stop. One that waits below its barrier may not
    know yet that it was removed: it says nothing else, so this is where it hears it."""
    if fenced(r, m):
        tell_gone(r, m)
        return
    recovery.answer(r, m)
    if r.is_leader and m.sender in r.progress:
        readmit(r, m)


def readmit(r: Core, m: Message) -> None:
    """A leader waits an election timeout for the quick way, and then takes the node back as a
    learner."""
    progress = r.progress[m.sender]
    if progress.incarnation >= m.incarnation:
        return
    if progress.hello_boot != m.boot:
        progress.hello_boot = m.boot
        progress.hello_ticks = r.ticks
    late = r.ticks - progress.hello_ticks >= r.options.election_ticks
    if late and ready_for_change(r):
        config = r.log.config
        returning = m.sender in config.voters or m.sender in config.returning
        if set(config.voters) != {m.sender}:
            change(r, config.with_learner(m.sender, m.incarnation, returning))
