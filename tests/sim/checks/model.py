"""What a stream holds at an index of its group's log, made of the entries alone."""

from collections import deque
from collections.abc import Iterable

from headwater.hub.raft.model.entry import EntryKind
from tests.sim.machine import KEEP, decode_op

Row = tuple[int, str, str]
"""Sequence, key and number of a write."""


def rows_of(entries: Iterable[tuple[int, bytes, int]], keep_of_key: int) -> list[Row]:
    """The messages that are left when these entries (term, data, kind), all from the first one
    on, were applied; of each key the last `keep_of_key` stay."""
    keys: dict[str, deque[Row]] = {}
    last = first = 0
    for _, data, kind in entries:
        if kind != EntryKind.NORMAL:
            continue
        op = decode_op(data)
        kept = keys.setdefault(op.key, deque(maxlen=keep_of_key))
        newest = kept[-1][0] if kept else 0
        if op.expected in (-1, newest):
            last += 1
            kept.append((last, op.key, str(op.number)))
            if last % KEEP == 0 and last > KEEP:
                first = last - KEEP
    return sorted(row for kept in keys.values() for row in kept if row[0] > first)
