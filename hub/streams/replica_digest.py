"""Digests of a replica's messages, and what follows when those of several replicas differ.

All replicas apply the same entries. A message that one of them has and another has not may still be
a matter of time; `differing` tells that apart, since a message that was removed never comes back.
"""

import struct
from typing import Any

from headwater.edge.storage.format.crc import checksum
from headwater.edge.storage.format.errors import Damaged

ROW = struct.Struct("<QI")
"""Sequence and checksum of a message."""
HEAD = struct.Struct("<QQ")

Rows = dict[int, int]
"""Checksums of messages by sequence."""


def rows_of(store: Any, first: int, end: int, count: int) -> tuple[Rows, int]:
    """Digests of up to `count` messages from `first` on and before `end`, and where the next slice
    begins. A message that turns out to be damaged is in `store.lost` afterwards."""
    everything = store.filter(())
    found: Rows = {}
    at = store.next_matching(everything, first)
    while at and at < end and len(found) < count:
        try:
            message = store.get(at)
        except Damaged:
            message = None
        if message is not None:
            head = HEAD.pack(message.timestamp, len(message.headers))
            parts = (head, message.subject, b"\0", message.headers, message.payload)
            found[at] = int(checksum(b"".join(parts)))
        at = store.next_matching(everything, at + 1)
    return found, min(at or end, end)


def pack(rows: Rows) -> bytes:
    """Rows as bytes."""
    return b"".join(ROW.pack(*row) for row in rows.items())


def unpack(data: bytes) -> Rows:
    """What `pack` made. Raises struct.error."""
    return dict(ROW.iter_unpack(data))


def differing(before: Rows, now: Rows, others: dict[int, Rows]) -> dict[int, set[int]]:
    """By node: the sequences at which it has something else than the leader.

    The leader had `before`, then the others were asked, who had applied as much by then, and now it
    has `now`. What it removed meanwhile says nothing.
    """
    found = {}
    for node, rows in others.items():
        odd = {at for at, digest in now.items() if rows.get(at) != digest}
        odd |= {at for at in rows if at not in before}
        if odd:
            found[node] = odd
    return found


def odd_ones(leader: int, now: Rows, others: dict[int, Rows], odd: dict[int, set[int]]) -> set[int]:
    """Which nodes to make again: those that differ from a majority of all that were looked at, the
    leader among them. Empty when there is no majority."""
    rows = {**others, leader: now}
    found = set()
    for at in set().union(*odd.values()):
        votes: dict[int | None, set[int]] = {}
        for node, each in rows.items():
            votes.setdefault(each.get(at), set()).add(node)
        most = max(votes.values(), key=len)
        if len(most) * 2 > len(rows):
            found |= rows.keys() - most
    return found
