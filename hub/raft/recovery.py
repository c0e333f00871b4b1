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

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from headwater.hub.raft import membership
from headwater.hub.raft.config import Config
from headwater.hub.raft.message import Kind, Message
from headwater.hub.raft.ready import Restored

if TYPE_CHECKING:
    from headwater.hub.raft.raft import Raft


class Answer(NamedTuple):
    """What another voter knows."""

    term: int
    log_term: int
    last: int
    config: Config


@dataclass(slots=True)
class Recovery:
    """Bounded by the number of members."""

    seeds: tuple[int, ...]
    life: int = 0
    """Lives below this number are over, even when the present start has their number."""
    since_hello: int = 0
    answers: dict[int, Answer] = field(default_factory=dict)


def start(r: "Raft", restored: Restored) -> None:
    """Decide whether what storage found is proof enough. A member under another number than its
    hard state's is not: one of the two is older than the other."""
    hard = restored.hard_state
    listed = r.log.config.incarnation(r.node)
    if restored.clean and hard is not None and listed in (None, hard.incarnation):
        r.log.commit_to(min(hard.commit, r.log.last))
        return
    if listed == r.boot and may_live(r, listed):
        r.incarnation = r.boot
        r.hard_changed()
        return
    doubt(r, max(r.boot, restored.life))
    r.recovery.since_hello = r.options.heartbeat_ticks
    prove(r)


def may_live(r: "Raft", listed: int) -> bool:
    """Whether this replica is the member that a configuration lists."""
    return listed == r.incarnation or (listed == r.boot and listed >= r.recovery.life)


def may_vote(r: "Raft", m: Message) -> bool:
    """Whether nothing that was forgotten speaks against a vote."""
    if r.recovering or m.term < r.vote_floor:
        return False
    return (m.log_term, m.index) >= r.barrier


def asking(r: "Raft") -> bool:
    """Whether answers of the others are wanted."""
    return r.recovering or (r.below_barrier and not r.leader and not r.is_leader)


def tick(r: "Raft") -> None:
    """Ask again and again."""
    r.recovery.since_hello += 1
    if r.recovery.since_hello >= r.options.heartbeat_ticks:
        r.recovery.since_hello = 0
        for node in asked(r):
            r.send(Message(Kind.HELLO, r.node, node, term=0))


def asked(r: "Raft") -> list[int]:
    """Everybody that may know something."""
    nodes = {*r.recovery.seeds, *voters_to_hear(r), *r.log.config.learners, r.leader}
    return sorted(nodes - {r.node, 0})


def voters_to_hear(r: "Raft") -> set[int]:
    """Voters of the configuration here, and of those that the others told of."""
    configs = [r.log.config, *(answer.config for answer in newer_answers(r))]
    return {node for config in configs for node in config.voters} - {r.node}


def newer_answers(r: "Raft") -> list[Answer]:
    """Those that know more than this node; a shorter log says nothing about the configuration."""
    end = (r.log.last_term, r.log.last)
    return [each for each in r.recovery.answers.values() if (each.log_term, each.last) > end]


def on_hello(r: "Raft", m: Message) -> None:
    """Another member came back from an unclean stop. One that waits below its barrier may not
    know yet that it was removed: it says nothing else, so this is where it hears it."""
    if membership.fenced(r, m):
        membership.tell_gone(r, m)
        return
    r.reply(
        m,
        Kind.HELLO_REPLY,
        index=r.log.last,
        log_term=r.log.last_term,
        context=r.term,
        config=r.log.config,
    )
    if r.is_leader and m.sender in r.progress:
        take_back(r, m)


def take_back(r: "Raft", m: Message) -> None:
    """A leader waits an election timeout for the quick way, and then takes the node back as a
    learner."""
    progress = r.progress[m.sender]
    if progress.incarnation >= m.incarnation:
        return
    if progress.hello_boot != m.boot:
        progress.hello_boot = m.boot
        progress.hello_ticks = r.ticks
    late = r.ticks - progress.hello_ticks >= r.options.election_ticks
    if late and membership.ready_for_change(r):
        config = r.log.config
        returning = m.sender in config.voters or m.sender in config.returning
        if set(config.voters) != {m.sender}:
            membership.change(r, config.with_learner(m.sender, m.incarnation, returning))


def on_hello_reply(r: "Raft", m: Message) -> None:
    """One more answer."""
    if asking(r) and m.config is not None:
        r.recovery.answers[m.sender] = Answer(m.context, m.log_term, m.index, m.config)
        prove(r)


def prove(r: "Raft") -> None:
    """Be the member of before, when all other voters of all configurations told of answered. An
    earlier barrier is not kept: what counts is what the others have now."""
    answers = r.recovery.answers
    former = former_life(r)
    if former is None or not voters_to_hear(r) <= answers.keys():
        return
    r.incarnation = former
    r.vote_floor = 1 + max([r.term, r.vote_floor - 1, *(each.term for each in answers.values())])
    ends = [(each.log_term, each.last) for each in answers.values()]
    r.barrier = max([(r.log.last_term, r.log.last), *ends])
    finish(r)


def former_life(r: "Raft") -> int | None:
    """As which voter the group knows this node, in the newest configuration that is known here,
    or in one before it while that is not known to be committed."""
    newer = newer_answers(r)
    if newer:
        lives = {each.config.voters.get(r.node) for each in newer}
        return lives.pop() if len(lives) == 1 else None
    certain = r.log.config_at(r.log.committed)
    return r.log.config.voters.get(r.node) or certain.voters.get(r.node)


def finish(r: "Raft") -> None:
    """Recovered."""
    r.recovering = False
    r.recovery.answers.clear()
    r.hard_changed()


def config_changed(r: "Raft") -> None:
    """The log may tell that this node was taken back under its new incarnation, or that this was
    undone."""
    listed = r.log.config.incarnation(r.node)
    if listed is None:
        return
    if may_live(r, listed):
        if listed != r.incarnation or r.recovering:
            r.incarnation = listed
            finish(r)
        return
    begin_again(r, listed)


def begin_again(r: "Raft", known: int) -> None:
    """The group knows this node under the life `known`, which is not this one."""
    doubt(r, max(r.boot, known + 1))


def doubt(r: "Raft", incarnation: int) -> None:
    """Be a member that may have forgotten something."""
    r.incarnation = incarnation
    r.recovering = True
    r.hard_changed()


def leaderless(r: "Raft") -> None:
    """No leader for an election timeout. When the one that was taking this node back is gone, and
    that was never committed, the group may need the member of before: look for proof again. So it
    does below the barrier: whoever told of it may have lost those entries in turn."""
    if r.below_barrier and not r.recovering:
        r.recovery.answers.clear()
    certain = r.log.config_at(r.log.committed).incarnation(r.node)
    listed = r.log.config.learners.get(r.node)
    if not r.recovering and listed == r.incarnation and certain not in (None, listed):
        doubt(r, r.incarnation)
