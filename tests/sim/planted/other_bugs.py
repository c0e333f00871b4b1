"""Planted bugs of what comes late or from the wrong one, of limits, members and silence.

Not here, because they do no harm: an earlier term's HEARTBEAT (its commit is old, and `verified`
bounds it), READ and READ_REPLY (a read is confirmed whenever the answer comes), SNAPSHOT_REPLY (the
receiver asks again for what it lacks), SNAPSHOT (what is in it is committed); TIMEOUT_NOW from
another than the leader (nobody else says it); a promise that leaves in a later term (who hears it
drops it, or may count it).
"""

from dataclasses import replace

from headwater.hub.raft import (
    core,
    election,
    heartbeat,
    hibernation,
    membership,
    quorum,
    reads,
    recovery,
    replication,
)
from headwater.hub.raft.log import RaftLog
from headwater.hub.raft.model.config import Config
from headwater.hub.raft.model.entry import EntryKind
from headwater.hub.raft.model.message import Kind, Message
from headwater.hub.raft.model.role import Role
from headwater.hub.raft.multi_raft import MultiRaft
from headwater.hub.raft.progress import MemberProgress, State
from headwater.hub.raft.raft import Raft
from tests.sim.planted.bug import bug


def _earlier(kind):
    def make(original):
        def settle(self, m):
            return (m.term < self.term and m.kind is kind) or original(self, m)

        return settle

    return make


for _kind in (
    Kind.APPEND_REPLY,
    Kind.HEARTBEAT_REPLY,
    Kind.TIMEOUT_NOW,
    Kind.VOTE_REPLY,
):
    bug(
        f"earlier-{_kind.name.lower().replace('_', '-')}",
        f"a {_kind.name} of an earlier term counts",
        (Raft, "_compare_term", _earlier(_kind)),
    )


def _deaf_to_removal(original):
    def committed(r):
        was = r.removed
        original(r)
        r.removed = was

    return committed


bug(
    "removed-speaks-on",
    "a member goes on that knows of its removal",
    (membership, "committed", _deaf_to_removal),
)


bug(
    "promoted-at-once",
    "a learner is promoted when its lag is small by the leader's own books, its log unseen",
    (membership, "caught_up", lambda original: lambda r, node: True),
)


bug(
    "promoted-before-its-change",
    "a learner is promoted that has not heard of being one",
    (
        membership,
        "caught_up",
        lambda original: (
            lambda r, node: (
                node in r.progress
                and r.log.last - r.progress[node].match <= r.options.promote_lag_max
            )
        ),
    ),
)


def _loud_commit(original):
    def send(r, sleep=False):
        number = heartbeat.begin_round(r)
        for node in r.progress:
            r.send(
                Message(
                    Kind.HEARTBEAT,
                    r.node,
                    node,
                    commit=r.log.committed,
                    context=number,
                    force=sleep,
                )
            )

    return send


bug(
    "heartbeat-commit-beyond-match",
    "a leader tells all it has committed",
    (heartbeat, "send", _loud_commit),
)


def _hint_below_match(original):
    def refused(self, index, hint):
        if self.state is State.REPLICATE:
            self.to_probe()
        if self.next - 1 != index:
            return self.state is not State.PROBE
        self.next = max(1, min(index, hint + 1))
        self.paused = False
        return True

    return refused


bug(
    "hint-below-match",
    "a refusal leads back below what is known",
    (MemberProgress, "refused", _hint_below_match),
    seeds=120,
)


def _match_goes_back(original):
    def accepted(self, index):
        news = original(self, index)
        self.match = index
        return news

    return accepted


bug(
    "match-goes-back",
    "a late ack lowers what is known",
    (MemberProgress, "accepted", _match_goes_back),
)


def _send_now(original):
    def send(self, m):
        m.group, m.boot, m.incarnation = self.group, self.boot, self.incarnation
        if not m.term and m.kind not in core.OUT_OF_TERM:
            m.term = self.term
        (self._held if m.kind in core.AFTER_SYNC else self._now).append(m)

    return send


bug(
    "said-before-the-term-is-kept",
    "a message of a term leaves before the term is on disk",
    (Raft, "send", _send_now),
)


bug(
    "lease-in-sleep",
    "a lease outlives the sleep of its group",
    (reads, "lease_holds", lambda original: lambda r, now_ns: _awake_lease(original, r, now_ns)),
    (
        hibernation.reads,
        "drop_lease",
        lambda original: lambda r: None if r.sleep.asleep else original(r),
    ),
)


def _awake_lease(original, r, now_ns):
    asleep, r.sleep.asleep = r.sleep.asleep, False
    try:
        return original(r, now_ns)
    finally:
        r.sleep.asleep = asleep


def _first_config(original):
    def compact(self, snapshot):
        if snapshot.index > self.base_index:
            snapshot = replace(snapshot, config=self.configs[0][1])
        original(self, snapshot)

    return compact


bug(
    "snapshot-of-older-members",
    "a compaction keeps the members of the one before",
    (RaftLog, "compact", _first_config),
)


bug(
    "sleep-with-one-voice",
    "a leader sleeps when a majority agreed",
    (hibernation, "fall_asleep", lambda original: lambda r: _most_sleep(r)),
)


def _most_sleep(r):
    if hibernation.is_quiet(r) and 2 * sum(p.asleep for p in r.progress.values()) >= len(
        r.progress
    ):
        r.sleep.asleep = True
        reads.drop_lease(r)


bug(
    "never-woken",
    "no message wakes a sleeping group",
    (hibernation, "wake_on", lambda original: lambda r, m: None),
)


def _promise_is_vote(original):
    def on_vote_reply(r, m):
        if m.kind is Kind.PRE_VOTE_REPLY and r.role is Role.CANDIDATE:
            m = replace(m, kind=Kind.VOTE_REPLY)
        original(r, m)

    return on_vote_reply


bug(
    "promise-is-a-vote",
    "a promise of a vote counts as one",
    (election, "on_vote_reply", _promise_is_vote),
)


def _members_vote(original):
    def on_vote_reply(r, m):
        wanted = Role.PRE_CANDIDATE if m.kind is Kind.PRE_VOTE_REPLY else Role.CANDIDATE
        if r.role is not wanted:
            return
        r.votes.setdefault(m.sender, not m.reject)
        election._count(r)

    return on_vote_reply


def _any_result(original):
    def vote_result(voters, votes):
        need = quorum.quorum_size(len(voters))
        if sum(votes.values()) >= need:
            return True
        return original(voters, votes)

    return vote_result


def _ask_all(original):
    def ask(r, kind, term, force):
        for node in r.log.config.members():
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

    return ask


bug(
    "learners-vote",
    "votes of learners count",
    (election, "on_vote_reply", _members_vote),
    (election, "vote_result", _any_result),
    (election, "_ask", _ask_all),
)


bug(
    "config-when-committed",
    "a change of members counts when it is committed, not when it is in the log",
    (RaftLog, "config", lambda original: property(lambda self: self.config_at(self.committed))),
)


bug(
    "append-below-commit",
    "an append may replace what is committed",
    (replication, "on_append", lambda original: lambda r, m: _any_place(r, m)),
    (RaftLog, "cut", lambda original: lambda self, index: _cut_any(self, index)),
)


def _any_place(r, m):
    if not r.log.matches(m.index, m.log_term):
        hint = r.log.agree_before(m.index, m.log_term)
        term = r.log.term(hint) or 0
        r.reply(m, Kind.APPEND_REPLY, index=m.index, reject=True, hint=hint, log_term=term)
        return
    last = r.log.merge(m.entries) if m.entries else m.index
    r.check_config()
    r.verified = max(r.verified, last)
    r.commit_to(min(m.commit, last))
    r.reply(m, Kind.APPEND_REPLY, index=last)


def _cut_any(self, index):
    kept = index - self.base_index - 1
    del self.entries[kept:]
    self.last = index - 1
    self.last_term = self.entries[-1].term if self.entries else self.base_term
    self.durable = min(self.durable, self.last)
    self.handed = min(self.handed, self.last)
    self.committed = min(self.committed, self.last)


bug(
    "removed-leader-leads-on",
    "a leader leads on when its removal is committed",
    (membership, "committed", lambda original: lambda r: _leads_on(original, r)),
)


def _leads_on(original, r):
    if r.is_leader and r.node not in r.log.config.voters:
        return
    original(r)


bug(
    "no-quiet-start",
    "a vote is given right after a start",
    (election, "leader_is_alive", lambda original: lambda r: _loud_start(original, r)),
)


def _loud_start(original, r):
    r.started_quiet = False
    return original(r)


def _own_config_only(original):
    return lambda r: set(r.log.config.voters) - {r.node}


bug(
    "proof-of-own-members",
    "only voters of the own configuration are heard",
    (recovery, "voters_to_hear", _own_config_only),
)


def _low_floor(original):
    def prove(r):
        floor = r.vote_floor
        original(r)
        if r.vote_floor > floor:
            r.vote_floor -= 1

    return prove


bug(
    "floor-one-lower",
    "a term in which a vote may be forgotten is voted in",
    (recovery, "prove", _low_floor),
)


def _own_barrier(original):
    def prove(r):
        before = r.recovering
        original(r)
        if before and not r.recovering:
            r.barrier = (r.log.last_term, r.log.last)

    return prove


bug("barrier-of-own-log", "what the others have does not bind", (recovery, "prove", _own_barrier))


bug(
    "fenced-before-commit",
    "a removal fences before it is committed",
    (
        membership,
        "fenced",
        lambda original: (
            lambda r, m: (
                r.log.config.fenced(m.sender, m.incarnation)
                and r.log.config.incarnation(m.sender) != m.boot
            )
        ),
    ),
)


bug(
    "eligible-by-newest-only",
    "a voter that is to be removed is no candidate any more",
    (election, "eligible", lambda original: lambda r: r.is_voter and original(r)),
)


bug(
    "no-first-entry",
    "a new leader adds no entry of its own",
    (
        replication,
        "append_own",
        lambda original: lambda r, kind, data: original(r, kind, data) if data else 0,
    ),
)


bug(
    "proposals-during-handover",
    "proposals are taken during a handover",
    (Raft, "propose", lambda original: lambda self, datas: _open_handover(original, self, datas)),
)


def _open_handover(original, self, datas):
    target, self.transfer.target = self.transfer.target, 0
    try:
        return original(self, datas)
    finally:
        self.transfer.target = target


bug(
    "window-unbounded",
    "more appends are under way than are allowed",
    (
        MemberProgress,
        "full",
        lambda original: lambda self, messages, size: self.state is State.PROBE and self.paused,
    ),
)


bug(
    "read-at-first-commit",
    "an early read is answered at the commit that was known before",
    (reads, "lead_read", lambda original: lambda *asked: _low_index(original, *asked)),
)


def _low_index(original, r, context, request, now_ns):
    before = len(r.reading.pending)
    original(r, context, request, now_ns)
    if len(r.reading.pending) > before:
        last = r.reading.pending.pop()
        r.reading.pending.append(last._replace(index=max(0, last.index - 1)))


bug(
    "all-batches-synced",
    "a sync of one batch is told for all",
    (MultiRaft, "synced", lambda original: lambda self, number: original(self, number + 1)),
)


bug(
    "returning-voter-counts",
    "a voter that is taken back stays a voter",
    (
        Config,
        "with_learner",
        lambda original: (
            lambda self, node, incarnation, returning: _still_voter(
                original, self, node, incarnation, returning
            )
        ),
    ),
)


def _still_voter(original, self, node, incarnation, returning):
    changed = original(self, node, incarnation, returning)
    if node in self.voters:
        return replace(
            changed,
            voters={**changed.voters, node: incarnation},
            learners={k: v for k, v in changed.learners.items() if k != node},
            returning=changed.returning - {node},
        )
    return changed


bug(
    "lost-probe-counts",
    "a snapshot counts as arrived when it was sent",
    (replication, "send_part", lambda original: lambda r, w, part: _counted(original, r, w, part)),
)


def _counted(original, r, wanted, part):
    original(r, wanted, part)
    progress = r.progress.get(wanted.node)
    if progress is not None and part.snapshot is not None:
        progress.match = max(progress.match, part.snapshot.index)


bug(
    "snapshot-not-confirmed",
    "a member is fed on before its snapshot has arrived",
    (replication, "on_snapshot_reply", lambda original: lambda r, m: _fed_on(original, r, m)),
)


def _fed_on(original, r, m):
    original(r, m)
    progress = r.progress.get(m.sender)
    if progress is not None and progress.state is State.SNAPSHOT:
        progress.match = max(progress.match, progress.snapshot_index)


bug(
    "config-entry-twice",
    "a promotion is proposed again and again",
    (membership, "tick", lambda original: lambda r: _promote_again(r)),
)


def _promote_again(r):
    for node in sorted(r.log.config.returning):
        if membership.caught_up(r, node):
            replication.append_own(r, EntryKind.CONFIG, r.log.config.with_voter(node).encode())
            return
