"""One entry of the replicated log."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from enum import IntEnum
from itertools import accumulate, count, repeat
from operator import itemgetter
from typing import NamedTuple


class EntryKind(IntEnum):
    """What an entry's bytes are."""

    NORMAL = 0
    """An operation of the state machine; the bytes are never looked at here."""
    EMPTY = 1
    """What a new leader writes first, so that it may commit what earlier leaders left."""
    CONFIG = 2
    """An encoded `Config`, in force from the moment it is in a node's log."""


class Entry(NamedTuple):
    """`term` and `index` name it for good; `data` travels untouched from proposal to apply."""

    term: int  # in which a leader made it
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody needs here
    kind: int  # an EntryKind
    data: bytes  # of the machine, or an encoded configuration


kind_of = itemgetter(2)
data_of = itemgetter(3)

# What an entry costs besides its data, when bytes are limited.
ENTRY_OVERHEAD_BYTES = 24


def make_entries(term: int, first: int, datas: Sequence[bytes]) -> list[Entry]:
    """Normal entries from index `first`, made at the speed of C: this is the hot path."""
    fields = zip(repeat(term), count(first), repeat(int(EntryKind.NORMAL)), datas, strict=False)
    return list(map(tuple.__new__, repeat(Entry), fields))


def bytes_of(entries: Iterable[Entry]) -> int:
    """What entries count against a limit of bytes."""
    datas = list(map(data_of, entries))
    return sum(map(len, datas)) + ENTRY_OVERHEAD_BYTES * len(datas)


def fitting(entries: list[Entry], bytes_max: int) -> list[Entry]:
    """The first of them, at least one, and not more than `bytes_max` otherwise."""
    sizes = list(accumulate(len(entry[3]) + ENTRY_OVERHEAD_BYTES for entry in entries))
    if len(sizes) < 2 or sizes[-1] <= bytes_max:
        return entries
    return entries[: max(1, bisect_right(sizes, bytes_max))]
