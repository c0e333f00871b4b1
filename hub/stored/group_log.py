"""Entries of a group in the commit log: a state of the log, that is a value and what was added.

Owner `\\0raft`, key the group's number. The value is what the log begins behind, and entries; an
addition ("run") takes the place of all entries from its first one on:

    u64 index before   u64 term there   u64 a commit known when it was written
    entries as in `hub.raft.codec`

A run says what is before it, so runs that a damaged record tears apart do not look like a log: what
does not fit is left out, and the rest is the log as it was at an earlier moment.
"""

import struct
from collections.abc import Sequence

from headwater.edge.storage.directory.entry_keys import ENTRIES_OWNER as OWNER
from headwater.hub.raft.codec import decode_entries, encode_datas, encode_heads
from headwater.hub.raft.model.entry import Entry

__all__ = ["OWNER", "GroupLog", "encode_run", "read_group_log", "run_pieces"]
HEAD = struct.Struct("<QQQ")


def encode_run(index: int, term: int, commit: int, entries: Sequence[Entry]) -> bytes:
    """A value, or an addition: entries behind `index`, whose term is `term`."""
    return b"".join(run_pieces(index, term, commit, entries))


def run_pieces(
    index: int, term: int, commit: int, entries: Sequence[Entry]
) -> tuple[bytes, bytes]:
    """The same in two pieces, the second one the data of the entries."""
    return HEAD.pack(index, term, commit) + encode_heads(entries), encode_datas(entries)


class GroupLog:
    """A group's log, read from what the commit log has of it. `torn`: something did not fit."""

    def __init__(self) -> None:
        self.base = 0
        self.base_term = 0
        self.entries: list[Entry] = []
        self.commit = 0
        """The greatest commit that is known; a hint."""
        self.torn = False

    def put(self, value: bytes) -> None:
        """A value: what was there before is forgotten."""
        try:
            index, term, commit = HEAD.unpack_from(value)
            entries = decode_entries(value[HEAD.size :])
        except (struct.error, ValueError):
            self.torn = True
            return
        self.base, self.base_term, self.entries = index, term, entries
        self.commit = max(self.commit, commit)

    def add(self, run: bytes) -> None:
        """An addition."""
        try:
            index, term, commit = HEAD.unpack_from(run)
            entries = decode_entries(run[HEAD.size :])
        except (struct.error, ValueError):
            self.torn = True
            return
        skipped = max(self.base - index, 0)
        if skipped >= len(entries):
            return
        if skipped:
            index, term = self.base, entries[skipped - 1].term
        if self.term(index) != term:
            self.torn = True
            return
        self.entries[index - self.base :] = entries[skipped:]
        self.commit = max(self.commit, commit)

    def term(self, index: int) -> int | None:
        """The term of an index; None when it is not here."""
        if self.base < index <= self.base + len(self.entries):
            return self.entries[index - self.base - 1].term
        return self.base_term if index == self.base else None

    def behind(self, index: int, term: int) -> list[Entry]:
        """Entries that surely follow an index."""
        return self.entries[index - self.base :] if self.term(index) == term else []


def read_group_log(value: bytes | None, additions: Sequence[bytes]) -> GroupLog:
    """What `CommitLog.states` has of a group."""
    group_log = GroupLog()
    if value is not None:
        group_log.put(value)
    for run in additions:
        group_log.add(run)
    return group_log
