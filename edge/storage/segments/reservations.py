"""Sequence reservations: what keeps a stream with `interval` durability from giving a sequence
twice.

Such a stream acknowledges before it syncs, so a power cut may take a tail of it, although clients,
consumers and mirrors know the sequences. A state of the stream in the log, synced before any
sequence beyond the last one is acknowledged, says up to where sequences may have been given out.
When the system went down without a clean stop, the stream goes on above that. The end of the
process alone takes nothing, and then the stream goes on where it was.
"""

import logging
import struct

from headwater.edge.ports.files import boot_id
from headwater.edge.storage.format.errors import StoreError, invariant
from headwater.edge.storage.log.commit_log import CommitLog
from headwater.edge.storage.segments.file_store import FileStore

RESERVATION_KEY = b"stream/ceiling"
NO_RESERVATION = (1 << 64) - 1
# Sequences reserved at once; more when they last for less than QUICK_NS, so that reserving them
# costs a sync every few seconds at most.
STEP_MIN = 1024
STEP_MAX = 1 << 24
QUICK_NS = 10_000_000_000
_RESERVED = struct.Struct("<Q")

log = logging.getLogger("headwater.storage")


class SequenceReservations:
    """Reserves sequences for the interval streams of one log."""

    def __init__(self, commit_log: CommitLog) -> None:
        self.log = commit_log
        self.boot = boot_id(commit_log.directory)
        self._steps: dict[int, tuple[int, int]] = {}
        commit_log.on_low = self.reserve

    def lost_tail(self, store: FileStore) -> int:
        """After a start without a clean-stop record: the sequence above which the stream must go on
        since the system, not only the process, had ended; 0 when nothing can be missing."""
        reserved_to, boot = self._found(store)
        if reserved_to <= store.last_seq or (boot and boot == self.boot):
            return 0
        return reserved_to

    def need(self, store: FileStore, wanted: bool) -> None:
        """Whether `store` gives out sequences from now on that it acknowledges before the sync."""
        has = store.reserved_to != NO_RESERVATION
        if wanted and not has:
            store.reserved_to = store.last_seq
            self.reserve(store)
        elif has and not wanted:
            store.reserved_to = store.reserve_at = NO_RESERVATION
            self._steps.pop(store.stream_id, None)
            self.log.delete_state(store.incarnation.encode(), RESERVATION_KEY)

    def reserve(self, store: FileStore) -> None:
        """Have more sequences to give out; they count when that is durable."""
        now = self.log.kernel.now_ns
        step, before = self._steps.get(store.stream_id, (STEP_MIN, 0))
        if before and now - before < QUICK_NS:
            step = min(step * 2, STEP_MAX)
        else:
            step = max(step // 2, STEP_MIN)
        reserved_to = store.last_seq + step
        value = _RESERVED.pack(reserved_to) + self.boot
        store.reserve_at = 0
        try:
            invariant(
                reserved_to >= store.reserved_to or store.reserved_to == NO_RESERVATION,
                f"sequences up to {store.reserved_to} are reserved, {reserved_to} is less",
            )
            lsn = self.log.put_state(store.incarnation.encode(), RESERVATION_KEY, value)
        except StoreError as error:
            log.warning(
                "sequences of the stream in %s cannot be reserved (%s): its acks wait for their "
                "sync",
                store.directory,
                error,
            )
            return
        self._steps[store.stream_id] = (step, now)
        store.reserve_at = reserved_to - step // 2
        self.log.when_durable(lsn, lambda: store.lift(reserved_to))

    def forget(self, store: FileStore) -> None:
        """The stream is gone."""
        self._steps.pop(store.stream_id, None)

    def _found(self, store: FileStore) -> tuple[int, bytes]:
        """The reservation (0: none) in the log, and the boot in which it was written."""
        states = self.log.states(store.incarnation.encode())
        value = states.get(RESERVATION_KEY, (None, []))[0]
        if value is None or len(value) < _RESERVED.size:
            return 0, b""
        return _RESERVED.unpack_from(value)[0], value[_RESERVED.size :]
