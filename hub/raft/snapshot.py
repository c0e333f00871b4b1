"""The state machine at one index of the log, and its arrival in pieces."""

from dataclasses import dataclass

from headwater.edge.storage.format.crc import checksum
from headwater.hub.raft.config import Config


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything up to and including `index`. `data` belongs to the state machine."""

    index: int  # of the last entry that it has in it
    term: int  # of that entry
    config: Config  # in force there
    data: bytes = b""  # the state, as the machine wrote it
    made: bool = True
    """False: the driver has the state and has not made `data` of it, see `Raft.snapshot_wanted`."""

    def digest(self) -> int:
        """Checksum over what the parts of a transfer must add up to."""
        return int(checksum(self.config.encode(), int(checksum(self.data))))


class Assembly:
    """A snapshot that arrives in parts. Parts come in order; anything else is asked for again."""

    def __init__(self, index: int, term: int, config: Config, size: int, digest: int) -> None:
        self.index = index  # of the last entry that it has in it
        self.term = term  # of that entry
        self.config = config  # in force there
        self.size = size  # bytes in all
        self.digest = digest  # what all of it must have
        self.data = bytearray()  # the state, as the machine wrote it

    def same(self, index: int, term: int, size: int, digest: int) -> bool:
        """Whether a part belongs to this snapshot."""
        return (self.index, self.term, self.size, self.digest) == (index, term, size, digest)

    def add(self, offset: int, part: bytes) -> int:
        """Take a part; returns the offset that is expected next."""
        if offset == len(self.data) and offset + len(part) <= self.size:
            self.data += part
        return len(self.data)

    def finish(self) -> Snapshot | None:
        """The whole snapshot; None when the parts do not add up (it begins anew then)."""
        whole = Snapshot(self.index, self.term, self.config, bytes(self.data))
        if whole.digest() != self.digest:
            self.data.clear()
            return None
        return whole
