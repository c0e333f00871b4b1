"""The streams that a start has found: how far each one is, what it has lost, and where it goes on.

A stream ends where the log and its segments say. What was acknowledged behind that is named as
lost, and no sequence that may have been acknowledged is given out again.
"""

from collections.abc import Callable

from headwater.edge.storage.directory.store_options import StoreOptions
from headwater.edge.storage.format.problem import Problem, ProblemKind
from headwater.edge.storage.log.commit_log import CommitLog
from headwater.edge.storage.recovery.log_recovery import LogRecovery
from headwater.edge.storage.recovery.restore import restore_ends
from headwater.edge.storage.recovery.stream_recovery import RecoveredStream
from headwater.edge.storage.segments.file_store import FileStore
from headwater.edge.storage.segments.loss import (
    LOST_BEFORE,
    LOST_MAX,
    removed_before,
    restore_sizes,
)
from headwater.edge.storage.segments.manifest import runs_text
from headwater.edge.storage.segments.reservations import SequenceReservations


class FoundStreams:
    """What a start makes of its streams once the log was replayed: `advance` with the log as it was
    read, `restore_lost` when it is written again, and `go_on` at last. What is wrong is added to
    `problems`."""

    def __init__(
        self,
        found: list[RecoveredStream],
        log: CommitLog,
        options: StoreOptions,
        problems: list[Problem],
    ) -> None:
        self.found = found
        self._log = log
        self._options = options
        self._problems = problems

    def watch(self, recovery: LogRecovery) -> None:
        """Have the replay list what it meets of streams with gaps."""
        gaps = [item for item in self.found if item.recovery is not None and item.recovery.has_gaps]
        recovery.watched = {item.store.stream_id: [] for item in gaps}

    def advance(self, recovery: LogRecovery, remove: Callable[[FileStore], None]) -> None:
        """Bring every stream up to where the log ends; `remove` those that were deleted in it."""
        for stream in self.found:
            store = stream.store
            number = store.stream_id
            if number in recovery.deleted:
                remove(store)
                continue
            first = recovery.firsts.get(number, 0)
            if stream.recovery is not None:
                first = stream.recovery.finish(first, recovery.watched.get(number, ()))
                stream.recovery = None
            removed_before(store, 1, first - 1)
            restore_ends(store, first, store.last_seq, recovery.last_times.get(number, 0))
            self._name_acknowledged(stream, recovery.exact)
            self._problems += stream.listed_problems()
            told = [at for at, reason in store.lost.items() if reason != LOST_BEFORE]
            if told:
                text = (
                    f"stream '{stream.label}': {len(told)} messages are lost: {runs_text(told)} "
                    f"({store.lost[told[0]]})"
                )
                self._problems.append(Problem(ProblemKind.LOST, text, stream.label))

    def _name_acknowledged(self, stream: RecoveredStream, exact: bool) -> None:
        """Name messages at a stream's end that were acknowledged and are gone."""
        store = stream.store
        last = self._log.progress.watermarks.sure(store.stream_id, exact)
        self._log.progress.watermarks.add(store)
        if last <= store.last_seq or self._options.numbered_elsewhere(stream.meta):
            return
        for sequence in range(store.last_seq + 1, min(last, store.last_seq + LOST_MAX) + 1):
            store.add_lost(sequence, "its part of the log is missing")
        restore_ends(store, 0, last, 0)

    def restore_lost(self) -> None:
        """Write to the log what is lost, and know the sizes of what was lost before."""
        for stream in self.found:
            stream.store.log_lost()
            restore_sizes(self._log, stream.store)

    def go_on(
        self,
        skip: int,
        exact: bool,
        reservations: SequenceReservations | None,
        use: Callable[[FileStore], None],
    ) -> None:
        """Leave out `skip` sequences in every stream that gives them out: they may have been
        acknowledged for messages that are gone, unless it is known `exact`ly what was. After an
        unclean stop `reservations` say what more a power cut may have taken. Then `use` each."""
        for stream in self.found:
            store = stream.store
            if store.closed:
                continue
            if not self._options.numbered_elsewhere(stream.meta):
                known = exact and self._log.progress.watermarks.sure(store.stream_id, True) > 0
                tail = reservations.lost_tail(store) if reservations is not None else 0
                self._leave_out(stream, store.last_seq + (0 if known else skip), tail)
            use(store)

    def _leave_out(self, stream: RecoveredStream, last: int, tail: int) -> None:
        """Have a stream go on above `last`, and above what a power cut may have taken (`tail`)."""
        store = stream.store
        reason = ""
        if tail:
            reason = "the system went down and may have taken acknowledged messages; "
            last = max(last, tail)
        if last > store.last_seq:
            text = (
                f"stream '{stream.label}' was found up to sequence {store.last_seq}; {reason}"
                f"it goes on at {last + 1}, so that none is given out twice"
            )
            self._problems.append(Problem(ProblemKind.LOST, text, stream.label))
            store.skip(last)

    def unwanted(self) -> list[FileStore]:
        """Streams that were never finished, and those that a finished one replaced."""
        left = {stream.incarnation: stream for stream in self.served()}
        gone = set()
        for incarnation, stream in left.items():
            if stream.identity.get("unfinished"):
                gone.add(incarnation)
            elif stream.identity.get("replaces") in left:
                gone.add(str(stream.identity["replaces"]))
        return [left[incarnation].store for incarnation in gone]

    def served(self) -> list[RecoveredStream]:
        """Those that are still open."""
        return [stream for stream in self.found if not stream.store.closed]
