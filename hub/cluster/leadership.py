"""Whether this node leads a group for sure, so that it may act without the others' consent.

A leader that was stopped, or cut off, may have been replaced long before it hears of it. What needs
a quorum anyway (entries, so acks and removals) does no harm then. What a leader does by itself
does: it hands out messages that another node has handed out since, and answers with what was.

Such work asks `left` first. A leader that a quorum has answered lately is sure for a while: a
lease (`reads`). Otherwise `confirm` asks the quorum (read index), and the work waits for that.
"""

from collections.abc import Callable

from headwater.hub.raft import reads
from headwater.hub.raft.model.errors import ReadsFull
from headwater.hub.raft.model.ready import ReadState
from headwater.hub.raft.raft import Raft

GRACE_NS = 10_000_000
"""In which work that waited for a confirmation is done: without leases there is none to count on.
It is as if the answer had spent that time on the network."""


class Leadership:
    """Of one group on this node. `clock` is that of the driver, in ns. Not thread-safe."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self.clock = clock
        self.waiting: list[Callable[[bool], None]] = []
        """Told whether this node leads, each once."""
        self._late: list[Callable[[bool], None]] = []
        """The same, of those who came when the question was on its way: its answer may be from
        before they came."""
        self._sure_until = 0
        self._context = 0
        self._asked = False
        self._index = -1
        """What has to be applied before the confirmation counts; -1 while there is none."""

    def left(self, raft: Raft) -> int:
        """For how many ns this node leads for sure; 0 when the others have to be asked."""
        now = self.clock()
        return max(reads.lease_left(raft, now), self._sure_until - now, 0)

    def sure(self, raft: Raft | None) -> bool:
        """Whether this node leads, and no other one can. None: the group is not here."""
        return raft is not None and self.left(raft) > 0

    def confirm(
        self, raft: Raft | None, then: Callable[[bool], None], touch: Callable[[Raft], None]
    ) -> None:
        """Ask the others; `told` hears later whether this node leads, and has applied all that was
        committed. `touch` has the driver look at the group. None: the group is not here."""
        if raft is None:
            then(False)
            return
        (self._late if self._asked else self.waiting).append(then)
        self._ask(raft)
        touch(raft)

    def _ask(self, raft: Raft) -> None:
        if self._asked:
            return
        self._context += 1
        try:
            raft.read(self._context, self.clock())
        except ReadsFull:
            # `look_at` asks again.
            return
        self._asked = True
        self._index = -1
        self.waiting += self._late
        self._late = []

    def heard(self, states: list[ReadState]) -> None:
        """The ends of reads, as of `Ready.reads`."""
        for state in states:
            if self._asked and state.context == self._context:
                self._asked = state.index is not None
                self._index = -1 if state.index is None else state.index

    def look_at(self, raft: Raft, applied: int) -> None:
        """Tell who waits, when it is known. `applied` is the index that is applied here."""
        if not raft.is_leader:
            self._answer(False)
        elif self._asked and 0 <= self._index <= applied:
            self._sure_until = self.clock() + GRACE_NS
            self._answer(True)
            if self.waiting:
                self._ask(raft)
        elif self.waiting:
            self._ask(raft)

    def give_up(self) -> None:
        """The group has ended here."""
        self._answer(False)

    def _answer(self, leads: bool) -> None:
        self._asked = False
        self._index = -1
        if not leads:
            self._sure_until = 0
        waiting, self.waiting = self.waiting, self._late
        self._late = []
        if not leads:
            waiting, self.waiting = waiting + self.waiting, []
        for then in waiting:
            then(leads)
