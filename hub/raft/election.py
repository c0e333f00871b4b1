"""Who leads: pre-vote, vote, and when to leave a leader alone.

Sections 5.2 and 5.4.1 of the paper; 6.4.1 and 9.6 of the thesis.
"""

from headwater.hub.raft import recovery
from headwater.hub.raft.core import Core
from headwater.hub.raft.model.message import FROM_LEADER, Kind, Message
from headwater.hub.raft.model.role import Role
from headwater.hub.raft.quorum import vote_result


def reset_timeout(r: Core) -> None:
    """Wait for a leader, each time for another while, so that candidates seldom collide."""
    r.elapsed = 0
    r.timeout = r.options.election_ticks + r.chance(r.options.election_ticks)


def is_due(r: Core) -> bool:
    """Whether the next tick ends this node's patience."""
    return r.elapsed + 1 >= r.timeout and not r.is_leader


def postpone(r: Core) -> None:
    """Be patient for one tick more: too many groups of the node stand at once."""
    r.timeout = r.elapsed + 2


def tick(r: Core) -> None:
    """Time passes without a leader's word."""
    r.elapsed += 1
    if r.elapsed >= r.options.election_ticks:
        r.started_quiet = False
    if r.elapsed >= r.timeout:
        reset_timeout(r)
        r.leader = 0
        recovery.leaderless(r)
        if eligible(r):
            pre_campaign(r)
        elif r.node in r.log.config.learners:
            # The group may have taken it out without its hearing of that: nobody tells it again.
            recovery.ask(r)


def eligible(r: Core) -> bool:
    """Whether this node may be a candidate: a voter that has forgotten nothing. One that is to
    be removed may be needed as long as that is not committed (thesis §4.2.2)."""
    certain = r.log.config_at(r.log.committed)
    voter = r.is_voter or certain.voters.get(r.node) == r.incarnation
    return voter and not r.recovering and not r.removed and not r.below_barrier


def next_term(r: Core) -> int:
    """The term of this node's next candidacy."""
    return max(r.term + 1, r.vote_floor)


def pre_campaign(r: Core) -> None:
    """Ask whether a campaign could be won, without disturbing anybody (thesis §9.6)."""
    r.role = Role.PRE_CANDIDATE
    r.leader = 0
    r.votes = {r.node: True}
    _ask(r, Kind.PRE_VOTE, next_term(r), False)
    _count(r)


def campaign(r: Core, force: bool = False) -> None:
    """Stand for leader. The own vote counts when it is on disk."""
    r.role = Role.CANDIDATE
    r.leader = 0
    r.votes = {}
    r.set_term(next_term(r), r.node)
    reset_timeout(r)
    r.send(Message(Kind.VOTE_REPLY, r.node, r.node, to_boot=r.boot))
    _ask(r, Kind.VOTE, r.term, force)


def _ask(r: Core, kind: Kind, term: int, force: bool) -> None:
    for node in r.log.config.voters:
        if node != r.node:
            r.send(
                Message(
                    kind,
                    r.node,
                    node,
                    term=term,
                    index=r.log.last,
                    log_term=r.log.last_term,
                    force=force,
                )
            )


def leader_is_alive(r: Core) -> bool:
    """A leader was heard within the shortest election timeout, or might have been, before this
    node started: its lease counts on silence (thesis §6.4.1). With leases also when a greater term
    was heard of meanwhile: that leader need not know of it."""
    ticks = r.options.election_ticks
    if r.options.lease_reads and r.ticks - r.led < ticks:
        return True
    return (r.leader != 0 or r.started_quiet) and r.elapsed < ticks


def may_vote(r: Core, m: Message) -> bool:
    """The rule for a vote, and for the promise of one."""
    if not recovery.may_vote(r, m):
        return False
    if m.kind is Kind.VOTE and m.term == r.term and r.vote not in (0, m.sender):
        return False
    if m.kind is Kind.VOTE and m.term == r.term and r.leader not in (0, m.sender):
        return False
    if m.kind is Kind.PRE_VOTE and m.term <= r.term:
        return False
    return not r.log.newer_than(m.log_term, m.index)


def on_vote(r: Core, m: Message) -> None:
    """Somebody stands, or asks whether to."""
    if leader_is_alive(r) and not m.force:
        return
    if m.kind is Kind.VOTE and m.term > r.term:
        r.become_follower(m.term, 0)
    granted = may_vote(r, m)
    if m.kind is Kind.PRE_VOTE:
        term = m.term if granted else max(r.term, r.vote_floor - 1)
        r.reply(m, Kind.PRE_VOTE_REPLY, term=term, reject=not granted)
        return
    if granted:
        r.set_term(m.term, m.sender)
        r.elapsed = 0
    r.reply(m, Kind.VOTE_REPLY, reject=not granted)


def on_vote_reply(r: Core, m: Message) -> None:
    """A vote of a voter, in the incarnation that the configuration knows."""
    wanted = Role.PRE_CANDIDATE if m.kind is Kind.PRE_VOTE_REPLY else Role.CANDIDATE
    if r.role is not wanted or r.log.config.voters.get(m.sender) != m.incarnation:
        return
    if m.kind is Kind.PRE_VOTE_REPLY and not m.reject and m.term != next_term(r):
        return
    r.votes.setdefault(m.sender, not m.reject)
    _count(r)


def _count(r: Core) -> None:
    won = vote_result(r.log.config.voters, r.votes)
    if won is False:
        r.become_follower(r.term, 0)
    elif won and r.role is Role.PRE_CANDIDATE:
        campaign(r)
    elif won:
        r.become_leader()


def on_timeout_now(r: Core, m: Message) -> None:
    """Campaign without a pre-vote: the leader agrees."""
    if m.sender == r.leader and not r.is_leader and eligible(r):
        campaign(r, force=True)


def answer_stale(r: Core, m: Message) -> None:
    """Somebody is behind: a leader of an earlier term must hear that it is over."""
    if m.kind in FROM_LEADER:
        r.reply(m, Kind.APPEND_REPLY, reject=True)
    elif m.kind is Kind.PRE_VOTE and not leader_is_alive(r):
        r.reply(m, Kind.PRE_VOTE_REPLY, reject=True)
