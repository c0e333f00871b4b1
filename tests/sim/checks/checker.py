"""Invariants of Raft, checked with every batch, message and applied entry."""

from collections.abc import Mapping
from typing import Any

from headwater.hub.raft.model.config import Config, decode_config
from headwater.hub.raft.model.entry import Entry, EntryKind
from headwater.hub.raft.model.message import OUT_OF_TERM, Kind, Message
from headwater.hub.raft.model.ready import Ready, Restored
from headwater.hub.raft.raft import Raft
from tests.sim.checks.heard import incarnations
from tests.sim.checks.members import Members
from tests.sim.disks import Durable


class Violation(AssertionError):
    """The simulation found a bug."""


class Checker:
    """What was ever seen, over all nodes and their incarnations. Keys begin with the group."""

    def __init__(self, first: Mapping[int, Config]) -> None:
        self.members = Members(first, self.require)
        self.leaders: dict[tuple[int, int], int] = {}
        self.votes: dict[tuple[int, int, int, int], int] = {}
        self.entries: dict[tuple[int, int, int], tuple[int, bytes]] = {}
        self.committed: dict[int, dict[int, tuple[int, bytes, int]]] = {}
        self.top: dict[int, int] = {}
        self.digests: dict[tuple[int, int], int] = {}
        self.results: dict[tuple[int, int], int] = {}
        self.terms: dict[tuple[int, int], int] = {}
        self.durable: dict[tuple[int, int], set[tuple[int, int]]] = {}
        """Term and index of every entry that a node ever had on its disk."""
        self.covered: dict[tuple[int, int], int] = {}
        """The greatest snapshot that it ever had there."""
        self.cast: dict[tuple[int, int], tuple[int, int, int]] = {}
        self.acked: dict[tuple[int, int, int], tuple[int, int]] = {}
        self.acked_ever: dict[tuple[int, int], int] = {}
        self.told: dict[tuple[int, int, int], int] = {}
        """The greatest term in which a leader called for a campaign of this incarnation."""
        self.commits_seen: dict[tuple[int, int], int] = {}
        self.asked: dict[int, int] = {}
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
            self.require(not raft.recovering, f"node {raft.node} leads in doubt")
            key = (raft.group, raft.term)
            if key not in self.leaders:
                self.elected(raft)
            known = self.leaders.setdefault(key, raft.node)
            self.require(known == raft.node, f"election safety: {known}, {raft.node} lead {key}")
            if self.terms.get((raft.group, raft.node)) != raft.term:
                self.terms[raft.group, raft.node] = raft.term
                self.complete(raft)
            self.led(raft)
        if log.committed > self.commits_seen.get((raft.group, raft.node), 0):
            self.knows(raft)

    def knows(self, raft: Raft) -> None:
        """Only what a leader has committed is committed, and it is the same entry."""
        log = raft.log
        self.commits_seen[raft.group, raft.node] = log.committed
        self.require(
            log.committed <= max(1, self.top.get(raft.group, 0)),
            f"node {raft.node} takes {log.committed} for committed; no leader does",
        )
        fact = self.committed.get(raft.group, {}).get(log.committed)
        self.require(
            fact is None or log.term(log.committed) == fact[0],
            f"node {raft.node} takes another {log.committed} for committed",
        )

    def record_acked(self, m: Message, term: int | None, durable: Durable) -> None:
        """The greatest index that an incarnation, or a start, has acknowledged, and the term
        there."""
        self.require(
            durable.holds(m.group, m.index, term),
            f"node {m.sender} acked {m.index} before it was on disk",
        )
        for incarnation in incarnations(m):
            key = (m.group, m.sender, incarnation)
            self.acked[key] = max(self.acked.get(key, (0, 0)), (m.index, term or 0))
        ever = (m.group, m.sender)
        self.acked_ever[ever] = max(self.acked_ever.get(ever, 0), m.index)

    def term_before(self, m: Message) -> int:
        """The last term before that of a candidacy in which there was a leader."""
        return max((t for g, t in self.leaders if g == m.group and t < m.term), default=0)

    def asks(self, call: int, group: int) -> None:
        """A read begins: it must see what is committed now."""
        self.asked[call] = self.top.get(group, 0)

    def may_read(self, call: int, index: int) -> None:
        top = self.asked.get(call, 0)
        self.require(index >= top, f"a read at {index}, and {top} was committed before it began")

    def remembers(self, raft: Raft) -> None:
        """A voter cannot vote again in a term, and cannot help a log that lacks what it acked."""
        term, to, incarnation = self.cast.get((raft.group, raft.node), (0, 0, 0))
        if incarnation == raft.incarnation:
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
        """A majority of the voters, in their present incarnations, voted for a new leader."""
        voters = raft.log.config.voters
        key = (raft.group, raft.term)
        votes = sum(
            node == raft.node or self.votes.get((*key, node, incarnation)) == raft.node
            for node, incarnation in voters.items()
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
        """A leader is a voter that sleeps only with all others; one change of members at a time."""
        log = raft.log
        if raft.sleep.asleep:
            self.sleeps(raft)
        top = max(self.top.get(raft.group, 0), log.committed)
        self.top[raft.group] = top
        final = log.config_index <= log.committed
        self.require(
            not final or raft.node in log.config.voters, f"node {raft.node} leads and is removed"
        )
        own = log.term(log.config_index) == raft.term
        self.require(
            final or not own or log.term(log.committed) == raft.term,
            "a change of members before the first commit of the term",
        )
        open_changes = [pair for pair in log.configs if pair[0] > top]
        self.require(len(open_changes) <= 1, "two changes of members at once")
        if open_changes and len(log.configs) > 1:
            before, now = log.configs[-2][1].voters.items(), log.configs[-1][1].voters.items()
            self.require(len(before ^ now) <= 1, "two voters change in one step")

    def commits(self, raft: Raft, index: int) -> None:
        """What a leader commits is of its term (§5.4.2) and durable at a majority."""
        log, group = raft.log, raft.group
        self.require(log.term(index) == raft.term, f"node {raft.node} commits an older term")
        self.counted(raft, index)
        self.top[group] = max(self.top.get(group, 0), index)
        known = self.committed.setdefault(group, {})
        for entry in log.entries[log.committed - log.base_index : index - log.base_index]:
            fact = (entry.term, entry.data, entry.kind)
            if entry.index not in known and entry.kind == EntryKind.CONFIG:
                self.members.commit(group, entry.index, decode_config(entry.data))
            same = known.setdefault(entry.index, fact) == fact
            self.require(same, f"state machine safety: another {entry[:2]} is committed")

    def had(self, group: int, node: int, term: int, index: int) -> bool:
        """Whether an entry was ever on the disk of a node."""
        key = (group, node)
        return (term, index) in self.durable.get(key, ()) or index <= self.covered.get(key, 0)

    def found(self, group: int, node: int, restored: Restored) -> None:
        """A start found entries that nobody saw being synced: a sync may end with the power."""
        known = self.durable.setdefault((group, node), set())
        known.update(entry[:2] for entry in restored.entries)

    def record_durable(self, group: int, node: int, ready: Ready) -> None:
        """A batch was synced."""
        known = self.durable.setdefault((group, node), set())
        known.update(entry[:2] for entry in ready.entries)
        if ready.snapshot is not None:
            top = max(self.covered.get((group, node), 0), ready.snapshot.index)
            self.covered[group, node] = top

    def counted(self, raft: Raft, index: int) -> None:
        """A majority of voters, in their present incarnations, has it on disk and said so."""
        log, group = raft.log, raft.group
        have = sum(
            log.durable >= index
            if n == raft.node
            else self.acked.get((group, n, incarnation), (0, 0))[0] >= index
            and self.had(group, n, log.term(index) or 0, index)
            for n, incarnation in log.config.voters.items()
        )
        self.require(
            2 * have > len(log.config.voters),
            f"{index} is committed, but durable on {have}",
        )

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

    def restored_to(self, group: int, node: int, index: int, digest: int) -> None:
        """A snapshot holds the state that everybody has at its index."""
        same = self.digests.setdefault((group, index), digest)
        self.require(same == digest, f"node {node} restores another state at {index}")

    def sent(self, m: Message, durable: Durable) -> None:
        """Promises are durable before they are made; `durable` is what the disk really has."""
        self.require(
            m.kind in OUT_OF_TERM
            or m.kind in (Kind.PRE_VOTE, Kind.PRE_VOTE_REPLY)
            or durable.term.get(m.group, 0) >= m.term,
            f"node {m.sender} says {m.kind.name} in term {m.term}, which is not on disk",
        )
        if m.kind is Kind.VOTE_REPLY and not m.reject:
            key = (m.group, m.term, m.sender, m.incarnation)
            known = self.votes.setdefault(key, m.to)
            self.require(known == m.to, f"node {m.sender} voted twice in {m.term}")
            self.cast[m.group, m.sender] = (m.term, m.to, m.incarnation)
            self.require(
                durable.term.get(m.group, 0) > m.term
                or (durable.term.get(m.group, 0), durable.vote.get(m.group, 0)) == (m.term, m.to),
                f"vote of {m.sender} is not on disk",
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
        elif m.kind is Kind.HELLO_REPLY:
            self.require(
                durable.end.get(m.group, (0, 0)) >= (m.log_term, m.index)
                and durable.term.get(m.group, 0) >= m.context,
                f"node {m.sender} tells of a log or term that is not on disk",
            )
        elif m.kind is Kind.APPEND_REPLY and not m.reject:
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

    def kept(self, group: int, index: int, term: int, data: bytes) -> None:
        """What a client was told is what is committed."""
        fact = self.committed[group].get(index)
        self.require(
            fact is not None and fact[:2] == (term, data), f"acked entry {index} is not committed"
        )
