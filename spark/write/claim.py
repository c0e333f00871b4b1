"""The right of a run to write a batch, which it loses when another run begins the same one.

A driver that stood still, or was cut off, goes on with its batch when it comes back, long after
another one has written that batch in its place; what it published then would come twice. So a run
enters in the ledger which batch it has begun, and its tasks look there before they send, each
`LOOK_S` at least. Who takes a batch over waits for `TAKEOVER_S` before it reads what is in the
target: whoever wrote before has looked since then, and stopped.

So it is with a task that Spark begins again in the same run, as the executor is lost or slow, or as
its stage is submitted again: the attempt before may go on, where Spark sees it or not. Each attempt
enters itself in the ledger, as one of a stage that is submitted again counts as a first one.
"""

import time
from dataclasses import dataclass, replace
from typing import Any

from headwater.spark.options import SourceOptions
from headwater.spark.wire.connection import Connection
from headwater.spark.write.ledger import Ledger, LedgerEntry, attempt_fenced
from headwater.spark.write.patience import patiently

#: Longest time for which a run trusts what it has seen in the ledger, in seconds.
LOOK_S = 0.5
#: Seconds that a run waits before it goes on with a batch of another one: a look, and the sending
#: of what is at hand.
TAKEOVER_S = 2.0

_OUSTED = 16
_LOOKS = 2


@dataclass(frozen=True)
class Attempt:
    """One attempt at a `task`: a later one has a higher `number`, in whichever stage."""

    task: int
    number: int


def attempt_of(context: Any) -> Attempt | None:
    """The attempt that Spark's TaskContext says this is; None outside of tasks."""
    if context is None:
        return None
    return Attempt(context.partitionId(), context.taskAttemptId())


class Claim:
    """Asks the ledger whether the entry is still `entry`, which was read at or after `since` by
    this machine's monotonic clock, in seconds; and whether `attempt` is the newest."""

    def __init__(
        self,
        options: SourceOptions,
        query: str,
        entry: LedgerEntry,
        since: float,
        attempt: Attempt | None = None,
    ) -> None:
        self._attempt = attempt
        self._options = options
        self._query = query
        self._entry = entry
        self._since = since

    def check(self) -> None:
        """Return when the run may send. Raises FencedError if it has lost its right, and
        ConnectError when the ledger cannot be asked.

        A look that took long is repeated: whoever stands still may do so within a look. If the
        second one took long as well, then the line is slow, and it counts.
        """
        for _ in range(_LOOKS):
            if time.monotonic() - self._since < LOOK_S:
                return
            patiently(self._options, self._look, known=True)
        self._since = time.monotonic()

    def _look(self, connection: Connection) -> None:
        asked = time.monotonic()
        ledger = Ledger(connection, self._options, self._query)
        found = ledger.read()
        if found is None:
            raise ledger.lost()
        if found.revision != self._entry.revision:
            raise ledger.fenced()
        attempt = self._attempt
        if attempt and attempt.number < ledger.read_attempt(self._entry, attempt.task).number:
            raise attempt_fenced(attempt.task)
        self._since = asked


def claimed(ledger: Ledger, entry: LedgerEntry, run: str) -> LedgerEntry:
    """The entry as `run` may write its next batch: entered as begun by it, by this task or by
    another one. Raises FencedError when another run was faster."""
    if entry.begun and entry.run == run:
        return entry
    other = entry.run != run
    ousted = (*entry.ousted, entry.run)[-_OUSTED:] if other and entry.run else entry.ousted
    wanted = replace(entry, run=run, begun=True, taken=entry.begun and other, ousted=ousted)
    found = ledger.begin(wanted)
    if found.batch == entry.batch and (found.run != run or not found.begun):
        raise ledger.fenced()
    return found
