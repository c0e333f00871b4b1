"""More planted bugs: of members and incarnations, of answers that are late, and of the disk."""

from dataclasses import replace

from headwater.hub.raft import (
    core,
    election,
    hibernation,
    membership,
    quorum,
    reads,
    recovery,
    replication,
    transfer,
)
from headwater.hub.raft.log import RaftLog
from headwater.hub.raft.model.message import FROM_LEADER, REPLIES, Kind, Message
from headwater.hub.raft.model.role import Role
from headwater.hub.raft.raft import Raft
from headwater.hub.stored import hard_state_file
from tests.sim.planted.bug import bug

# -- answers that mean something else -----------------------------------------


def _ack_own_end(original):
    def on_append(r, m):
        send = r.send

        def louder(reply):
            if reply.kind is Kind.APPEND_REPLY and not reply.reject:
                reply.index = r.log.last
            send(reply)

        r.send = louder
        try:
            original(r, m)
        finally:
            r.send = send

    return on_append


def _any_life(original):
    def on_vote_reply(r, m):
        return original(r, replace(m, incarnation=r.log.config.voters.get(m.sender, 0)))

    return on_vote_reply


def _any_boot(original):
    def admit(self, m):
        if m.kind in REPLIES:
            m = replace(m, to_boot=self.boot)
        return original(self, m)

    return admit


def _obey_anybody(original):
    def settle(self, m):
        if m.term < self.term and m.kind in FROM_LEADER:
            return not self.is_leader
        return original(self, m)

    return settle


def _all_replies(original):
    def replying(r, m):
        progress = r.progress.get(m.sender) if r.is_leader else None
        if progress is not None:
            progress.active = True
        return progress

    return replying


bug("ack-own-end", "a follower acknowledges all it has", (replication, "on_append", _ack_own_end))
bug(
    "votes-of-any-incarnation",
    "votes of an incarnation that is over count",
    (election, "on_vote_reply", _any_life),
)
bug("old-boot-heard", "what was said to an earlier start is heard", (Raft, "_admit", _any_boot))
bug(
    "obeys-old-leader",
    "a leader of an older term is obeyed",
    (Raft, "_compare_term", _obey_anybody),
)
bug(
    "acks-of-any-incarnation",
    "acks of an incarnation that is over count",
    (replication, "replying", _all_replies),
)
bug(
    "promise-under-a-leader",
    "a vote is promised although a leader is heard",
    (election, "leader_is_alive", lambda original: lambda r: False),
)

# -- elections -----------------------------------------------------------------


def _keep_votes(original):
    def campaign(r, force=False):
        votes = dict(r.votes)
        original(r, force)
        r.votes.update(votes)

    return campaign


def _no_prevote(original):
    def pre_campaign(r):
        election.campaign(r)

    return pre_campaign


def _learners_vote(original):
    def vote_result(voters, votes):
        return original(
            dict.fromkeys({*voters, *votes}, 0)
            if sum(votes.values()) * 2 > len(voters)
            else voters,
            votes,
        )

    return vote_result


def _grants_count_twice(original):
    return lambda voters, votes: (
        original(voters, votes) or (True if 2 * (1 + sum(votes.values())) > len(voters) else None)
    )


def _vote_stays(original):
    def set_term(self, term, vote=0):
        if term > self.term and not vote:
            self.term = term
            self.hard_changed()
        else:
            original(self, term, vote)

    return set_term


bug("votes-not-reset", "votes of the pre-vote count as votes", (election, "campaign", _keep_votes))
bug("no-prevote", "a campaign without asking before", (election, "pre_campaign", _no_prevote))
bug(
    "own-vote-twice",
    "the own vote is counted twice",
    (election, "vote_result", _grants_count_twice),
)
bug("vote-stays", "the vote is kept when the term changes", (Raft, "set_term", _vote_stays))
bug(
    "no-check-quorum",
    "a leader that hears nobody leads on",
    (replication, "has_quorum", lambda original: lambda r: True),
)

# -- the log -------------------------------------------------------------------


def _commit_all_here(original):
    def on_append(r, m):
        original(r, m)
        if r.role is Role.FOLLOWER and r.leader == m.sender:
            r.commit_to(min(m.commit, r.log.last))

    return on_append


def _skip_apply(original):
    def to_apply(self, bytes_max):
        found = original(self, bytes_max)
        return [found[0], *found[2:]] if len(found) > 2 else found

    return to_apply


def _leader_tidies(original):
    def become_leader(self):
        if self.log.last > self.log.committed:
            self.log.cut(self.log.committed + 1)
        original(self)

    return become_leader


def _one_more(original):
    def quorum_index(r):
        index = original(r)
        return min(index + 1, r.log.last) if index > r.log.committed else index

    return quorum_index


def _settled_members(original):
    def quorum_index(r):
        config = r.log.config_at(r.log.committed)
        return quorum.majority_value(
            r.log.durable if n == r.node else r.progress[n].match if n in r.progress else 0
            for n in config.voters
        )

    return quorum_index


bug(
    "commit-own-end",
    "a commit counts for entries of another leader",
    (replication, "on_append", _commit_all_here),
)
bug("apply-skips", "an entry is not applied", (RaftLog, "to_apply", _skip_apply))
bug(
    "leader-tidies",
    "a new leader drops what is not committed",
    (Raft, "become_leader", _leader_tidies),
)
bug(
    "commit-one-more",
    "the entry after the committed ones is committed too",
    (replication, "quorum_index", _one_more),
)
bug(
    "quorum-of-before",
    "a quorum of the configuration before counts",
    (replication, "quorum_index", _settled_members),
)

# -- members and recovery --------------------------------------------------------


def _one_proof(original):
    def prove(r):
        answers = r.recovery.answers
        if answers and not recovery.voters_to_hear(r) <= answers.keys():
            kept = recovery.voters_to_hear
            recovery.voters_to_hear = lambda r: set()
            try:
                original(r)
            finally:
                recovery.voters_to_hear = kept
        else:
            original(r)

    return prove


def _stale_end(original):
    def on_hello(r, m):
        return None if r.is_leader else original(r, m)

    return on_hello


bug("proof-of-one", "one answer is proof enough", (recovery, "prove", _one_proof))
bug(
    "answers-not-on-disk",
    "the end of a log is told before it is on disk",
    (core, "AFTER_SYNC", lambda kinds: kinds - {Kind.HELLO_REPLY}),
    (recovery, "leaderless", lambda original: lambda r: None),
)
bug(
    "leader-silent-to-hello",
    "a leader does not answer those in doubt",
    (membership, "on_hello", _stale_end),
)

# -- handover and sleep ----------------------------------------------------------


def _at_once(original):
    def caught_up(r, node, progress):
        if node == r.transfer.target and not r.transfer.spent:
            r.transfer.spent = True
            r.send(Message(Kind.TIMEOUT_NOW, r.node, node))

    return caught_up


def _sleep_alone(original):
    def fall_asleep(r):
        if hibernation.is_quiet(r):
            for each in r.progress.values():
                each.asleep = True
        original(r)

    return fall_asleep


bug(
    "handover-for-ever",
    "a handover never gives up",
    (transfer, "expire", lambda original: lambda r: None),
)
bug(
    "handover-to-lagging",
    "the target of a handover lacks entries",
    (transfer, "caught_up", _at_once),
)
bug(
    "leader-sleeps-alone",
    "a leader sleeps without agreement",
    (hibernation, "fall_asleep", _sleep_alone),
)

# -- reads -----------------------------------------------------------------------


def _answer_all(original):
    def abandon(r):
        for pending in r.reading.pending:
            if pending.request is None:
                r.read_done(pending.context, pending.index)
        r.reading.pending.clear()
        original(r)

    return abandon


def _spent_no_matter(original):
    def lease_holds(r, now_ns):
        r.transfer.spent = False
        return original(r, now_ns)

    return lease_holds


bug(
    "reads-end-anyhow",
    "reads that wait are answered when the leader steps down",
    (reads, "abandon", _answer_all),
)
bug(
    "lease-outlives-handover",
    "a lease holds after a handover",
    (reads, "lease_holds", _spent_no_matter),
)

# -- the disk --------------------------------------------------------------------


def _older_copy(original):
    def load(self):
        original(self)
        data = self._content()
        for group, location in self.locations.items():
            at = 2 * location.number * hard_state_file.COPY_BYTES
            pair = [
                data[
                    at + i * hard_state_file.COPY_BYTES : at + (i + 1) * hard_state_file.COPY_BYTES
                ]
                for i in (0, 1)
            ]
            good = [copy for copy in map(hard_state_file.decode_copy, pair) if copy is not None]
            self.found[group] = min(good, key=lambda copy: copy[0])[2]

    return load


def _same_boot(original):
    return lambda self: 0


def _wrong_part(original):
    def send_part(r, wanted, part):
        send = r.send

        def shifted(m):
            if m.offset:
                m.offset -= 1
            send(m)

        r.send = shifted
        try:
            original(r, wanted, part)
        finally:
            r.send = send

    return send_part


bug(
    "older-copy",
    "the older copy of hard state is taken",
    (hard_state_file.HardStateFile, "_load", _older_copy),
)
bug("wrong-part-offset", "parts of a snapshot overlap", (replication, "send_part", _wrong_part))
