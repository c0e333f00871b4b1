"""Messages that end by age (`max_age`) or by their own TTL, and the markers they leave.

TTLs are kept in buckets of a tenth of a second: a message ends by so much later than its second at
the most. The buckets are not stored: after a start they are filled from the stored headers, a slice
at a time. Nothing here runs per message on the publish path except putting a TTL into its bucket.

When the wall clock is set forward, what was stored since the start of the process begins its life
anew at that moment (`clock_set`): how old it really is cannot be known, and nothing may end too
early. This is kept with the stream's states.
"""

import heapq
from array import array

import cython
from cython.cimports.cpython.bytes import PyBytes_FromStringAndSize
from cython.cimports.headwater.edge.jetstream.headers import Slice, find_header
from cython.cimports.headwater.edge.jetstream.stream import Stream
from cython.cimports.headwater.edge.storage.index import Entry
from cython.cimports.headwater.edge.storage.store import Record

from headwater.edge.jetstream import stream_states
from headwater.edge.jetstream.ttl import NEVER, header_ttl, is_marker, marker_headers, parse_ttl

# Messages ended, or headers looked at, in one turn.
SLICE = cython.declare(cython.int, 5000)
SECOND = cython.declare(cython.longlong, 1_000_000_000)
# Width of a bucket of TTLs, in ns.
TICK = cython.declare(cython.longlong, 100_000_000)
# Timers are not set finer than this, so that a busy stream of short age costs few wake-ups.
GRAIN_S = 0.01


@cython.cclass
class Expiry:
    """The clockwork of one stream. `arm` after something was stored or configured."""

    def __init__(self, stream: Stream):
        self.stream = stream
        self.buckets = {}
        self.ticks = []
        self.boot_seq = stream.store.last_seq + 1
        self.floors = stream_states.load_floors(stream)
        if stream.ttl_allowed and stream.store.messages:
            stream.kernel.loop.call_soon(self.scan)
        else:
            self.scanned = stream.store.last_seq

    def add(self, sequence: int, due_ns: int) -> None:
        """End `sequence` at `due_ns`."""
        tick: int = -(-due_ns // TICK)
        bucket = self.buckets.get(tick)
        if bucket is None:
            bucket = self.buckets[tick] = array("Q")
            heapq.heappush(self.ticks, tick)
        bucket.append(sequence)
        if not self.timer_at or tick * TICK < self.timer_at:
            self.arm()

    def note_header(self, sequence: int, block: bytes, timestamp: int) -> None:
        """Take the TTL from the header block of a message stored at `timestamp`."""
        ttl_s = header_ttl(block)
        if ttl_s > 0:
            self.add(sequence, timestamp + ttl_s * SECOND)

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def start_of(self, sequence: cython.ulonglong, timestamp: cython.longlong) -> cython.longlong:
        """When the life of a message began, in ns."""
        for first, last, begin in self.floors:
            if first <= sequence <= last and begin > timestamp:
                return begin
        return timestamp

    def clock_set(self, by_ns: int, now_ns: int) -> None:
        """The wall clock was set forward by `by_ns`; it is `now_ns` now."""
        last: cython.ulonglong = self.stream.store.last_seq
        if last < self.boot_seq:
            return
        floors: list = [floor for floor in self.floors if floor[1] >= self.stream.store.first_seq]
        floors.append((self.boot_seq, last, now_ns))
        self.floors = floors
        self.boot_seq = last + 1
        stream_states.save_floors(self.stream, floors)
        buckets: dict = self.buckets
        self.buckets = {}
        self.ticks = []
        for tick, sequences in buckets.items():
            for sequence in sequences:
                moved: bool = floors[len(floors) - 1][0] <= sequence <= last
                self.add(sequence, tick * TICK + (by_ns if moved else 0))
        self.arm()

    def scan(self) -> None:
        """Take the TTLs of stored messages, a slice per turn."""
        record: Record
        value: Slice
        at: cython.ulonglong = self.scanned
        if self.stopped:
            return
        for _ in range(SLICE):
            at = self.stream.store.next_match(None, at + 1)
            if not at:
                break
            if self.stream.store.load(at, cython.address(record)) and record.header_len:
                value = find_header(record.body, record.header_len, b"Nats-TTL", 8)
                if value.n > 0:
                    text = PyBytes_FromStringAndSize(cython.cast(cython.p_char, value.at), value.n)
                    ttl_s = parse_ttl(text)
                    if ttl_s and ttl_s > 0:
                        self.add(at, self.start_of(at, record.timestamp) + ttl_s * SECOND)
            self.scanned = at
        if at:
            self.stream.kernel.loop.call_soon(self.scan)

    def arm(self) -> None:
        """Set the timer for what ends next."""
        due: cython.longlong
        if self.stopped:
            return
        due = self.next_due()
        self.stream.age_armed = due != 0
        if self.timer is not None:
            if self.timer_at == due:
                return
            self.timer.cancel()
            self.timer = None
        self.timer_at = due
        if due:
            wait = (due - self.stream.kernel.clock()) / 1e9
            self.timer = self.stream.kernel.loop.call_later(max(wait, GRAIN_S), self.on_timer)

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def next_due(self) -> cython.longlong:
        """When the next message ends, in ns; 0 when none does."""
        due: cython.longlong = 0
        end: cython.longlong
        at: cython.ulonglong
        entry: cython.pointer(Entry)
        if self.ticks:
            due = cython.cast(cython.longlong, self.ticks[0]) * TICK
        if self.stream.max_age > 0:
            at = self.stream.store.next_match(None, self.kept + 1)
            entry = self.stream.store.at(at) if at else cython.NULL
            if entry != cython.NULL:
                end = self.start_of(at, entry.timestamp) + self.stream.max_age
                if not due or end < due:
                    due = end
        return due

    def on_timer(self) -> None:
        """End what is due, then set the timer again."""
        now: cython.longlong
        watch: object = self.stream.node.age_watch
        if watch is not None:
            watch.check()
        now = self.stream.kernel.clock()
        self.timer = None
        self.timer_at = 0
        if self.stopped:
            return
        self.expire_due(now, SLICE)
        self.expire_old(now, SLICE)
        self.stream.count_usage()
        self.arm()
        self.stream.kernel.turn()

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def expire_old(self, now: cython.longlong, left: cython.int) -> cython.int:
        """End messages older than `max_age`, but for those that are to stay for ever."""
        at: cython.ulonglong
        entry: cython.pointer(Entry)
        record: Record
        if self.stream.max_age <= 0:
            return 0
        while left > 0:
            at = self.stream.store.next_match(None, self.kept + 1)
            if not at:
                break
            entry = self.stream.store.at(at)
            if entry == cython.NULL:
                break
            if self.start_of(at, entry.timestamp) + self.stream.max_age > now:
                break
            left -= 1
            if (
                self.stream.ttl_allowed
                and entry.header_len
                and self.stream.store.load(at, cython.address(record))
            ):
                block = PyBytes_FromStringAndSize(
                    cython.cast(cython.p_char, record.body), record.header_len
                )
                if header_ttl(block) == NEVER:
                    self.kept = at
                    continue
            self.end(at)
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def expire_due(self, now: cython.longlong, left: cython.int) -> cython.int:
        """End messages whose own time is over."""
        while self.ticks and left > 0:
            if cython.cast(cython.longlong, self.ticks[0]) * TICK > now:
                break
            bucket = self.buckets[self.ticks[0]]
            while bucket and left > 0:
                self.end(bucket.pop())
                left -= 1
            if not bucket:
                del self.buckets[heapq.heappop(self.ticks)]
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def end(self, sequence: cython.ulonglong) -> cython.int:
        """Drop one message, and leave a marker when it was its subject's last."""
        stream: Stream = self.stream
        marks: cython.bint = stream.config.subject_delete_marker_ttl > 0
        block: bytes = b""
        subject: bytes
        if not marks:
            stream.drop(sequence)
            return 0
        found = stream.store.get(sequence)
        if found is None:
            return 0
        subject = found.subject
        block = found.headers
        stream.drop(sequence)
        if stream.store.last_by_subject(subject) is None and not is_marker(block):
            ttl_ns = stream.config.subject_delete_marker_ttl
            stream.import_message(subject, marker_headers(ttl_ns), b"", stream.kernel.clock(), 0)
        return 0

    def stop(self) -> None:
        """No more timers."""
        self.stopped = True
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
