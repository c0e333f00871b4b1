"""A group's state on its way from its leader to one member, in parts read from the store."""

from collections.abc import Callable

from headwater.edge.storage.format.crc import checksum
from headwater.edge.storage.index.message_rows import pack_rows
from headwater.edge.storage.segments.file_store import FileStore
from headwater.hub.raft.model.snapshot import Part, Snapshot
from headwater.hub.stored.replica import Replica
from headwater.hub.stored.state_end import end_of

END = 1 << 63
"""Positions below are sequences: every message up to there has arrived. From here on they count
bytes of the end."""


class Sending:
    """Holds nothing of the messages; `end` is there from the moment at which all were read."""

    def __init__(
        self,
        session: tuple[int, int],
        replica: Replica,
        now: float,
        meta_of: Callable[[FileStore], bytes],
    ) -> None:
        """`now`: the loop's time. `meta_of`: a stream's description."""
        self.session = session  # the leader's term, and its number in it
        self.replica = replica
        self.begun = now
        self.meta_of = meta_of
        self.first = -1
        """The position that it began with."""
        self.snapshot: Snapshot | None = None
        """Of which index the state is; None while messages are read."""
        self.end = b""
        self._digest = 0

    def part(self, position: int, bytes_max: int) -> Part | None:
        """What follows a position; None when that is not here yet. Raises StoreError when
        something of the state cannot be read."""
        if self.first < 0:
            self.first = position
        if position >= END:
            return self._end_part(position, position - END, bytes_max)
        self.snapshot = None
        store = self.replica.store
        if store is None or position > store.last_seq:
            return None
        if position < store.last_seq:
            rows, reached = pack_rows(store, position, store.last_seq, bytes_max)
            if rows or reached < store.last_seq:
                digest = int(checksum(rows))
                return Part(position, reached, rows, digest=digest, whole=store.last_seq)
        self._make_end()
        return self._end_part(position, 0, bytes_max)

    def _make_end(self) -> None:
        replica = self.replica
        assert replica.store is not None
        mark = replica.mark
        self.snapshot = Snapshot(mark.index, mark.term, mark.config)
        store = replica.store
        meta = self.meta_of(store)
        self.end = end_of(replica.log, store, replica.machine.carried(), meta).encode()
        self._digest = int(checksum(mark.config.encode(), int(checksum(self.end))))

    def _end_part(self, position: int, offset: int, bytes_max: int) -> Part | None:
        if self.snapshot is None or offset > len(self.end):
            return None
        data = self.end[offset : offset + bytes_max]
        behind = END + offset + len(data)
        whole = self.replica.store.last_seq if self.replica.store is not None else 0
        size = len(self.end)
        return Part(position, behind, data, self.snapshot, size, self._digest, whole)
