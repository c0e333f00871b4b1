"""What is on the disks for certain, counted beside the product's own books."""

from dataclasses import dataclass, field

from headwater.hub.raft.model.hard_state import HardState
from headwater.hub.raft.model.ready import Ready, Restored


@dataclass
class Durable:
    """Of one start of one node; keys are groups."""

    term: dict[int, int] = field(default_factory=dict)
    vote: dict[int, int] = field(default_factory=dict)
    last: dict[int, int] = field(default_factory=dict)
    end: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Term and index of the last entry."""
    base: dict[int, int] = field(default_factory=dict)
    terms: dict[int, dict[int, int]] = field(default_factory=dict)
    """Index -> term of each entry behind the index that the start, or a snapshot, began with."""

    def found(self, group: int, restored: Restored) -> None:
        """A start begins with this."""
        self._hard(group, restored.hard_state or HardState())
        self._begin(group, restored.snapshot.term, restored.snapshot.index)
        for entry in restored.entries:
            self.terms[group][entry.index] = entry.term
            self.last[group], self.end[group] = entry.index, entry[:2]

    def record(self, group: int, ready: Ready) -> None:
        """A batch was synced."""
        if ready.snapshot is not None:
            self._begin(group, ready.snapshot.term, ready.snapshot.index)
        terms = self.terms[group]
        if ready.entries:
            for index in range(ready.entries[0].index, self.last[group] + 1):
                terms.pop(index, None)
            terms.update((entry.index, entry.term) for entry in ready.entries)
            self.last[group], self.end[group] = ready.entries[-1].index, ready.entries[-1][:2]
        if ready.hard_state is not None:
            self._hard(group, ready.hard_state)

    def holds(self, group: int, index: int, term: int | None) -> bool:
        """Whether this entry is there, or a snapshot that covers it. `term` None: any entry."""
        here = self.terms[group].get(index, -1)
        return index <= self.base.get(group, 0) or here == term or (term is None and here >= 0)

    def _hard(self, group: int, hard: HardState) -> None:
        self.term[group], self.vote[group] = hard.term, hard.vote

    def _begin(self, group: int, term: int, index: int) -> None:
        self.base[group] = self.last[group] = index
        self.end[group] = (term, index)
        self.terms[group] = {}
