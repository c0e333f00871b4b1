"""What one start of a replica was told, counted from the messages alone: votes, acks, answers to
heartbeats. A majority is a majority of these."""

from collections.abc import Mapping
from typing import NamedTuple

from headwater.hub.raft.model.message import Kind, Message
from headwater.hub.raft.raft import Raft

ROUNDS_KEPT = 256


def incarnations(m: Message) -> set[int]:
    """For which incarnations of its sender an answer counts: one that is taken back under the
    number of its start may not know it yet, and one that is made again in the same start is
    another."""
    return {m.incarnation, max(m.incarnation, m.boot)}


class Sent(NamedTuple):
    """When a round of heartbeats began."""

    ticks: int
    now_ns: int


class Heard:
    """Everything is of the term `term`, the replica's."""

    def __init__(self, raft: Raft) -> None:
        self.raft = raft
        self.begin(0)
        self.hellos: dict[int, Message] = {}
        """What others have told of their logs, in whatever term."""
        self.asked: dict[tuple[int, int, int], int] = {}
        """(node, start, context) of a read -> the first round that may confirm it."""

    def begin(self, term: int) -> None:
        self.term = term
        self.votes: set[tuple[int, int]] = set()
        self.acks: dict[tuple[int, int], int] = {}
        self.answers: dict[tuple[int, int], int] = {}
        self.rounds: dict[int, Sent] = {}
        self.round = 0
        self.held = 0
        """The newest round that a majority of the voters of its time answered. With one change of
        members at a time, who was heard then is in every majority that may elect another."""
        self.lease_lost = False
        """This leader has called for another's campaign."""

    def follow(self) -> None:
        """Be in the term of the replica."""
        if self.raft.term != self.term:
            self.begin(self.raft.term)

    def record(self, m: Message) -> None:
        """Something arrived that is said to this start."""
        self.follow()
        if m.kind is Kind.HELLO_REPLY:
            self.hellos[m.sender] = m
        if m.term != self.term or m.reject:
            return
        for incarnation in incarnations(m):
            key = (m.sender, incarnation)
            if m.kind is Kind.VOTE_REPLY:
                self.votes.add((m.sender, m.incarnation))
            elif m.kind is Kind.APPEND_REPLY:
                self.acks[key] = max(self.acks.get(key, 0), m.index)
            elif m.kind is Kind.HEARTBEAT_REPLY:
                self.answers[key] = max(self.answers.get(key, 0), m.context)
                if self.confirmed(self.raft.log.config.voters, m.context):
                    self.held = max(self.held, m.context)
        if m.kind is Kind.READ:
            self.asked.setdefault((m.sender, m.boot, m.context), self.round + 1)

    def said(self, m: Message) -> None:
        """What this replica says."""
        self.follow()
        if m.kind is Kind.HEARTBEAT and m.context > self.round:
            self.round = m.context
            self.rounds[m.context] = Sent(self.raft.ticks, self.raft.now_ns)
            self.rounds.pop(m.context - ROUNDS_KEPT, None)
        elif m.kind is Kind.TIMEOUT_NOW:
            self.lease_lost = True

    def forget_rounds(self) -> None:
        """The clock went back, or everybody slept: silence is owed to later rounds only."""
        self.rounds.clear()

    def asks(self, context: int) -> None:
        """A read of this node begins."""
        self.asked[self.raft.node, self.raft.boot, context] = self.round + 1

    def elected(self, voters: Mapping[int, int]) -> bool:
        """Whether a majority gave its vote, in the incarnations that count."""
        self.follow()
        return self._most(voters, sum(each in self.votes for each in voters.items()))

    def durable(self, voters: Mapping[int, int], index: int) -> bool:
        """Whether a majority said that it has `index`, the leader's own disk included."""
        mine = self.raft.node in voters and self.raft.log.durable >= index
        have = sum(self.acks.get(each, 0) >= index for each in self._others(voters))
        return self._most(voters, have + mine)

    def proven(self) -> bool:
        """Whether all other voters have answered, of the newest configuration that was told."""
        log = self.raft.log
        answers = [(m.log_term, m.index, m.config) for m in self.hellos.values() if m.config]
        mine = (log.last_term, log.last, log.config)
        best = max([mine, *answers], key=lambda each: each[:2])[2]
        return best.voters.keys() - {self.raft.node} <= self.hellos.keys()

    def confirmed(self, voters: Mapping[int, int], number: int) -> bool:
        """Whether a majority answered the round `number`, or one behind it."""
        told = sum(self.answers.get(each, 0) >= number for each in self._others(voters))
        return self._most(voters, told + (self.raft.node in voters))

    def leased(self, voters: Mapping[int, int], now_ns: int) -> bool:
        """Whether silence of a majority is still owed to this leader (thesis §6.4.1)."""
        options = self.raft.options
        ticks = options.election_ticks * options.lease_share_percent // 100
        if not options.lease_reads or self.lease_lost or self.raft.sleep.asleep:
            return False
        return any(
            self.raft.ticks - sent.ticks < ticks
            and 0 <= now_ns - sent.now_ns < ticks * options.tick_ns
            and (number <= self.held or self.confirmed(voters, number))
            for number, sent in reversed(self.rounds.items())
        )

    def _others(self, voters: Mapping[int, int]) -> list[tuple[int, int]]:
        return [each for each in voters.items() if each[0] != self.raft.node]

    def _most(self, voters: Mapping[int, int], have: int) -> bool:
        return 2 * have > len(voters)
