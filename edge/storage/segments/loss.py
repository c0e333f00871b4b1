"""What is known of a lost message: why, and how many bytes it counted.

Sizes are kept in a state of the stream in the log, since what names lost messages there and in
segments are their sequences alone.
"""

import logging
import struct
from typing import Any

from headwater.edge.storage.format.errors import StoreError

LOST_KEY = b"stream/lost"
# Sizes that are kept of one stream; of more lost messages they are known until the next start.
KEPT_MAX = 4096
# Lost sequences that are named one by one; more than this are only counted.
LOST_MAX = 100_000
# A record's header, and what a message counts beside its subject, headers and payload.
RECORD_EXTRA = 64
COUNTED_EXTRA = 30
# Why a message is lost that an earlier start found damaged.
LOST_BEFORE = "it was found damaged before the start"
log = logging.getLogger("headwater.storage")
_ROW = struct.Struct("<QI")


class Loss(str):
    """Why a message is lost."""

    bytes: int
    """What it counted in the stream's bytes; 0: nobody knows."""

    def __new__(cls, reason: str, bytes_: int) -> "Loss":
        made = super().__new__(cls, reason)
        made.bytes = bytes_
        return made


def lost_bytes(store: Any) -> int:
    """Bytes that the lost messages of a store counted, as far as is known."""
    return sum(getattr(reason, "bytes", 0) for reason in store.lost.values())


def set_size(store: Any, sequence: int, bytes_: int) -> None:
    """It became known what a lost message counted."""
    if bytes_ > 0 and sequence in store.lost:
        store.lost[sequence] = Loss(store.lost[sequence], bytes_)


def removed_before(store: Any, first: int, last: int) -> None:
    """During a start: a run of sequences was taken out, as the log or a segment says. What this
    start found damaged of them is no loss; what an earlier one found was there until then."""
    lost = store.lost
    if lost:
        run = range(first, last + 1)
        for sequence in run if len(run) < len(lost) else [at for at in lost if at in run]:
            if lost.get(sequence, LOST_BEFORE) != LOST_BEFORE:
                del lost[sequence]


def share_of(damaged: int, count: int) -> int:
    """What each of `count` messages counted whose records are the damaged bytes of a file: at most
    7 too much, for a record's padding, and nothing of headers is known."""
    return max(damaged // count - RECORD_EXTRA, 0) + COUNTED_EXTRA if damaged and count else 0


def keep_sizes(commit_log: Any, store: Any) -> None:
    """Have the log know the sizes."""
    if store.closed:
        return
    rows = [(at, why.bytes) for at, why in sorted(store.lost.items()) if isinstance(why, Loss)]
    if rows:
        value = b"".join([_ROW.pack(*row) for row in rows[:KEPT_MAX]])
        try:
            commit_log.put_state(store.incarnation.encode(), LOST_KEY, value)
        except StoreError as error:
            log.warning(
                "sizes of the lost messages of the stream in %s cannot be written to the log (%s): "
                "after a restart its info counts them as unknown",
                store.directory,
                error,
            )


def restore_sizes(commit_log: Any, store: Any) -> None:
    """After a start: take what the log knows, and have it know what the start found out."""
    if not store.lost:
        return
    value = commit_log.states(store.incarnation.encode()).get(LOST_KEY, (b"", []))[0] or b""
    known = dict(_ROW.iter_unpack(value[: len(value) // _ROW.size * _ROW.size]))
    fresh = any(isinstance(why, Loss) and at not in known for at, why in store.lost.items())
    for sequence, size in known.items():
        set_size(store, sequence, size)
    if fresh:
        keep_sizes(commit_log, store)
