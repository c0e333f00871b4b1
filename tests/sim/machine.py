"""The state machine of the simulation: the real stream store, fed by committed entries."""

from dataclasses import dataclass

from headwater.edge.kernel.kernel import Kernel
from headwater.edge.storage.format.crc import checksum
from headwater.edge.storage.index.memory import MemoryStore

KEEP = 200
"""Messages kept; older ones are purged, by every replica at the same index of the log."""


class QuietLoop:
    """The kernel's loop: nothing is ever run later."""

    def call_soon(self, *args: object) -> None: ...
    def call_later(self, *args: object) -> None: ...
    def call_soon_threadsafe(self, *args: object) -> None: ...
    def time(self) -> float:
        return 0.0


KERNEL = Kernel(QuietLoop())


@dataclass(frozen=True)
class Op:
    """A write: `expected` is the sequence that the key must have (JetStream's
    expected-last-subject-sequence), -1 for any."""

    number: int
    key: str
    expected: int = -1

    def encode(self) -> bytes:
        return f"{self.number}|{self.key}|{self.expected}".encode()


def decode_op(data: bytes) -> Op:
    number, key, expected = data.decode().split("|")
    return Op(int(number), key, int(expected))


class StreamMachine:
    """Assigns sequences when entries are applied, and sums up all it did."""

    def __init__(self) -> None:
        self.store = MemoryStore(KERNEL)
        self.applied = 0
        self.digest = 0

    def apply(self, index: int, data: bytes) -> int:
        """Returns the sequence, or 0 when the expected one was another."""
        self.applied = index
        op = decode_op(data)
        sequence = 0
        if op.expected < 0 or self.last_for(op.key) == op.expected:
            sequence = self.store.add_message(
                op.key.encode(), str(op.number).encode(), b"", 1 + index
            )
            if sequence % KEEP == 0 and sequence > KEEP:
                self.store.purge_head(sequence - KEEP)
        self.digest = int(checksum(data + b"%d|%d" % (sequence, index), self.digest))
        return sequence

    def last_for(self, key: str) -> int:
        found = self.store.last_by_subject(key.encode())
        return found.sequence if found else 0

    def read(self, key: str) -> tuple[int, int]:
        """Sequence and number of the last write of a key; zeros for none."""
        found = self.store.last_by_subject(key.encode())
        return (found.sequence, int(found.payload)) if found else (0, 0)

    def content(self) -> list[tuple[int, str, str, int]]:
        """All messages."""
        rows = []
        for sequence in range(self.store.first_seq, self.store.last_seq + 1):
            m = self.store.get(sequence)
            if m is not None:
                rows.append((sequence, m.subject.decode(), m.payload.decode(), m.timestamp))
        return rows
