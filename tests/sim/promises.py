"""What a member may say, judged at the moment when it decides to say it.

The rules are written down here a second time, from the paper and `docs/RAFT.md`, and from what was
said on the wire; the product's own books are asked for as little as possible.
"""

from headwater.hub.raft.message import FROM_LEADER, REPLIES, Kind, Message
from headwater.hub.raft.raft import Raft
from tests.sim.checker import Checker

NONE = Message(Kind.GONE, 0, 0)


class Promises:
    """Of one start of one replica. `led` is the tick at which a leader was heard last."""

    def __init__(self, checker: Checker, raft: Raft) -> None:
        self.checker = checker
        self.raft = raft
        self.led = -(1 << 30)
        self.heard = NONE
        self.leader = 0
        raft.send = self.send  # type: ignore[method-assign]
        raft.step = self.step  # type: ignore[method-assign]
        raft.commit_to = self.commit_to  # type: ignore[method-assign]

    def step(self, m: Message) -> None:
        """What is said now may be an answer to this."""
        raft = self.raft
        known = raft.peer_boots.get(m.sender, 0)
        late = (m.kind in REPLIES and m.to_boot != raft.boot) or m.boot < known
        before = self.books() if late else ()
        votes = set(raft.votes)
        self.heard = m
        self.leader = raft.leader
        try:
            Raft.step(raft, m)
        finally:
            self.heard = NONE
        self.require(not late or self.books() == before, "what an earlier start said is heard")
        self.require(
            m.sender not in raft.votes.keys() - votes
            or raft.log.config.voters.get(m.sender) == m.incarnation,
            "a vote of another life is counted",
        )

    def books(self) -> tuple[object, ...]:
        """What a message could change."""
        raft = self.raft
        known = {n: (p.match, p.next, p.round, p.active) for n, p in raft.progress.items()}
        heard = (dict(raft.votes), dict(raft.recovery.answers), raft.removed, raft.recovering)
        return (raft.role, raft.term, raft.leader, raft.log.last, known, *heard)

    def send(self, m: Message) -> None:
        """Judge, then let it be said."""
        judge = JUDGES.get(m.kind)
        if judge is not None:
            judge(self, m)
        Raft.send(self.raft, m)

    def commit_to(self, index: int) -> None:
        """A leader commits, or a follower hears of it."""
        if self.raft.is_leader and index > self.raft.log.committed:
            self.checker.commits(self.raft, index)
        Raft.commit_to(self.raft, index)

    def require(self, good: bool, text: str) -> None:
        raft = self.raft
        self.checker.require(good, f"node {raft.node}, group {raft.group}: {text}")

    def peaceful(self) -> bool:
        """Whether no leader that works may be there: none was heard for an election timeout, nor
        could one have been before this start. Without leases a greater term ends it at once."""
        ticks = self.raft.options.election_ticks
        over = not self.raft.options.lease_reads and not self.leader
        return (over or self.raft.ticks - self.led >= ticks) and self.raft.ticks >= ticks

    # -- elections ------------------------------------------------------------

    def candidacy(self, m: Message) -> None:
        """Thesis §9.6; what a member in doubt must not do."""
        raft = self.raft
        log = raft.log
        configs = (log.config, log.config_at(log.committed))
        self.require(
            any(each.voters.get(raft.node) == raft.incarnation for each in configs),
            "a candidate that is no voter",
        )
        self.require(not raft.recovering, "a candidate that may have forgotten something")
        end = (log.last_term, log.last)
        self.require(end >= raft.barrier, "a candidate without what it may have acked")
        self.require((m.log_term, m.index) == end, "a candidate says where another log ends")
        self.require(m.term >= raft.vote_floor, "a candidate below its floor")
        if m.kind is Kind.PRE_VOTE:
            self.require(m.term > raft.term, "a candidacy for a term that is over")
            quiet = raft.ticks - self.led >= raft.options.election_ticks
            self.require(quiet, "a campaign against a leader")
        else:
            told = (raft.group, raft.node, raft.incarnation)
            self.require(
                not m.force or self.checker.told.get(told, 0) >= self.checker.term_before(m),
                "nobody called for a forced campaign",
            )

    def vote(self, m: Message) -> None:
        """§5.4.1, and §4.2.3 of the thesis."""
        raft, asked = self.raft, self.heard
        if m.reject or asked.kind not in (Kind.VOTE, Kind.PRE_VOTE):
            return
        self.require(asked.force or self.peaceful(), "a vote under a leader")
        self.require(not raft.recovering, "a vote although one may be forgotten")
        end = (raft.log.last_term, raft.log.last)
        theirs = (asked.log_term, asked.index)
        self.require(theirs >= end, f"a vote for a log that ends at {theirs}, here at {end}")
        self.require(theirs >= raft.barrier, "a vote for a log without what was acked here")
        term = m.term or raft.term
        self.require(term == asked.term >= raft.vote_floor, "a vote in a term in doubt")
        if m.kind is Kind.PRE_VOTE_REPLY:
            self.require(term > raft.term, "a promise for a term that is over")
        else:
            self.require((raft.term, raft.vote) == (term, m.to), "a vote that is not noted")

    # -- the leader -----------------------------------------------------------

    def from_leader(self, m: Message) -> None:
        """Only a leader speaks as one, of what it has and knows."""
        raft = self.raft
        self.require(raft.is_leader, f"{m.kind.name} without being leader")
        self.require(m.commit <= raft.log.committed, "a commit is told that is not there")
        if m.kind is Kind.HEARTBEAT:
            self.require(
                m.commit <= self.checker.acked_ever.get((raft.group, m.to), 0),
                f"a heartbeat tells node {m.to} a commit that it has not acked",
            )
        elif m.kind is Kind.APPEND:
            self.require(raft.log.term(m.index) == m.log_term, "an append after another entry")
            follow = all(e.index == m.index + 1 + i for i, e in enumerate(m.entries))
            self.require(follow, "entries that do not follow")
            if not m.entries:
                return
            self.require(raft.log.term(m.entries[-1].index) == m.entries[-1].term, "old entries")

    def handover(self, m: Message) -> None:
        """The target has everything (thesis §3.10)."""
        raft = self.raft
        life = raft.log.config.voters.get(m.to)
        self.require(life is not None, f"handover to node {m.to}, which is no voter")
        have = self.checker.acked.get((raft.group, m.to, life or 0), (0, 0))[0]
        self.require(have >= raft.log.last, f"handover to {m.to}, who lags")
        key = (raft.group, m.to, life or 0)
        self.checker.told[key] = max(self.checker.told.get(key, 0), raft.term)

    # -- the follower ---------------------------------------------------------

    def ack(self, m: Message) -> None:
        """A follower acks what it was sent, to the leader of its term."""
        raft = self.raft
        if m.reject or m.to == raft.node:
            return
        self.require(not raft.is_leader, "a leader acks")
        self.require(m.index <= raft.log.last, "an ack of what is not here")
        if self.heard.kind in FROM_LEADER:
            top = max(self.heard.index + len(self.heard.entries), raft.log.committed)
            self.require(m.index <= top, f"an ack of {m.index}; {top} was sent")


JUDGES = {
    Kind.PRE_VOTE: Promises.candidacy,
    Kind.VOTE: Promises.candidacy,
    Kind.PRE_VOTE_REPLY: Promises.vote,
    Kind.VOTE_REPLY: Promises.vote,
    Kind.APPEND: Promises.from_leader,
    Kind.HEARTBEAT: Promises.from_leader,
    Kind.SNAPSHOT: Promises.from_leader,
    Kind.TIMEOUT_NOW: Promises.handover,
    Kind.APPEND_REPLY: Promises.ack,
}
