"""Planted bugs: promises, elections, replication, snapshots, the disk, members, reads."""

from dataclasses import replace

from headwater.edge.storage.format.crc import checksum
from headwater.hub.raft import (
    core,
    election,
    heartbeat,
    membership,
    quorum,
    reads,
    recovery,
    replication,
)
from headwater.hub.raft.log import RaftLog
from headwater.hub.raft.model.config import Config
from headwater.hub.raft.model.message import Kind, Message
from headwater.hub.raft.model.snapshot import Snapshot
from headwater.hub.raft.raft import Raft
from headwater.hub.stored import arrival, state_end
from headwater.hub.stored.arrival import Arrival
from headwater.hub.stored.group_store import GroupStore
from headwater.hub.stored.sending import Sending
from tests.sim.planted.bug import bug

# -- promises before the disk -------------------------------------------------


def _without(kind: Kind):
    return lambda kinds: kinds - {kind}


def _forget_vote(original):
    return lambda self: replace(original(self), vote=0)


def _forget_term(original):
    return lambda self: replace(original(self), term=0, vote=0)


def _handed_is_durable(original):
    def synced_to(self, index, term):
        self.durable = self.last

    return synced_to


def _own_log_counts_at_once(original):
    return lambda r, node: r.log.last if node == r.node else original(r, node)


bug(
    "ack-before-sync",
    "an append is acknowledged before it is on disk",
    (core, "AFTER_SYNC", _without(Kind.APPEND_REPLY)),
)
bug(
    "vote-before-sync",
    "a vote is sent before it is on disk",
    (core, "AFTER_SYNC", _without(Kind.VOTE_REPLY)),
    (
        Raft,
        "hard_changed",
        lambda original: (
            lambda self: (
                setattr(self, "_hard_version", self._hard_version + 1)
                or setattr(self, "_hard_synced", self._hard_version)
            )
        ),
    ),
)
bug(
    "vote-not-kept",
    "the vote is not part of the hard state",
    (Raft, "hard_state", _forget_vote),
)
bug("term-not-kept", "the term is not part of the hard state", (Raft, "hard_state", _forget_term))
bug(
    "any-sync-covers-all",
    "a sync is taken to cover what was written after it",
    (RaftLog, "synced_to", _handed_is_durable),
)
bug(
    "leader-counts-unsynced",
    "the leader counts its own log before its own sync",
    (replication, "durable_at", _own_log_counts_at_once),
)

# -- elections -----------------------------------------------------------------


def _vote_twice(original):
    def set_term(self, term, vote=0):
        self.term, self.vote = term, vote
        self.hard_changed()

    return set_term


def _any_candidate(original):
    def may_vote(r, m):
        if m.kind is Kind.VOTE and r.vote not in (0, m.sender) and m.term == r.term:
            return False
        return recovery.may_vote(r, m)

    return may_vote


def _second_vote(original):
    def may_vote(r, m):
        return recovery.may_vote(r, m) and not r.log.newer_than(m.log_term, m.index)

    return may_vote


bug(
    "two-votes",
    "a second vote in the same term",
    (election, "may_vote", _second_vote),
    (Raft, "set_term", _vote_twice),
)
bug(
    "vote-for-short-log",
    "the candidate's log is not compared",
    (election, "may_vote", _any_candidate),
)
bug(
    "length-only",
    "logs are compared by length, not by term first",
    (RaftLog, "newer_than", lambda original: lambda self, term, index: self.last > index),
)
bug(
    "minority-wins",
    "half of the votes are enough",
    (quorum, "quorum_size", lambda original: lambda voters: max(1, voters // 2)),
    (replication, "quorum_size", lambda original: lambda voters: max(1, voters // 2)),
)

# -- replication ---------------------------------------------------------------


def _commit_any_term(original):
    def maybe_commit(r):
        index = replication.quorum_index(r)
        if index <= r.log.committed:
            return False
        r.commit_to(index)
        return True

    return maybe_commit


def _no_check(original):
    def on_append(r, m):
        if m.index > r.log.last or m.index < r.log.base_index:
            return original(r, m)
        return original(r, replace(m, log_term=r.log.term(m.index) or 0))

    return on_append


def _keep_conflicts(original):
    def merge(self, entries):
        if entries and entries[0].index <= self.last:
            entries = [entry for entry in entries if entry.index > self.last]
            if not entries:
                return self.last
        return original(self, entries)

    return merge


def _always_cut(original):
    def merge(self, entries):
        if entries and self.committed < entries[0].index <= self.last:
            self.cut(entries[0].index)
        return original(self, entries)

    return merge


bug(
    "commit-older-term",
    "entries of earlier terms are committed by counting (figure 8)",
    (replication, "maybe_commit", _commit_any_term),
)
bug(
    "no-consistency-check",
    "the entry before is not compared",
    (replication, "on_append", _no_check),
)
bug(
    "conflicts-kept",
    "entries that differ from the leader's stay",
    (RaftLog, "merge", _keep_conflicts),
)
bug(
    "always-cut",
    "an old append cuts off what came after it",
    (RaftLog, "merge", _always_cut),
    seeds=200,
)
bug(
    "commit-beyond-match",
    "a commit is taken from a heartbeat without a check",
    (
        replication,
        "on_heartbeat",
        lambda original: lambda r, m: (r.commit_to(min(m.commit, r.log.last)), original(r, m))[1],
    ),
    (heartbeat, "send", lambda original: lambda r, sleep=False: _loud_heartbeat(r, sleep)),
)
bug(
    "learners-count",
    "learners are counted for commits",
    (
        replication,
        "quorum_index",
        lambda original: (
            lambda r: quorum.majority_value(
                [replication.durable_at(r, n) for n in r.log.config.voters]
                + [r.log.last for n in r.log.config.learners if n != r.node]
            )
        ),
    ),
)
bug(
    "quorum-off-by-one",
    "one node less than a majority commits",
    (replication, "majority_value", lambda original: lambda values: _short_majority(list(values))),
)


def _loud_heartbeat(r, sleep):
    number = heartbeat.begin_round(r)
    for node in r.progress:
        r.send(
            Message(
                Kind.HEARTBEAT, r.node, node, commit=r.log.committed, context=number, force=sleep
            )
        )


def _short_majority(values):
    ranked = sorted(values, reverse=True)
    return ranked[max(0, len(ranked) // 2 - 1)] if ranked else 0


# -- snapshots -----------------------------------------------------------------


def _lost_boundary(original):
    def compact(self, snapshot):
        original(self, snapshot)
        self.base_term = 0

    return compact


def _skip_one(original):
    def bring_to(log, store, end):
        original(log, store, end)
        if store.messages:
            store.delete(store.last_seq)

    return bring_to


def _unordered(original):
    return lambda self, m: original(self, replace(m, offset=self._reached))


def _all_arrived(original):
    def bring_to(log, store, end):
        state_end.keep_runs(store, end.alive)
        store.skip(end.last_seq)
        state_end.keep_states(log, store, end.states)

    return bring_to


def _lose_parts(original):
    def part(self, position, bytes_max):
        made = original(self, position, bytes_max)
        if made is not None and made.data and not made.snapshot and made.next % 3 == 0:
            return replace(made, data=b"", digest=int(checksum(b"")))
        return made

    return part


def _nobody_died(original):
    def bring_to(log, store, end):
        store.skip(end.last_seq)
        state_end.keep_states(log, store, end.states)

    return bring_to


def _old_goes_first(original):
    def install(self, group, snapshot):
        replica = self.replicas[group]
        if group not in self._installed and self._installing is None and replica.store is not None:
            self.node.delete_stream(replica.store)
            self.log.hand_over()
        return original(self, group, snapshot)

    return install


bug(
    "snapshot-boundary",
    "a compacted log forgets the term of its boundary",
    (RaftLog, "compact", _lost_boundary),
)
bug(
    "snapshot-misses-one",
    "a snapshot lacks its newest message",
    (arrival, "bring_to", _skip_one),
)
bug(
    "snapshot-parts-unordered",
    "parts of a snapshot are put together as they come",
    (Arrival, "_keep_rows", _unordered),
    (arrival, "bring_to", _all_arrived),
)
bug(
    "snapshot-part-lost",
    "a part of a snapshot is left out, and nobody counts",
    (Sending, "part", _lose_parts),
    (arrival, "bring_to", _all_arrived),
)
bug(
    "removed-come-back",
    "what was removed while a snapshot was read is in it",
    (arrival, "bring_to", _nobody_died),
)
bug(
    "snapshot-not-atomic",
    "the old state goes before the new one counts",
    (GroupStore, "_install", _old_goes_first),
)
bug(
    "snapshot-over-newer",
    "an old snapshot replaces a log that is further",
    (replication, "on_snapshot", lambda original: lambda r, m: r.parts.append(m)),
    (Raft, "snapshot_arrived", lambda original: _install_any),
    seeds=200,
)
bug(
    "snapshot-config-lost",
    "a snapshot does not bring the members along",
    (
        Raft,
        "snapshot_installed",
        lambda original: lambda self, snapshot: original(self, replace(snapshot, config=Config())),
    ),
)


def _install_any(self, m):
    self.snapshot_installed(Snapshot(m.index, m.log_term, m.config))
    self.reply(m, Kind.APPEND_REPLY, index=m.index)
    return True


# -- the disk ------------------------------------------------------------------


bug(
    "unclean-is-clean",
    "an unclean start is taken for a clean one",
    (
        recovery,
        "start",
        lambda original: (
            lambda r, restored: original(
                r,
                replace(
                    restored,
                    clean=restored.hard_state is not None
                    and r.log.config.incarnation(r.node) is not None,
                ),
            )
        ),
    ),
)

# -- recovery and membership ---------------------------------------------------


def _trust(original):
    def start(r, restored):
        original(r, restored)
        former = r.log.config.voters.get(r.node)
        if r.recovering and former is not None:
            r.incarnation = former
            recovery.finish(r)

    return start


def _no_floor(original):
    def prove(r):
        original(r)
        if not r.recovering:
            r.vote_floor, r.barrier = 0, (0, 0)

    return prove


bug(
    "recovered-at-once",
    "an unclean start votes without proof",
    (recovery, "start", _trust),
)
bug(
    "no-barrier",
    "what may have been forgotten is not fenced",
    (recovery, "prove", _no_floor),
)
bug(
    "two-changes-at-once",
    "a change is made while another is under way",
    (membership, "ready_for_change", lambda original: lambda r: True),
)
bug(
    "change-two-voters",
    "a voter is replaced in one step",
    (
        membership,
        "add_voter",
        lambda original: (
            lambda r, node, incarnation: membership.change(
                r,
                replace(
                    r.log.config,
                    voters={**dict(list(r.log.config.voters.items())[1:]), node: incarnation},
                ),
            )
        ),
    ),
)
bug(
    "removed-campaigns",
    "removed members are not fenced and take part in elections",
    (Config, "fenced", lambda original: lambda self, node, incarnation: False),
    (election, "leader_is_alive", lambda original: lambda r: False),
    (election, "eligible", lambda original: lambda r: not r.removed),
    (membership, "on_gone", lambda original: lambda r, m: None),
)
bug(
    "learner-votes-count",
    "a learner is promoted without being caught up, and counted for all",
    (membership, "caught_up", lambda original: lambda r, node: True),
    (replication, "durable_at", lambda original: lambda r, node: original(r, node) or r.log.last),
)

# -- reads ---------------------------------------------------------------------

bug(
    "read-without-quorum",
    "the leader answers reads without asking anybody",
    (reads, "lease_holds", lambda original: lambda r, now_ns: True),
)
bug(
    "read-before-own-term",
    "a new leader serves reads before it has committed",
    (
        reads,
        "lead_read",
        lambda original: (
            lambda r, context, request, now_ns: (
                reads.finish(r, context, request, r.log.committed)
                if r.log.term(r.log.committed) != r.term
                else original(r, context, request, now_ns)
            )
        ),
    ),
)
bug(
    "lease-too-long",
    "a lease outlasts the election timeout",
    (
        reads,
        "lease_holds",
        lambda original: (
            lambda r, now_ns: (
                r.reading.confirmed is not None
                and r.ticks - r.reading.confirmed.ticks < 12 * r.options.election_ticks
            )
        ),
    ),
)
bug(
    "old-round-counts",
    "an answer to any round confirms all",
    (reads, "quorum_round", lambda original: lambda r: r.reading.number),
)
bug(
    "read-at-applied",
    "a read does not wait for its index",
    (
        Raft,
        "read_done",
        lambda original: (
            lambda self, context, index: original(self, context, None if index is None else 0)
        ),
    ),
)

# -- liveness ------------------------------------------------------------------

bug(
    "probe-stays-paused",
    "a lost probe is never sent again",
    (
        replication,
        "on_heartbeat_reply",
        lambda original: lambda r, m: _paused_reply(original, r, m),
    ),
)
bug(
    "same-timeout",
    "everybody waits for the same time",
    (
        election,
        "reset_timeout",
        lambda original: lambda r: (setattr(r, "elapsed", 0), setattr(r, "timeout", 10**6)),
    ),
)
bug(
    "returning-stays",
    "a learner that is caught up is never made a voter",
    (membership, "tick", lambda original: lambda r: None),
)


def _paused_reply(original, r, m):
    progress = r.progress.get(m.sender) if r.is_leader else None
    if progress is not None and progress.paused:
        progress.round = max(progress.round, m.context)
        progress.active = True
        reads.round_answered(r)
        return None
    return original(r, m)
