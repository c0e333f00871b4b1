"""Two of three nodes are put back from older copies and lead; the third has what they have lost.

From a seed: what was said before the copies and behind them, what was compacted, which messages are
lost, who leads. Judged: what a leader takes for committed is at a majority, entry by entry; what is
committed on a node is replaced by nothing but a state; a node that has other committed entries than
its leader stops in the end.
"""

from random import Random
from typing import Any

from headwater.hub.raft import replication
from headwater.hub.raft.core import Core
from headwater.hub.raft.model.errors import Contradiction, RaftError
from headwater.hub.raft.model.message import Kind, Message
from headwater.hub.raft.model.ready import Restored
from headwater.hub.raft.replication import advance_match, replying
from tests.hub.raft.stage import Actor, Stage
from tests.sim.planted.bug import Bug

COPIES, THIRD = (1, 2), 3


class HistoryStory:
    """One story; `wrong` raises AssertionError with the seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.chance = Random(seed)
        self.stage = Stage()
        self.stage.do_group("1", "2", "3")
        self.rows: dict[int, dict[int, tuple[int, bytes]]] = {1: {}, 2: {}, 3: {}}
        """By node: each entry that it has or had before it was compacted, as term and data."""
        self.committed: dict[int, int] = {}
        """By node: up to where it was judged."""
        self.stopped: set[int] = set()
        self.away: set[int] = set()
        self.sent = 0

    def run(self) -> None:
        """Tell it, and judge it."""
        self.talk(self.chance.randrange(2, 30))
        self.compact()
        kept = {node: self.copy(node) for node in COPIES}
        self.talk(self.chance.randrange(2, 40))
        self.compact()
        self.away = {THIRD}
        self.put_back(kept)
        self.talk(self.chance.randrange(20, 60))
        self.compact()
        for _ in range(4):
            self.away = {self.chance.choice(COPIES)} - self.stopped
            self.talk(15)
        self.away = set()
        self.end()

    def copy(self, node: int) -> tuple[Restored, dict[int, tuple[int, bytes]]]:
        """What a node's folder has now."""
        actor = self.stage.actors[node]
        restored = Restored(actor.snapshot, list(actor.entries), actor.hard, True)
        return restored, dict(self.rows[node])

    def put_back(self, kept: dict[int, Any]) -> None:
        """Two nodes start on their copies, and lead in a term that is newer than any before."""
        newest = max(actor.raft.term for actor in self.stage.actors.values())
        self.stage.messages.clear()
        for node, (restored, rows) in kept.items():
            self.rows[node] = rows
            self.committed.pop(node, None)
            self.stage._begin(node, restored)
        while min(self.stage.actors[node].raft.term for node in COPIES) <= newest:
            self.campaign(self.chance.choice(COPIES))

    # -- what happens -----------------------------------------------------------

    def talk(self, steps: int) -> None:
        """Leaders change, entries are proposed, and messages arrive or are lost."""
        for _ in range(steps):
            there = [node for node in self.stage.actors if node not in self.away]
            leaders = [node for node in there if self.stage.actors[node].raft.is_leader]
            if not leaders or self.chance.random() < 0.05:
                self.campaign(self.chance.choice(there))
            elif self.chance.random() < 0.7:
                self.propose(self.chance.choice(leaders))
            self.deliver()
            for node in there:
                self.tick(node)
            self.judge()

    def campaign(self, node: int) -> None:
        """A node stands, and what is said of it arrives."""
        if node in self.stage.actors:
            self.stage.do_campaign(str(node))
            self.deliver(loss=0.0)

    def propose(self, node: int) -> None:
        """Some entries more."""
        self.sent += 1
        try:
            self.stage.do_propose(str(node), f"{self.seed}-{self.sent}")
        except RaftError:
            return

    def deliver(self, loss: float = 0.1) -> None:
        """Everything that is said, and what is said of that."""
        for _ in range(6):
            waiting, self.stage.messages = self.stage.messages, []
            for m in waiting:
                gone = {m.to, m.sender} & self.away or m.to not in self.stage.actors
                if not gone and self.chance.random() >= loss:
                    self.step(m)

    def step(self, m: Message) -> None:
        """A message arrives; a member that finds a contradiction is heard no more."""
        try:
            self.stage.actors[m.to].raft.step(m)
            self.stage._work(m.to)
        except Contradiction:
            self.stop(m.to)
        else:
            self.remember()

    def tick(self, node: int) -> None:
        """A tick of one node."""
        if node in self.stage.actors:
            self.stage.do_tick(str(node))
            self.remember()

    def stop(self, node: int) -> None:
        """As the driver does with a group that raises."""
        self.stopped.add(node)
        del self.stage.actors[node]

    def compact(self) -> None:
        """Some nodes let go of what they have applied, or of a part of it."""
        for node, actor in self.stage.actors.items():
            log = actor.raft.log
            if self.chance.random() < 0.6 and log.applied > log.base_index:
                self.stage.do_compact(
                    str(node), str(self.chance.randint(log.base_index + 1, log.applied))
                )

    # -- what must hold -----------------------------------------------------------

    def remember(self) -> None:
        """Note what each node has."""
        for node, actor in self.stage.actors.items():
            rows, log = self.rows[node], actor.raft.log
            if rows and log.base_index > max(rows) or self._is_installed(actor):
                self._install(node, actor)
            for index in [each for each in rows if each > log.last]:
                del rows[index]
            rows.update({each.index: (each.term, each.data) for each in log.entries})

    def _is_installed(self, actor: Actor) -> bool:
        """Whether a leader's state has come in the place of another history."""
        base = actor.raft.log.base_index
        known = self.rows[actor.raft.node].get(base)
        return known is not None and known[0] != actor.raft.log.base_term

    def _install(self, node: int, actor: Actor) -> None:
        base, term = actor.raft.log.base_index, actor.raft.log.base_term
        source = next(rows for rows in self.rows.values() if rows.get(base, (0, b""))[0] == term)
        self.rows[node] = {index: row for index, row in source.items() if index <= base}
        self.committed.pop(node, None)

    def judge(self) -> None:
        """What a leader takes for committed is at a majority, stopped nodes included."""
        for node, actor in self.stage.actors.items():
            if not actor.raft.is_leader:
                continue
            rows, end = self.rows[node], actor.raft.log.committed
            for index in range(self.committed.get(node, 1) + 1, end + 1):
                having = sum(each.get(index) == rows.get(index) for each in self.rows.values())
                assert having >= 2, f"seed {self.seed}: entry {index} is at {having} of three nodes"
            self.committed[node] = max(end, self.committed.get(node, 1))

    def end(self) -> None:
        """All that is said arrives: a node of another history has stopped."""
        for _ in range(40):
            self.deliver(loss=0.0)
            for node in list(self.stage.actors):
                self.tick(node)
            leaders = [n for n, actor in self.stage.actors.items() if actor.raft.is_leader]
            if leaders:
                self.propose(leaders[0])
            else:
                self.campaign(self.chance.choice(list(self.stage.actors)))
            self.judge()
        leader = next(actor for actor in self.stage.actors.values() if actor.raft.is_leader)
        rows = self.rows[leader.raft.node]
        for node, actor in self.stage.actors.items():
            for index in range(2, min(actor.raft.log.committed, leader.raft.log.committed) + 1):
                same = self.rows[node].get(index) == rows.get(index)
                assert same, f"seed {self.seed}: node {node} follows with another entry {index}"


# -- planted bugs ---------------------------------------------------------------


def agrees_with_everything(original: Any) -> Any:
    """A follower answers with its committed index, whatever is there."""

    def on_append(r: Core, m: Message) -> None:
        if m.index <= r.log.committed and not r.log.matches(m.index, m.log_term):
            r.reply(m, Kind.APPEND_REPLY, index=r.log.committed)
            return
        original(r, m)

    return on_append


def says_no_term(original: Any) -> Any:
    """A follower that has let go of an index says how far it is committed, not of which term."""

    def has_committed(r: Core, m: Message) -> None:
        r.reply(m, Kind.APPEND_REPLY, index=r.log.committed)

    return has_committed


def asks_for_no_term(original: Any) -> Any:
    """A leader counts what a member says to have, whatever it is."""

    def on_append_reply(r: Core, m: Message) -> None:
        progress = None if m.reject else replying(r, m)
        if progress is None:
            original(r, m)
        else:
            advance_match(r, m.sender, progress, m.index)

    return on_append_reply


HISTORY_BUGS = [
    Bug(
        "agrees-with-everything",
        "a follower with other committed entries answers as if it had the leader's",
        ((replication, "on_append", agrees_with_everything),),
        5,
    ),
    Bug(
        "says-no-term",
        "a follower says how far it is committed, and not of which term that is",
        ((replication, "has_committed", says_no_term),),
        40,
    ),
    Bug(
        "asks-for-no-term",
        "a leader counts a committed entry of another term as its own",
        ((replication, "on_append_reply", asks_for_no_term),),
        40,
    ),
]
