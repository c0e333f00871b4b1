"""Invariants of Raft, checked with every batch, message and applied entry."""

from typing import Any

from headwater.hub.raft.entry import Entry, EntryKind
from headwater.hub.raft.message import Kind, Message
from headwater.hub.raft.raft import Raft


class Violation(AssertionError):
    """The simulation found a bug."""


class Checker:
    """What was ever seen, over all nodes and their lives. Keys begin with the group."""

    def __init__(self) -> None:
        self.leaders: dict[tuple[int, int], int] = {}
        self.votes: dict[tuple[int, int, int, int], int] = {}
        self.entries: dict[tuple[int, int, int], tuple[int, bytes]] = {}
        self.committed: dict[int, dict[int, tuple[int, bytes, int]]] = {}
        self.top: dict[int, int] = {}
        self.digests: dict[tuple[int, int], int] = {}
        self.results: dict[tuple[int, int], int] = {}
        self.terms: dict[tuple[int, int], int] = {}
        self.commits: dict[tuple[int, int], tuple[int, int]] = {}
        self.durable: dict[tuple[int, int], int] = {}
        self.cast: dict[tuple[int, int], tuple[int, int, int]] = {}
        self.acked: dict[tuple[int, int, int], tuple[int, int]] = {}
        self.promised: dict[tuple[int, int, int], set[int]] = {}
        self.drowsy: dict[tuple[int, int, int, int], set[int]] = {}
        self.checks = 0

    def require(self, good: bool, text: str) -> None:
        self.checks += 1
        if not good:
            raise Violation(text)

    def state(self, raft: Raft) -> None:
        """After every step of a node."""
        log = raft.log
        self.require(
            log.base_index <= log.applied <= min(log.committed, log.durable) <= log.last,
            f"positions out of order at node {raft.node}",
        )
        if raft.is_voter and not raft.recovering:
            self.remembers(raft)
        if raft.is_leader:
            key = (raft.group, raft.term)
            if key not in self.leaders:
                self.elected(raft)
            known = self.leaders.setdefault(key, raft.node)
            self.require(known == raft.node, f"election safety: {known}, {raft.node} lead {key}")
            if self.terms.get((raft.group, raft.node)) != raft.term:
                self.terms[raft.group, raft.node] = raft.term
                self.complete(raft)
                self.commits[raft.group, raft.node] = (raft.term, log.committed)
            self.led(raft)

    def remembers(self, raft: Raft) -> None:
        """A voter cannot vote again in a term, and cannot help a log that lacks what it acked."""
        term, to, life = self.cast.get((raft.group, raft.node), (0, 0, 0))
        if life == raft.incarnation:
            again = raft.term < term or (raft.term == term and raft.vote != to)
            self.require(
                not again or raft.vote_floor > term, f"node {raft.node} may vote again in {term}"
            )
        index, acked = self.acked.get((raft.group, raft.node, raft.incarnation), (0, 0))
        fact = self.committed.get(raft.group, {}).get(index)
        if fact is not None and fact[0] == acked:
            self.require(
                index <= raft.log.last or raft.barrier >= (acked, index),
                f"node {raft.node} forgot that it acked {index}",
            )

    def elected(self, raft: Raft) -> None:
        """A majority of the voters, in their present lives, voted for a new leader."""
        voters = raft.log.config.voters
        key = (raft.group, raft.term)
        votes = sum(
            node == raft.node or self.votes.get((*key, node, life)) == raft.node
            for node, life in voters.items()
        )
        self.require(
            2 * votes > len(voters),
            f"node {raft.node} leads {key} with {votes} votes of {len(voters)}",
        )

    def sleeps(self, raft: Raft) -> None:
        """A leader sleeps when all others agreed."""
        key = (raft.group, raft.node, raft.term, raft.log.last)
        missing = set(raft.progress) - self.drowsy.get(key, set())
        self.require(not missing, f"leader {raft.node} sleeps without {missing}")

    def led(self, raft: Raft) -> None:
        """What a leader commits is of its term and durable at a majority; one change at a time."""
        log = raft.log
        if raft.sleep.asleep:
            self.sleeps(raft)
        key = (raft.group, raft.node)
        if log.committed > self.commits[key][1]:
            self.commits[key] = (raft.term, log.committed)
            self.require(
                log.term(log.committed) == raft.term, f"node {raft.node} commits an older term"
            )
            voters = log.config.voters
            have = sum(self.durable.get((raft.group, n), 0) >= log.committed for n in voters)
            self.require(
                2 * have > len(voters), f"{log.committed} is committed, but durable on {have}"
            )
        top = max(self.top.get(raft.group, 0), log.committed)
        self.top[raft.group] = top
        open_changes = [pair for pair in log.configs if pair[0] > top]
        self.require(len(open_changes) <= 1, "two changes of members at once")
        if open_changes and len(log.configs) > 1:
            before, now = log.configs[-2][1].voters.items(), log.configs[-1][1].voters.items()
            self.require(len(before ^ now) <= 1, "two voters change in one step")

    def restored(self, group: int, node: int, hard: Any) -> None:
        """A node whose disk is honest knows its last vote."""
        term, vote, _ = self.cast.get((group, node), (0, 0, 0))
        now = (hard.term, hard.vote) if hard is not None else (0, 0)
        self.require(
            now[0] > term or now == (term, vote) or not term, f"node {node} forgot a vote in {term}"
        )

    def agreed(self, m: Message, sender: Raft, leader: Raft | None) -> None:
        """An ack speaks of entries that the leader has, too."""
        if leader is not None and leader.is_leader and leader.term == m.term:
            mine, its = sender.log.term(m.index), leader.log.term(m.index)
            self.require(m.index <= leader.log.last, f"node {m.sender} acks what nobody sent")
            self.require(
                None in (mine, its) or mine == its, f"node {m.sender} acks another {m.index}"
            )

    def complete(self, raft: Raft) -> None:
        """Leader completeness, when somebody became leader."""
        for index, (term, _, _) in self.committed.get(raft.group, {}).items():
            if index > raft.log.base_index and term < raft.term:
                self.require(
                    raft.log.term(index) == term,
                    f"leader completeness: {raft.node} leads {raft.term} without {index}",
                )

    def written(self, raft: Raft, entries: list[Entry]) -> None:
        """Log matching: an entry has one predecessor and one content for ever."""
        before = raft.log.term(entries[0].index - 1) if entries else None
        for entry in entries:
            fact = (before if before is not None else -1, entry.data)
            key = (raft.group, entry.index, entry.term)
            known = self.entries.setdefault(key, fact)
            if known[0] == -1 or fact[0] == -1:
                known = (fact[0], known[1])
            self.require(known == fact, f"log matching: node {raft.node} at {key}")
            before = entry.term

    def applied(self, group: int, node: int, entry: Entry, result: int, digest: int) -> None:
        """State machine safety, sequences used once, equal digests."""
        fact = (entry.term, entry.data, entry.kind)
        log = self.committed.setdefault(group, {})
        known = log.setdefault(entry.index, fact)
        self.top[group] = max(self.top.get(group, 0), entry.index)
        self.require(known == fact, f"state machine safety: node {node} applied other {entry[:2]}")
        same = self.digests.setdefault((group, entry.index), digest)
        self.require(same == digest, f"digests differ at {entry.index} of group {group}")
        if result and entry.kind == EntryKind.NORMAL:
            owner = self.results.setdefault((group, result), entry.index)
            self.require(owner == entry.index, f"sequence {result} was used twice")

    def sent(self, m: Message, durable: Any) -> None:
        """Promises are durable before they are made; `durable` is what the disk really has."""
        if m.kind is Kind.VOTE_REPLY and not m.reject:
            key = (m.group, m.term, m.sender, m.incarnation)
            known = self.votes.setdefault(key, m.to)
            self.require(known == m.to, f"node {m.sender} voted twice in {m.term}")
            self.cast[m.group, m.sender] = (m.term, m.to, m.incarnation)
            self.require(
                durable.term.get(m.group, 0) >= m.term, f"vote of {m.sender} is not on disk"
            )
        elif m.kind is Kind.PRE_VOTE_REPLY and not m.reject:
            self.promised.setdefault((m.group, m.to, m.term), set()).add(m.sender)
        elif m.kind is Kind.HEARTBEAT_REPLY and m.force:
            key = (m.group, m.to, m.term, durable.last.get(m.group, 0))
            self.drowsy.setdefault(key, set()).add(m.sender)
        elif m.kind is Kind.VOTE:
            self.require(
                durable.term.get(m.group, 0) >= m.term, f"candidacy of {m.sender} is not on disk"
            )
        elif m.kind is Kind.APPEND_REPLY and not m.reject:
            self.require(
                durable.last.get(m.group, 0) >= m.index,
                f"node {m.sender} acked {m.index} before it was on disk",
            )
            self.require(
                self.leaders.get((m.group, m.term)) == m.to,
                f"node {m.sender} acks to {m.to}, who does not lead {m.term}",
            )

    def stands(self, m: Message, voters: Any) -> None:
        """A campaign that the leader did not ask for was promised a majority."""
        promised = self.promised.get((m.group, m.sender, m.term), set()) & set(voters)
        need = len(voters) // 2 + 1 - (m.sender in voters)
        self.require(
            m.force or len(promised) >= need, f"node {m.sender} campaigns in {m.term} unasked"
        )

    def hands_over(self, m: Message, leader: Raft) -> None:
        """The target of a handover has everything."""
        have = self.durable.get((m.group, m.to), 0)
        self.require(
            leader.term != m.term or have >= leader.log.committed, f"handover to {m.to}, who lags"
        )

    def kept(self, group: int, index: int, term: int, data: bytes) -> None:
        """What a client was told is what is committed."""
        fact = self.committed[group].get(index)
        self.require(
            fact is not None and fact[:2] == (term, data), f"acked entry {index} is not committed"
        )
