"""Planted bugs of single rules: who is removed, what a cut takes back, what ends a read."""

from dataclasses import replace

from headwater.hub.raft import (
    election,
    membership,
    quorum,
    reads,
    replication,
    transfer,
)
from headwater.hub.raft.log import RaftLog
from headwater.hub.raft.model.config import Config
from headwater.hub.raft.model.message import Kind
from headwater.hub.raft.model.state import Pending
from headwater.hub.raft.multi_raft import MultiRaft
from headwater.hub.raft.progress import MemberProgress
from headwater.hub.raft.raft import Raft
from tests.sim.planted.bug import bug

# -- the log ---------------------------------------------------------------------


def _configs_of_snapshot(original):
    def init(self, snapshot, entries):
        original(self, snapshot, entries)
        del self.configs[1:]

    return init


def _cut_but(name):
    def make(original):
        def cut(self, index):
            kept = getattr(self, name)
            if isinstance(kept, list):
                kept = list(kept)
            original(self, index)
            setattr(self, name, kept)

        return cut

    return make


def _any_tail(original):
    def synced_to(self, index, term):
        self.durable = max(self.durable, min(index, self.last))

    return synced_to


def _no_step_back(original):
    return lambda self, index, term: min(index, self.last)


bug(
    "start-without-changes",
    "a start knows only the members of its snapshot",
    (RaftLog, "__init__", _configs_of_snapshot),
)
bug(
    "change-never-taken-back",
    "a change of members stays in force when its entry is cut off",
    (RaftLog, "cut", _cut_but("configs")),
)
bug(
    "cut-stays-durable",
    "what took the place of a tail counts as durable at once",
    (RaftLog, "cut", _cut_but("durable")),
)
bug(
    "cut-stays-handed",
    "what took the place of a tail is not written",
    (RaftLog, "cut", _cut_but("handed")),
)
bug(
    "sync-of-a-replaced-tail",
    "the sync of a tail counts for what took its place",
    (RaftLog, "synced_to", _any_tail),
    seeds=200,
)
bug(
    "no-step-back", "a refusal does not lead further back", (RaftLog, "agree_before", _no_step_back)
)

# -- members -----------------------------------------------------------------------


def _forget_removed(original):
    return lambda self, node: replace(original(self, node), removed=self.removed)


def _same_life(original):
    def with_voter(self, node):
        changed = original(self, node)
        return replace(changed, voters={**changed.voters, node: 1})

    return with_voter


def _even_half(original):
    return lambda voters: (voters + 1) // 2


bug(
    "removal-forgotten", "a removed incarnation may come back", (Config, "without", _forget_removed)
)
bug(
    "first-incarnation-for-ever",
    "a voter comes back as its first incarnation",
    (Config, "with_voter", _same_life),
)
bug(
    "never-taken-back",
    "no leader takes a node back",
    (membership, "readmit", lambda original: lambda r, m: None),
)
bug(
    "half-of-four",
    "half of an even number of voters wins",
    (quorum, "quorum_size", _even_half),
)
bug(
    "half-of-four-commits",
    "half of an even number of voters commits",
    (
        replication,
        "majority_value",
        lambda original: lambda values: _at_half(list(values)),
    ),
)


def _at_half(values):
    ranked = sorted(values, reverse=True)
    return ranked[(len(ranked) - 1) // 2] if ranked else 0


# -- answers and reads -------------------------------------------------------------


def _keep_inflight(original):
    def accepted(self, index):
        kept, size = self.inflight.copy(), self.inflight_bytes
        news = original(self, index)
        self.inflight, self.inflight_bytes = kept, size
        return news

    return accepted


def _lose_all(original):
    def abandon(r):
        r.reading.pending.clear()
        r.reading.early = []
        original(r)

    return abandon


def _one_answers(original):
    def quorum_round(r):
        rounds = [each.round for each in r.progress.values()]
        return max(rounds) if rounds else original(r)

    return quorum_round


bug(
    "window-stays-full",
    "what is acknowledged still fills the window",
    (MemberProgress, "accepted", _keep_inflight),
)
bug(
    "reads-lost",
    "reads that wait are forgotten when the leader steps down",
    (reads, "abandon", _lose_all),
)
def _sends_again(original):
    def on_heartbeat_reply(r, m):
        progress = r.progress.get(m.sender)
        if progress is not None:
            progress.nudged = -1
        original(r, m)

    return on_heartbeat_reply


bug(
    "backlog-for-each-answer",
    "a member that stood still is sent its backlog again for each heartbeat that it answers",
    (replication, "on_heartbeat_reply", _sends_again),
)
bug("one-answer-confirms", "one follower confirms a read", (reads, "quorum_round", _one_answers))
bug(
    "lease-by-ticks-only",
    "a lease does not look at the clock",
    (reads, "lease_holds", lambda original: lambda r, now_ns: _ticks_only(r)),
)
bug(
    "lease-from-the-answer",
    "a lease begins when a heartbeat is answered, not when it was sent",
    (
        reads,
        "round_answered",
        lambda original: lambda r: (original(r), _begin_lease_now(r)),
    ),
)
bug(
    "read-tells-any-commit",
    "the answer to a read tells a commit beyond what is known to be the leader's log",
    (reads, "hear_commit", lambda original: lambda r, term, index: _commit_unverified(r, index)),
)
bug(
    "round-before-the-read",
    "a round of heartbeats confirms a read that came after it",
    (reads, "lead_read", lambda original: lambda *asked: _one_round_early(original, *asked)),
)
bug(
    "early-read-answered",
    "a leader without a commit of its own takes reads",
    (reads, "lead_read", lambda original: lambda *asked: _without_commit(*asked)),
)


def _ticks_only(r):
    confirmed = r.reading.confirmed
    if not r.options.lease_reads or confirmed is None or r.transfer.spent or r.sleep.asleep:
        return False
    ticks = r.options.election_ticks * r.options.lease_share_percent // 100
    return r.ticks - confirmed.ticks < ticks


def _commit_unverified(r, index):
    if not r.is_leader:
        r.commit_to(min(index, r.log.last))


def _begin_lease_now(r):
    confirmed = r.reading.confirmed
    if confirmed is not None:
        r.reading.confirmed = confirmed._replace(ticks=r.ticks, now_ns=r.now_ns)


def _one_round_early(original, r, context, request, now_ns):
    original(r, context, request, now_ns)
    if r.reading.pending:
        last = r.reading.pending.pop()
        r.reading.pending.append(last._replace(round=last.round - 1))


def _without_commit(r, context, request, now_ns):
    pending = Pending(r.reading.number + 1, r.log.committed, context, request)
    r.reading.pending.append(pending)
    reads.round_answered(r)


def _late_append(original):
    def settle(self, m):
        late = m.term < self.term and m.kind is Kind.APPEND and not self.is_leader
        return late or original(self, m)

    return settle


def _term_unheard(original):
    def settle(self, m):
        return (m.term > self.term and m.kind is Kind.APPEND_REPLY) or original(self, m)

    return settle


bug(
    "late-append-taken",
    "an append of an earlier term is taken",
    (Raft, "_compare_term", _late_append),
)
bug(
    "greater-term-unheard",
    "a leader does not step down for the greater term of an answer",
    (Raft, "_compare_term", _term_unheard),
)

# -- handover, sleep, members ------------------------------------------------------

bug(
    "handover-ignored",
    "a handover is asked for and nothing happens",
    (transfer, "begin", lambda original: lambda r, target: None),
)
bug(
    "death-unnoticed",
    "sleeping groups do not notice that their leader's node is gone",
    (MultiRaft, "_watch", lambda original: lambda self: None),
)
bug(
    "change-while-open",
    "a change is made before the one before is committed",
    (
        membership,
        "ready_for_change",
        lambda original: lambda r: r.log.term(r.log.committed) == r.term,
    ),
)
bug(
    "change-before-own-commit",
    "a new leader changes members before it has committed",
    (
        membership,
        "ready_for_change",
        lambda original: lambda r: r.log.config_index <= r.log.committed,
    ),
)
bug(
    "gone-unheard",
    "a member does not hear that it was removed",
    (membership, "on_gone", lambda original: lambda r, m: None),
)
bug(
    "floor-ignored",
    "a candidate takes a term in which it may have voted",
    (election, "next_term", lambda original: lambda r: r.term + 1),
)
bug(
    "incarnations-of-boots-not-forgotten",
    "what a node had before it started again still counts as known",
    (MemberProgress, "forget", lambda original: lambda self: None),
)
