"""What a consumer writes down of its progress: positions, and what changed among its pending acks.

A delta is a version byte, the positions (absolute), and operations whose sequences and times are
differences to the ones before, all as variable-length numbers: about five bytes for a delivery and
two for an ack. Applied in order to an empty table, a snapshot (a delta that starts with RESET) and
the deltas after it give the consumer's state exactly.
"""

import cython
from cython.cimports.cpython.bytes import (
    PyBytes_AS_STRING,
    PyBytes_FromStringAndSize,
    PyBytes_GET_SIZE,
)
from cython.cimports.headwater.edge.jetstream.progress.pending import PendingEntry, PendingTable
from cython.cimports.libc.stdlib import free, realloc
from cython.cimports.libc.string import memset

VERSION = cython.declare(cython.int, 1)
# The version byte and eight numbers of at most ten bytes.
HEADER_MAX = cython.declare(cython.Py_ssize_t, 81)
OPERATION_MAX = cython.declare(cython.Py_ssize_t, 41)
CAPACITY_FIRST = cython.declare(cython.Py_ssize_t, 256)

TRACK = cython.declare(cython.uint, 1)
DROP = cython.declare(cython.uint, 2)
EXHAUST = cython.declare(cython.uint, 3)
FORGIVE = cython.declare(cython.uint, 4)
FLOOR = cython.declare(cython.uint, 5)
RESET = cython.declare(cython.uint, 6)


@cython.cclass
class Delta:
    """Operations since the last `drain`."""

    def __dealloc__(self):
        free(self.data)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def room(self, need: cython.Py_ssize_t) -> cython.int:
        """Have room for `need` more bytes."""
        capacity: cython.Py_ssize_t
        grown: cython.p_uchar
        if self.used + need > self.capacity:
            capacity = max(CAPACITY_FIRST, (self.used + need) * 2)
            grown = cython.cast(cython.p_uchar, realloc(self.data, capacity))
            if grown == cython.NULL:
                raise MemoryError
            self.data = grown
            self.capacity = capacity
        return 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def number(self, value: cython.ulonglong) -> cython.int:
        """Append seven bits per byte, lowest first; the room has been made."""
        while value >= 128:
            self.data[self.used] = cython.cast(cython.uchar, (value & 127) | 128)
            self.used += 1
            value >>= 7
        self.data[self.used] = cython.cast(cython.uchar, value)
        self.used += 1
        return 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def signed(self, value: cython.longlong) -> cython.int:
        """Append a number that may be negative, sign in the lowest bit."""
        magnitude: cython.ulonglong = cython.cast(cython.ulonglong, value) << 1
        return self.number(~magnitude if value < 0 else magnitude)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def sequence(self, operation: cython.uint, sequence: cython.ulonglong) -> cython.int:
        self.room(OPERATION_MAX)
        self.number(operation)
        self.signed(cython.cast(cython.longlong, sequence - self.last_seq))
        self.last_seq = sequence
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def track(
        self,
        sequence: cython.ulonglong,
        consumer_seq: cython.ulonglong,
        wall_ns: cython.longlong,
        deliveries: cython.uint,
    ) -> cython.int:
        """A message waits for its ack since `wall_ns`."""
        ns: cython.ulonglong = cython.cast(cython.ulonglong, wall_ns)
        self.sequence(TRACK, sequence)
        self.signed(cython.cast(cython.longlong, consumer_seq - self.last_cseq))
        self.signed(cython.cast(cython.longlong, ns - self.last_ns))
        self.number(deliveries)
        self.last_cseq = consumer_seq
        self.last_ns = ns
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def drop(self, sequence: cython.ulonglong) -> cython.int:
        """A message needs no ack any more."""
        return self.sequence(DROP, sequence)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def exhaust(self, sequence: cython.ulonglong, deliveries: cython.uint) -> cython.int:
        """A message was delivered as often as it may be."""
        self.sequence(EXHAUST, sequence)
        return self.number(deliveries)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def forgive(self, sequence: cython.ulonglong) -> cython.int:
        """An exhausted message was acknowledged after all, or has left the stream."""
        return self.sequence(FORGIVE, sequence)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def floor(self, sequence: cython.ulonglong) -> cython.int:
        """Everything up to `sequence` is acknowledged."""
        return self.sequence(FLOOR, sequence)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def reset(self) -> cython.int:
        """Nothing is pending."""
        return self.sequence(RESET, self.last_seq)

    @cython.cfunc
    def drain(self, position: cython.pointer(Position)) -> bytes:
        """The delta that leads to `position`; starts the next one."""
        header: Delta = Delta()
        header.room(HEADER_MAX)
        header.number(VERSION)
        header.number(position.next_seq)
        header.number(position.next_cseq)
        header.number(position.delivered_seq)
        header.number(position.floor_cseq)
        header.number(position.floor_seq)
        header.number(position.skip_resume)
        header.number(cython.cast(cython.ulonglong, position.delivered_ns))
        header.number(cython.cast(cython.ulonglong, position.acked_ns))
        data: bytes = PyBytes_FromStringAndSize(
            cython.cast(cython.p_char, header.data), header.used
        )
        if self.used:
            data += PyBytes_FromStringAndSize(cython.cast(cython.p_char, self.data), self.used)
        self.used = 0
        self.last_seq = self.last_cseq = self.last_ns = 0
        return data


@cython.cclass
class DeltaReader:
    """Numbers of one delta, in order."""

    at: cython.p_const_uchar
    end: cython.p_const_uchar

    @cython.cfunc
    @cython.exceptval(0, check=True)
    def number(self) -> cython.ulonglong:
        """The next number. Raises ValueError at the end of the data."""
        value: cython.ulonglong = 0
        shift: cython.int = 0
        byte: cython.uchar
        while self.at < self.end and shift < 64:
            byte = self.at[0]
            self.at += 1
            value |= cython.cast(cython.ulonglong, byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
        raise ValueError("consumer state ends early")

    @cython.cfunc
    @cython.exceptval(0, check=True)
    def difference(self) -> cython.ulonglong:
        """The next signed number, as what to add modulo 2**64."""
        value: cython.ulonglong = self.number()
        return ~(value >> 1) if value & 1 else value >> 1


@cython.cfunc
@cython.exceptval(-1, check=False)
def drop_below(table: PendingTable, exhausted: dict, sequence: cython.ulonglong) -> cython.int:
    """Forget everything up to `sequence`."""
    entry: cython.pointer(PendingEntry) = table.first()
    while entry != cython.NULL and entry.sequence <= sequence:
        table.drop(entry)
        entry = table.first()
    for key in [k for k in exhausted if k <= sequence]:
        del exhausted[key]
    return 0


@cython.cfunc
@cython.exceptval(-1, check=False)
def apply_operation(
    reader: DeltaReader,
    last: cython.pointer(Position),
    table: PendingTable,
    exhausted: dict,
    wall_offset: cython.longlong,
) -> cython.int:
    """Apply one operation; `last` carries the values that differences refer to."""
    operation: cython.ulonglong = reader.number()
    sequence: cython.ulonglong = last.next_seq + reader.difference()
    entry: cython.pointer(PendingEntry) = table.find(sequence)
    last.next_seq = sequence
    if operation == TRACK:
        last.next_cseq += reader.difference()
        last.delivered_seq += reader.difference()
        table.add(
            sequence,
            last.next_cseq,
            cython.cast(cython.longlong, last.delivered_seq) - wall_offset,
            cython.cast(cython.uint, reader.number()),
        )
    elif operation == DROP:
        if entry != cython.NULL:
            table.drop(entry)
    elif operation == EXHAUST:
        if entry != cython.NULL:
            table.drop(entry)
        exhausted[sequence] = reader.number()
    elif operation == FORGIVE:
        exhausted.pop(sequence, None)
    elif operation == FLOOR:
        drop_below(table, exhausted, sequence)
    elif operation == RESET:
        table.clear()
        exhausted.clear()
    else:
        raise ValueError(f"unknown operation {operation} in consumer state")
    return 0


@cython.cfunc
@cython.exceptval(-1, check=False)
def apply_delta(
    data: bytes,
    position: cython.pointer(Position),
    table: PendingTable,
    exhausted: dict,
    wall_offset: cython.longlong,
) -> cython.int:
    """Apply a delta or snapshot. `wall_offset` is the clock of saved times less the monotonic
    one, in ns.

    Raises ValueError when the data makes no sense; what was applied before stays.
    """
    last: Position
    reader: DeltaReader = DeltaReader()
    reader.at = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(data))
    reader.end = reader.at + PyBytes_GET_SIZE(data)
    if reader.number() != cython.cast(cython.ulonglong, VERSION):
        raise ValueError("consumer state was written by a newer version")
    position.next_seq = reader.number()
    position.next_cseq = reader.number()
    position.delivered_seq = reader.number()
    position.floor_cseq = reader.number()
    position.floor_seq = reader.number()
    position.skip_resume = reader.number()
    position.delivered_ns = cython.cast(cython.longlong, reader.number())
    position.acked_ns = cython.cast(cython.longlong, reader.number())
    last.next_seq = last.next_cseq = last.delivered_seq = 0
    while reader.at < reader.end:
        apply_operation(reader, cython.address(last), table, exhausted, wall_offset)
    return 0


def replay(parts: list[bytes]) -> tuple[dict[str, int], list[tuple[int, int, int]], dict[int, int]]:
    """Positions, (sequence, consumer sequence, deliveries) and exhausted ones after `parts`.

    For tools and tests; a consumer recovers by `apply_delta` itself.
    """
    position: Position
    table: PendingTable = PendingTable()
    exhausted: dict = {}
    memset(cython.address(position), 0, cython.sizeof(Position))
    for part in parts:
        apply_delta(part, cython.address(position), table, exhausted, 0)
    return dict(position), [entry[:3] for entry in table.entries()], exhausted


def made(operations: list[tuple[str, int]], next_seq: int) -> bytes:
    """A delta of named operations on sequences, for tools and tests."""
    position: Position
    whole: Delta = Delta()
    memset(cython.address(position), 0, cython.sizeof(Position))
    position.next_seq = next_seq
    for name, sequence in operations:
        if name == "track":
            whole.track(sequence, sequence, 1, 1)
        elif name == "drop":
            whole.drop(sequence)
        elif name == "exhaust":
            whole.exhaust(sequence, 1)
        elif name == "forgive":
            whole.forgive(sequence)
        else:
            whole.floor(sequence)
    return whole.drain(cython.address(position))
