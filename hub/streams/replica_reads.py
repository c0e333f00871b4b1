"""Reads of one replica that show everything committed before they were asked for.

The replica asks who leads up to where the group has committed (read index): first in few words
(`hub.cluster.read_questions`), and when the leader does not know for sure, by Raft. There is one
question for all reads that wait. It answers them when it has applied that. One question is on its
way at a time, and who asks meanwhile waits for the next: an index that was told before is too old.

While nobody can say, reads wait: clients wait some seconds, and elections are faster than that. In
the end they are refused. A replica that is behind, or hears of no leader, leaves the others alone
to be asked, until a question shows that it keeps up.
"""

from collections.abc import Callable

from headwater.edge.jetstream.replication.read_gate import ReadGate
from headwater.hub.raft import reads
from headwater.hub.raft.model.errors import ReadsFull
from headwater.hub.raft.model.ready import ReadState
from headwater.hub.raft.raft import Raft

CONTEXTS = 1 << 63
"""Contexts of questions begin here; those of `Leadership` are below."""
HOLD_NS = 3_000_000_000
"""For which a read waits, before it is refused. Clients wait for two to five seconds."""
BEHIND_NS = 500_000_000
"""A replica that needs longer to apply what was committed is behind."""


LOST_NS = 200_000_000
"""After which a question that has no answer is asked by Raft."""

Question = Callable[[int, int, int], bool]
"""Asks the node that leads a group, with a context: `ReadQuestions.add`."""


class ReplicaReads:
    """Of one replica. `gate` has what waits, `clock` is that of the driver, in ns. Not
    thread-safe."""

    def __init__(
        self,
        gate: ReadGate,
        clock: Callable[[], int],
        touch: Callable[[Raft], None],
        question: Question,
    ) -> None:
        self.gate = gate
        self.clock = clock
        self.touch = touch
        self.question = question
        self.keeps_up = False
        """The last question was answered, and what it told was applied soon."""
        self.patient = False
        """The group is about to be made: what is asked before waits for it."""
        self._context = CONTEXTS
        self._batch: list[object] | None = None
        """What the question on its way is for; None while there is none."""
        self._short = False
        """The question did not go by Raft."""
        self._index = -1
        """What has to be applied; -1 until the leader has said."""
        self._asked_ns = 0
        self._since = 0
        """When the first of the batch came."""

    @property
    def busy(self) -> bool:
        """Whether something waits."""
        return self._batch is not None or bool(self.gate.waiting)

    def ask(self, raft: Raft | None) -> None:
        """Ask for all that waits, when no question is on its way."""
        if raft is None:
            if not self.patient:
                self.gate.refuse_all()
        elif self._batch is None and self.gate.waiting:
            self._ask(raft)

    def probe(self, raft: Raft) -> None:
        """Find out whether this replica keeps up; `keeps_up` says it later."""
        if self._batch is None:
            self._ask(raft, short=False)

    def _ask(self, raft: Raft, short: bool = True) -> None:
        now = self.clock()
        since = self.gate.since if self.gate.waiting else now
        self._context += 1
        self._index = -1
        follows = raft.leader not in (0, raft.node) and not raft.sleep.asleep
        self._short = short and follows and self.question(raft.leader, raft.group, self._context)
        if not self._short and not self._by_raft(raft, now):
            return
        self._since = since
        self._batch = self.gate.drain()
        self._asked_ns = now

    def _by_raft(self, raft: Raft, now: int) -> bool:
        """Ask by Raft; whether it takes the question."""
        self._short = False
        try:
            raft.read(self._context, now)
        except ReadsFull:
            return False
        self.touch(raft)
        return True

    def answered(self, raft: Raft, applied: int, context: int, index: int, term: int) -> None:
        """The answer to a question that did not go by Raft."""
        if self._batch is None or context != self._context or not self._short:
            return
        if not index:
            self._again(raft)
            return
        self._index = index
        reads.hear_commit(raft, term, index)
        if index <= applied:
            self._answer()
        else:
            self.touch(raft)

    def _again(self, raft: Raft) -> None:
        """Ask by Raft what has no short answer."""
        if not self._by_raft(raft, self.clock()):
            self._restore()

    def heard(self, states: list[ReadState]) -> None:
        """The ends of reads, as of `Ready.reads`."""
        for state in states:
            if self._batch is None or state.context != self._context:
                continue
            if state.index is None:
                self._restore()
            else:
                self._index = state.index

    def ask_anew(self) -> None:
        """Another one leads, or nobody: what was asked of the one before has no answer."""
        if self._batch is not None and self._index < 0:
            self._restore()

    def _restore(self) -> None:
        """Nobody could say what is committed: it is asked again."""
        batch, self._batch = self._batch, None
        self.gate.put_back(batch or [], self._since)

    def _answer(self) -> None:
        batch, self._batch = self._batch or [], None
        self.keeps_up = self.clock() - self._asked_ns <= BEHIND_NS
        self.gate.answer(batch)
        if self.gate.waiting:
            self.gate.ask()

    def look_at(self, raft: Raft, applied: int) -> None:
        """Answer what can be answered, refuse what has waited too long, ask again. `applied` is the
        index that is applied here."""
        now = self.clock()
        if self._batch is not None:
            if 0 <= self._index <= applied:
                self._answer()
            elif now - self._since > HOLD_NS:
                self.give_up()
            elif self._index >= 0:
                self.keeps_up = self.keeps_up and now - self._asked_ns <= BEHIND_NS
            elif self._short and now - self._asked_ns > LOST_NS:
                self._again(raft)
        if self._batch is None and self.gate.waiting:
            if now - self.gate.since > HOLD_NS:
                self.give_up()
            elif raft.leader:
                self.gate.ask()

    def give_up(self) -> None:
        """Refuse everything."""
        batch, self._batch = self._batch, None
        self.keeps_up = False
        self.gate.refuse(batch or [])
        self.gate.refuse_all()
