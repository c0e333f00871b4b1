"""Planted bugs of single rules: who is removed, what a cut takes back, what ends a read."""

from dataclasses import replace

from headwater.hub.raft import quorum, reads, recovery, replication
from headwater.hub.raft.config import Config
from headwater.hub.raft.log import RaftLog
from headwater.hub.raft.progress import Progress
from tests.sim.bug import bug

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
    seeds=300,
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


bug("removal-forgotten", "a removed life may come back", (Config, "without", _forget_removed))
bug(
    "first-life-for-ever",
    "a voter comes back as its first life",
    (Config, "with_voter", _same_life),
)
bug(
    "never-taken-back",
    "no leader takes a node back",
    (recovery, "take_back", lambda original: lambda r, m: None),
)
bug(
    "made-again-as-before",
    "a replica that is made again within a start is the member that was removed",
    (
        recovery,
        "may_live",
        lambda original: lambda r, listed: listed in (r.boot, r.incarnation),
    ),
    seeds=400,
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
    (Progress, "accepted", _keep_inflight),
)
bug(
    "reads-lost",
    "reads that wait are forgotten when the leader steps down",
    (reads, "abandon", _lose_all),
)
bug("one-answer-confirms", "one follower confirms a read", (reads, "quorum_round", _one_answers))
