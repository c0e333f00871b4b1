"""After an unclean start: a member that may have forgotten votes and acks.

It follows, but casts no vote, is no candidate, and its acks are not counted, until it has proof.
There are two ways back:

*All others answer.* Every voter but itself says in which term it is and where its log ends. What
was forgotten is bounded by that: no vote below a greater term, no vote for a shorter log, and this
node is the member it was before. This also brings a group back whose nodes all lost power.

*A leader takes it back.* If somebody stays silent, the leader makes this node a learner under its
new incarnation, a member that has never voted or acked, and a voter again when it is caught up.

Assumed: the disks of fewer than half of the voters lose synced data at the same time.
"""

from headwater.hub.raft.core import Core
from headwater.hub.raft.model.message import Kind, Message
from headwater.hub.raft.model.ready import Restored
from headwater.hub.raft.model.state import Answer


def start(r: Core, restored: Restored) -> None:
    """Decide whether what storage found is proof enough. A member under another number than its
    hard state's is not: one of the two is older than the other."""
    hard = restored.hard_state
    listed = r.log.config.incarnation(r.node)
    if restored.clean and hard is not None and listed in (None, hard.incarnation):
        r.log.commit_to(min(hard.commit, r.log.last))
        return
    if listed == r.boot and may_be(r, listed):
        r.incarnation = r.boot
        r.hard_changed()
        return
    r.recovery.lost = restored.lost
    doubt(r, max(r.boot, restored.incarnation_floor))
    r.recovery.since_hello = r.options.heartbeat_ticks
    prove(r)


def may_be(r: Core, listed: int) -> bool:
    """Whether this replica is the member that a configuration lists."""
    return listed == r.incarnation or (listed == r.boot and listed >= r.recovery.incarnation_floor)


def may_vote(r: Core, m: Message) -> bool:
    """Whether nothing that was forgotten speaks against a vote."""
    if r.recovering or m.term < r.vote_floor:
        return False
    return (m.log_term, m.index) >= r.barrier


def asking(r: Core) -> bool:
    """Whether answers of the others are wanted."""
    return r.recovering or (not r.leader and r.below_barrier and not r.is_leader)


def tick(r: Core) -> None:
    """Ask again and again."""
    r.recovery.since_hello += 1
    if r.recovery.since_hello >= r.options.heartbeat_ticks:
        r.recovery.since_hello = 0
        ask(r)


def ask(r: Core) -> None:
    """Ask what the others know of the group, and of this member."""
    for node in asked(r):
        r.send(Message(Kind.HELLO, r.node, node, term=0))


def look_for(r: Core, nodes: list[int]) -> None:
    """The group may be on these nodes, too: those that were said to have it may have left it."""
    r.recovery.seeds = tuple({*r.recovery.seeds, *nodes} - {r.node})


def asked(r: Core) -> list[int]:
    """Everybody that may know something."""
    nodes = {*r.recovery.seeds, *voters_to_hear(r), *r.log.config.learners, r.leader}
    return sorted(nodes - {r.node, 0})


def voters_to_hear(r: Core) -> set[int]:
    """Voters of the configuration here, and of those that the others told of."""
    configs = [r.log.config, *(answer.config for answer in newer_answers(r))]
    return {node for config in configs for node in config.voters} - {r.node}


def newer_answers(r: Core) -> list[Answer]:
    """Those that know more than this node; a shorter log says nothing about the configuration."""
    end = (r.log.last_term, r.log.last)
    return [each for each in r.recovery.answers.values() if (each.log_term, each.last) > end]


def answer(r: Core, m: Message) -> None:
    """Answer another member that came back from an unclean stop."""
    r.reply(
        m,
        Kind.HELLO_REPLY,
        index=r.log.last,
        log_term=r.log.last_term,
        context=r.term,
        config=r.log.config,
        reject=has_lost(r),
    )


def has_lost(r: Core) -> bool:
    """Whether this node has not made good yet what it lost."""
    return r.recovery.lost and (r.recovering or r.below_barrier)


def may_lack(r: Core) -> bool:
    """Whether a quorum of the voters has lost something: what only they had is gone."""
    answers = r.recovery.answers
    lost = {node for node, each in answers.items() if each.lost}
    if r.recovery.lost:
        lost.add(r.node)
    configs = [r.log.config, *(each.config for each in newer_answers(r))]
    return any(
        len(lost & config.voters.keys()) > len(config.voters) // 2
        for config in configs
        if config.voters
    )


def on_hello_reply(r: Core, m: Message) -> None:
    """One more answer."""
    if asking(r) and m.config is not None:
        r.recovery.answers[m.sender] = Answer(
            m.context, m.log_term, m.index, m.config, m.reject
        )
        prove(r)


def prove(r: Core) -> None:
    """Be the member of before, when all other voters of all configurations told of answered. An
    earlier barrier is not kept: what counts is what the others have now."""
    answers = r.recovery.answers
    former = former_incarnation(r)
    if former is None or former < r.recovery.incarnation_floor:
        # What that member had was given up on purpose: only a leader takes this one in.
        return
    if not voters_to_hear(r) <= answers.keys():
        return
    r.incarnation = former
    r.recovery.gap = r.recovery.gap or may_lack(r)
    r.vote_floor = 1 + max([r.term, r.vote_floor - 1, *(each.term for each in answers.values())])
    ends = [(each.log_term, each.last) for each in answers.values()]
    r.barrier = max([(r.log.last_term, r.log.last), *ends])
    finish(r)


def former_incarnation(r: Core) -> int | None:
    """As which voter the group knows this node, in the newest configuration that is known here,
    or in one before it while that is not known to be committed."""
    newer = newer_answers(r)
    if newer:
        incarnations = {each.config.voters.get(r.node) for each in newer}
        return incarnations.pop() if len(incarnations) == 1 else None
    certain = r.log.config_at(r.log.committed)
    return r.log.config.voters.get(r.node) or certain.voters.get(r.node)


def finish(r: Core) -> None:
    """Recovered."""
    r.recovering = False
    r.recovery.answers.clear()
    r.hard_changed()


def config_changed(r: Core) -> None:
    """The log may tell that this node was taken back under its new incarnation, or that this was
    undone."""
    listed = r.log.config.incarnation(r.node)
    if listed is None:
        return
    if may_be(r, listed):
        if listed != r.incarnation or r.recovering:
            r.incarnation = listed
            finish(r)
        return
    begin_again(r, listed)


def begin_again(r: Core, known: int) -> None:
    """The group knows this node under the incarnation `known`, which is not this one."""
    doubt(r, max(r.boot, known + 1))


def doubt(r: Core, incarnation: int) -> None:
    """Be a member that may have forgotten something."""
    r.incarnation = incarnation
    r.recovering = True
    r.hard_changed()


def leaderless(r: Core) -> None:
    """No leader for an election timeout. When the one that was taking this node back is gone, and
    that was never committed, the group may need the member of before: look for proof again. So it
    does below the barrier: whoever told of it may have lost those entries in turn."""
    if r.below_barrier and not r.recovering:
        r.recovery.answers.clear()
    certain = r.log.config_at(r.log.committed).incarnation(r.node)
    listed = r.log.config.learners.get(r.node)
    if not r.recovering and listed == r.incarnation and certain not in (None, listed):
        doubt(r, r.incarnation)
