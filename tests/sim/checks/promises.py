"""What a member may say, judged at the moment when it decides to say it.

The rules are written down here a second time, from the paper and `docs/RAFT.md`, and from what was
said on the wire; the product's own books are asked for as little as possible.
"""

from headwater.hub.raft.model.config import Config, decode_config
from headwater.hub.raft.model.entry import EntryKind, bytes_of
from headwater.hub.raft.model.message import FROM_LEADER, OUT_OF_TERM, REPLIES, Kind, Message
from headwater.hub.raft.model.snapshot import Snapshot
from headwater.hub.raft.raft import Raft
from tests.sim.checks.checker import Checker
from tests.sim.checks.heard import Heard
from tests.sim.disks import Durable

HANDOVER = 3
"""Election timeouts in which a handover ends, even when it is asked for again meanwhile."""
ASKS = (Kind.PRE_VOTE, Kind.VOTE, Kind.PRE_VOTE_REPLY)
"""These name a term that need not come to be."""
NONE = Message(Kind.GONE, 0, 0)


class Promises:
    """Of one start of one replica. `led` is the tick at which a leader was heard last."""

    def __init__(self, checker: Checker, raft: Raft, disk: Durable) -> None:
        self.checker = checker
        self.raft = raft
        self.disk = disk
        self.told = Heard(raft)
        self.now_ns: int | None = None
        self.handing = (0, 0), 0
        self.log_seen: tuple[object, ...] = ()
        self.round = 0
        """The newest round of heartbeats."""
        self.sent_again: dict[tuple[int, int], int] = {}
        """The newest round when an answer to one had a leader send entries, by the member and its
        start."""
        self.led = -(1 << 30)
        self.heard = NONE
        self.leader = 0
        raft.send = self.send  # type: ignore[method-assign]
        raft.step = self.step  # type: ignore[method-assign]
        raft.commit_to = self.commit_to  # type: ignore[method-assign]
        raft.become_leader = self.become_leader  # type: ignore[method-assign]
        raft.snapshot_installed = self.installed  # type: ignore[method-assign]
        raft.read = self.read  # type: ignore[method-assign]
        raft.read_done = self.read_done  # type: ignore[method-assign]

    def step(self, m: Message) -> None:
        """What is said now may be an answer to this."""
        raft = self.raft
        known = raft.peer_boots.get(m.sender, 0)
        late = (m.kind in REPLIES and m.to_boot != raft.boot) or m.boot < known
        over = self.is_over(m)
        stale = m.term < raft.term and m.kind not in OUT_OF_TERM and m.boot == known
        before = self.books() if late or over or stale else ()
        votes = set(raft.votes)
        self.heard = m
        self.leader = raft.leader
        if not late and not over:
            self.told.record(m)
        index = self.index_before(m)
        doubt = raft.recovering
        try:
            Raft.step(raft, m)
        finally:
            self.heard = NONE
        if m.reject and self.index_before(m) != index:
            self.steps_back(m)
        if doubt and not raft.recovering and raft.incarnation < raft.boot:
            self.require(self.told.proven(), "is the member of before, and not all have answered")
        self.require(not late or self.books() == before, "what an earlier start said is heard")
        self.require(
            not stale or self.books() == before, "what was said in an earlier term is heard"
        )
        knows = late or over or m.kind in OUT_OF_TERM or m.kind in ASKS or raft.term >= m.term
        self.require(
            knows or raft.removed, f"goes on in {raft.term} after {m.kind.name} of {m.term}"
        )
        self.require(
            not over or self.books() == before,
            f"what an incarnation of {m.sender} said that is over",
        )
        self.require(
            m.sender not in raft.votes.keys() - votes
            or raft.log.config.voters.get(m.sender) == m.incarnation,
            "a vote of another incarnation is counted",
        )

    def index_before(self, m: Message) -> int:
        """Where this leader goes on with the sender of a message."""
        progress = self.raft.progress.get(m.sender)
        return progress.next if progress is not None else 0

    def steps_back(self, m: Message) -> None:
        """After a refusal a leader skips what cannot be the same: terms greater than the one that
        the follower has there (§5.3)."""
        log = self.raft.log
        before = self.index_before(m) - 1
        if m.kind is Kind.APPEND_REPLY and before > log.base_index:
            here = log.term(before) or 0
            self.require(here <= m.log_term, "a leader goes back by single entries")

    def is_over(self, m: Message) -> bool:
        """Whether an incarnation speaks of which this node knows for certain that it was
        removed."""
        if m.kind in OUT_OF_TERM or m.sender == self.raft.node:
            return False
        config = self.checker.members.at(self.raft.group, self.raft.log.committed)
        gone = self.checker.members.gone_at(self.raft.group, m.sender, self.raft.log.committed)
        return m.incarnation <= gone and config.incarnation(m.sender) != m.boot

    def books(self) -> tuple[object, ...]:
        """What a message could change."""
        raft = self.raft
        known = {n: (p.match, p.next, p.round, p.active) for n, p in raft.progress.items()}
        heard = (dict(raft.votes), dict(raft.recovery.answers), raft.removed, raft.recovering)
        log = (raft.log.base_index, raft.log.last, raft.log.last_term, raft.log.committed)
        return (raft.role, raft.term, raft.leader, log, known, *heard)

    def send(self, m: Message) -> None:
        """Judge, then let it be said."""
        if m.kind is Kind.HEARTBEAT:
            self.round = max(self.round, m.context)
        elif m.kind is Kind.APPEND and m.entries:
            self.sends_again(m)
        judge = JUDGES.get(m.kind)
        if judge is not None:
            judge(self, m)
        self.told.said(m)
        Raft.send(self.raft, m)

    def sends_again(self, m: Message) -> None:
        """A node that stood still answers many heartbeats at once: what it lacks goes out once for
        all that had begun by then."""
        heard = self.heard
        if heard.kind is not Kind.HEARTBEAT_REPLY or heard.sender != m.to:
            return
        member = heard.sender, heard.boot
        again = heard.context <= self.sent_again.get(member, -1)
        self.require(not again, "sends entries for each answer to a heartbeat")
        self.sent_again[member] = self.round

    def commit_to(self, index: int) -> None:
        """A leader commits, or a follower hears of it."""
        raft = self.raft
        if raft.is_leader and index > raft.log.committed:
            voters = raft.log.config.voters
            self.require(self.told.durable(voters, index), f"commits {index}; no majority said so")
            self.checker.commits(raft, index)
        Raft.commit_to(raft, index)

    def become_leader(self) -> None:
        """A majority has told this candidate so, in this term (§5.2)."""
        voters = self.raft.log.config.voters
        self.sent_again.clear()
        self.require(self.told.elected(voters), "leads without hearing a majority of votes")
        Raft.become_leader(self.raft)

    def require(self, good: bool, text: str) -> None:
        raft = self.raft
        self.checker.require(good, f"node {raft.node}, group {raft.group}: {text}")

    def peaceful(self) -> bool:
        """Whether no leader that works may be there: none was heard for an election timeout, nor
        could one have been before this start. Without leases a greater term ends it at once."""
        ticks = self.raft.options.election_ticks
        over = not self.raft.options.lease_reads and not self.leader
        return (over or self.raft.ticks - self.led >= ticks) and self.raft.ticks >= ticks

    # -- the log --------------------------------------------------------------

    def state(self) -> None:
        """After every batch: the log is what its entries say, and what it calls durable is."""
        log, group = self.raft.log, self.raft.group
        options = self.raft.options
        for each in self.raft.progress.values():
            self.require(len(each.inflight) <= options.inflight_max, "too much is under way")
        if self.raft.sleep.asleep:
            self.told.forget_rounds()
            self.asleep()
        seen = (log.base_index, log.last, log.last_term, log.durable, log.committed)
        if seen == self.log_seen:
            return
        self.log_seen = seen
        end = log.entries[-1][:2] if log.entries else (log.base_term, log.base_index)
        self.require((log.last_term, log.last) == end, "the log ends elsewhere")
        self.require(log.last - log.base_index == len(log.entries), "the log has a hole")
        self.require(log.bytes == bytes_of(log.entries), "the size of the log is another")
        changes = [e for e in log.entries if e.kind == EntryKind.CONFIG]
        configs = [(e.index, decode_config(e.data)) for e in changes]
        self.require(log.configs[1:] == configs, "other configurations than those in the log")
        newest = (log.configs + configs)[-1]
        self.require(
            (log.config_index, log.config) == newest, "another configuration than the newest counts"
        )
        if self.raft.is_leader and len(log.configs) > 1:
            self.promoted(log.configs[-2][1], *newest)
        if log.base_index > 1:
            known = self.checker.members.at(group, log.base_index)
            self.require(log.configs[0] == (log.base_index, known), "a snapshot of other members")
            fact = self.checker.committed[group].get(log.base_index)
            self.require(fact is None or fact[0] == log.base_term, "a snapshot of another term")
        self.require(
            log.durable <= log.base_index
            or self.disk.holds(group, log.durable, log.term(log.durable)),
            f"{log.durable} is taken for durable",
        )

    def promoted(self, before: Config, index: int, config: Config) -> None:
        """Who becomes a voter knows that it is a learner, and lacks little (thesis §4.2.1)."""
        raft = self.raft
        if raft.log.term(index) != raft.term:
            return
        indexes = [at for at, _ in self.checker.members.known[raft.group] if at < index]
        for member in config.voters.items() - before.voters.items():
            has = self.told.acks.get(member, 0)
            self.require(has >= max(indexes), f"{member[0]} is promoted and does not know it")
            lag = index - 1 - has
            self.require(
                lag <= raft.options.promote_lag_max, f"{member[0]} is promoted and lacks {lag}"
            )

    def asleep(self) -> None:
        """Nobody sleeps while there is something to do, and a leader only when all have all."""
        raft, log = self.raft, self.raft.log
        self.require(log.committed == log.last and not raft.recovering, "sleeps, and is not done")
        if not raft.is_leader:
            return
        self.require(not raft.transfer.target and not log.config.returning, "sleeps in a change")
        self.require(not raft.reading.pending and log.durable == log.last, "sleeps while it waits")
        for member in {**log.config.voters, **log.config.learners}.items():
            has = member[0] == raft.node or self.told.acks.get(member, 0) >= log.last
            self.require(has, f"sleeps, and {member[0]} lacks something")

    def installed(self, snapshot: Snapshot) -> None:
        """A snapshot takes the place of a log that lacks something committed (§7)."""
        raft = self.raft
        fact = self.checker.committed.get(raft.group, {}).get(snapshot.index)
        self.require(snapshot.index > raft.log.committed, "a snapshot of what is here already")
        self.require(fact is None or fact[0] == snapshot.term, "a snapshot of another term")
        self.require(raft.log.term(snapshot.index) != snapshot.term, "a log is thrown away")
        Raft.snapshot_installed(raft, snapshot)

    # -- reads ----------------------------------------------------------------

    def read(self, context: int, now_ns: int = 0) -> None:
        """A client asks this node."""
        self.told.asks(context)
        self.now_ns = now_ns
        try:
            Raft.read(self.raft, context, now_ns)
        finally:
            self.now_ns = None

    def read_done(self, context: int, index: int | None) -> None:
        """A read of this node ends."""
        if index is not None and self.raft.is_leader:
            self.confirmed((self.raft.node, self.raft.boot, context), index)
        elif index is not None:
            same = (self.heard.kind, self.heard.context) == (Kind.READ_REPLY, context)
            self.require(same and index == self.heard.index, "a read that nobody confirmed")
        Raft.read_done(self.raft, context, index)

    def read_reply(self, m: Message) -> None:
        """A leader answers a follower's read."""
        if not m.reject:
            self.confirmed((m.to, m.to_boot, m.context), m.index)

    def confirmed(self, read: tuple[int, int, int], index: int) -> None:
        """A majority has answered a heartbeat that was sent after the read was asked for, or owes
        its silence; and this leader knew the commit index (thesis §6.4)."""
        raft = self.raft
        voters = raft.log.config.voters
        self.require(raft.is_leader, "a read is confirmed by no leader")
        number = self.told.asked.get(read)
        now_ns = raft.moment_ns if self.heard.kind is Kind.READ else self.now_ns
        self.require(number is not None, "a read that nobody asked for")
        self.require(
            self.told.confirmed(voters, number or 0)
            or (now_ns is not None and self.told.leased(voters, now_ns)),
            "a read without a majority's word",
        )
        term = raft.log.term(index) if index > raft.log.base_index else raft.term
        self.require(term == raft.term, "a read at a commit of an earlier term")

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
        incarnation = raft.log.config.voters.get(m.to)
        self.require(incarnation is not None, f"handover to node {m.to}, which is no voter")
        have = self.checker.acked.get((raft.group, m.to, incarnation or 0), (0, 0))[0]
        self.require(have >= raft.log.last, f"handover to {m.to}, who lags")
        key = (raft.group, m.to, incarnation or 0)
        self.checker.told[key] = max(self.checker.told.get(key, 0), raft.term)

    def handing_over(self) -> None:
        """With every tick: a handover that does not succeed is given up (thesis §3.10)."""
        raft = self.raft
        now = (raft.term, raft.transfer.target)
        if now != self.handing[0] or not raft.transfer.target:
            self.handing = now, raft.ticks
        waits = raft.ticks - self.handing[1]
        self.require(waits < HANDOVER * raft.options.election_ticks, "a handover never ends")

    # -- the follower ---------------------------------------------------------

    def ack(self, m: Message) -> None:
        """A follower acks what it was sent, to the leader of its term."""
        raft = self.raft
        asked = self.heard
        if m.reject and asked.kind is Kind.APPEND and asked.term == raft.term:
            here = raft.log.term(m.hint)
            fits = m.hint <= raft.log.base_index or (here is not None and here <= asked.log_term)
            self.require(fits, "a refusal names an index of a greater term")
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
    Kind.READ_REPLY: Promises.read_reply,
}
