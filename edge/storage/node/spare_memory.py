"""Memory that the log needs while it is busy, and not while it rests."""

from headwater.edge.storage.log.commit_log import CommitLog
from headwater.edge.storage.node.leftovers import give_back

QUIET_S = 5.0
"""Until memory goes back: the log has begun no segment in that time."""


class SpareMemory:
    """Gives back what the next segment would use again, and what was freed meanwhile. A burst would
    else keep its memory for good: what it freed lies between what stays."""

    def __init__(self, log: CommitLog) -> None:
        self._log = log
        self._waits = False
        self._newest = 0
        """Number of the log's newest segment when somebody looked last."""

    def segment_done(self) -> None:
        """A segment was checkpointed."""
        if not self._waits:
            self._waits = True
            self._look_later()

    def _look_later(self) -> None:
        self._newest = self._log.live[-1].number
        self._log.kernel.loop.call_later(QUIET_S, self._look)

    def _look(self) -> None:
        log = self._log
        if log.closed:
            return
        if log.live[-1].number != self._newest:
            self._look_later()
            return
        self._waits = False
        log.let_spare_go()
        give_back()
