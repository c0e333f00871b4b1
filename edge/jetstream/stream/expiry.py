"""Messages that end by age (`max_age`) or by their own TTL, and the markers they leave.

TTLs are kept in buckets of a hundredth of a second: a message ends by so much later than its second
at the most. The buckets are not stored: after a start they are filled from the stored headers, a
slice at a time. Nothing here runs per message on the publish path except putting a TTL into its
bucket.

Ages are measured on the node's age clock (age_clock.py), timestamps are those of the wall clock.
How far the two were apart when a message was stored is kept per span of messages, with
the stream's states. When the wall clock was set back, timestamps go on from the last one (`lift`).
"""

import heapq
import logging
from array import array

import cython
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cython.cimports.headwater.edge.jetstream.stream.stream import Stream
from cython.cimports.headwater.edge.storage.index.index import IndexEntry
from cython.cimports.headwater.edge.storage.index.store import Record
from cython.cimports.headwater.edge.wire.header_block import Slice, find_header

from headwater.edge.jetstream.model.ttl import (
    NEVER,
    header_ttl,
    is_marker,
    marker_headers,
    parse_ttl,
)
from headwater.edge.jetstream.stream import stream_states
from headwater.edge.storage.format.errors import Damaged, StoreError

log = logging.getLogger("headwater.jetstream")

# Messages ended, or headers looked at, in one turn.
SLICE = cython.declare(cython.int, 5000)
SECOND = cython.declare(cython.longlong, 1_000_000_000)
# Width of a bucket of TTLs, in ns.
TICK = cython.declare(cython.longlong, 10_000_000)
# A mirror's messages have the time of their origin: further ahead of the age clock than this, the
# wall clock is right and the age clock is not.
AHEAD_MAX = cython.declare(cython.longlong, 24 * 3600 * 1_000_000_000)
# Timers are not set finer than this, so that a busy stream of short age costs few wake-ups.
GRAIN_S = 0.01
# Markers that may wait for room; further ones are not left.
OWED_MAX = cython.declare(cython.Py_ssize_t, 100_000)


@cython.cclass
class Expiry:
    """The clockwork of one stream. `arm` after something was stored or configured."""

    def __init__(self, stream: Stream):
        self.stream = stream
        self.buckets = {}
        self.ticks = []
        self.owed = []
        watch: object = stream.node.age_watch
        stream.age_offset = watch.offset if watch is not None else 0
        kept = stream_states.log_of(stream)
        self.spans = stream_states.load_spans(kept, stream.store.incarnation) if kept else []
        if not self.spans and not stream.store.messages:
            self.begin_span(1, stream.age_offset)
        elif not self.spans:
            self.spans = [(0, 0)]
        self.rearm()
        if stream.ttl_allowed and stream.store.messages:
            stream.kernel.loop.call_soon(self.scan)
        else:
            self.scanned = stream.store.last_seq

    def add(self, sequence: int, due_ns: int) -> None:
        """End `sequence` at `due_ns` of the age clock."""
        tick: int = -(-due_ns // TICK)
        bucket = self.buckets.get(tick)
        if bucket is None:
            bucket = self.buckets[tick] = array("Q")
            heapq.heappush(self.ticks, tick)
        bucket.append(sequence)
        if not self.timer_at or tick * TICK < self.timer_at:
            self.arm()

    def add_ttl(self, sequence: int, timestamp: int, block: bytes) -> None:
        """Take the TTL from the header block of a message that was given a sequence just now. In a
        group it is not in the store yet."""
        ttl_s = header_ttl(block)
        if ttl_s > 0:
            self.add(sequence, self.start_of(sequence, timestamp) + ttl_s * SECOND)

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def start_of(self, sequence: cython.ulonglong, timestamp: cython.longlong) -> cython.longlong:
        """When the life of a message began, in ns of the age clock."""
        at: cython.Py_ssize_t = len(self.spans) - 1
        if self.stream.is_mirror:
            return timestamp
        while at > 0 and cython.cast(cython.ulonglong, self.spans[at][0]) > sequence:
            at -= 1
        return timestamp - cython.cast(cython.longlong, self.spans[at][1])

    def age_start_of(self, sequence: int, timestamp: int) -> int:
        """`start_of` for interpreted callers."""
        return self.start_of(sequence, timestamp)

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def now_ns(self) -> cython.longlong:
        """The age clock; for a mirror, whichever clock its messages were stored by."""
        wall: cython.longlong = self.stream.kernel.fresh_ns()
        age: cython.longlong = wall - self.stream.age_offset
        if self.stream.is_mirror and age < self.stream.store.last_ts - AHEAD_MAX:
            return wall
        return age

    def now(self) -> int:
        """`now_ns` for interpreted callers."""
        return self.now_ns()

    def first_since(self, since_ns: int) -> int:
        """No message before the sequence returned was stored after `since_ns` of the age clock."""
        last: object = self.stream.store.last_seq + 1
        if self.stream.is_mirror:
            return self.stream.store.sequence_at_time(since_ns)
        for first, offset in reversed(self.spans):
            found = self.stream.store.sequence_at_time(since_ns + offset)
            # What is gone of a span says nothing of the spans before it.
            held = self.stream.store.next_match(None, first)
            if held and held < last and found > held:
                return min(found, last)
            last = first
        return last

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def begin_span(self, first: cython.ulonglong, offset: cython.longlong) -> cython.int:
        """Messages from `first` on were stored when timestamps were `offset` ahead of ages."""
        oldest: cython.ulonglong = self.stream.store.first_seq
        before: list = self.spans or []
        spans: list = [span for span in before if span[0] < first]
        if spans and spans[len(spans) - 1][1] == offset:
            self.spans = spans
            if len(spans) < len(before):
                # A span without messages, which may be kept already: a start must not find it.
                self.stale = True
                self.save()
            return 0
        while len(spans) > 1 and spans[1][0] <= oldest:
            spans.pop(0)
        spans.append((first, offset))
        self.spans = spans
        self.stale = len(spans) > 1 or offset != 0 or len(before) > 0
        self.save()
        return 0

    def save(self) -> None:
        """Keep the spans; when there is no room for that now, later."""
        if self.stale:
            try:
                stream_states.save_spans(self.stream, self.spans)
                self.stale = False
            except StoreError as failure:
                log.warning(
                    "stream %s: its ages are not kept: %s; it is tried again, and a start before "
                    "that "
                    "ages its messages by the wall clock",
                    self.stream.name,
                    failure,
                )

    def rearm(self) -> None:
        """Have new messages stored by the clocks as they are now."""
        stream: Stream = self.stream
        late: cython.longlong = stream.store.last_ts - stream.kernel.wall_ns()
        stream.lift = late if late > SECOND and not stream.is_mirror else 0
        self.begin_span(stream.store.last_seq + 1, stream.age_offset + stream.lift)

    def behind(self, by_ns: int) -> None:
        """A timestamp is earlier than the one before by that much."""
        if by_ns > SECOND:
            self.rearm()

    def clock_set(self, step_ns: int) -> None:
        """The wall clock was set by `step_ns`, forward or back, since the last time."""
        stream: Stream = self.stream
        age: cython.longlong = stream.kernel.wall_ns() - stream.age_offset - step_ns
        offset: cython.longlong
        stream.age_offset += step_ns
        if stream.store.messages and not stream.is_mirror:
            # What came after the clock was set, and before that was noticed, is in the future.
            offset = self.spans[len(self.spans) - 1][1]
            first = stream.store.sequence_at_time(age + offset + SECOND)
            if first <= stream.store.last_seq:
                self.begin_span(first, offset + step_ns)
        self.rearm()
        self.arm()
        if stream.schedules is not None:
            stream.schedules.clock_set(step_ns)
        for consumer in stream.consumers.values():
            consumer.look_again()

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
            if self.load(at, cython.address(record)) and record.header_len:
                value = find_header(record.body, record.header_len, b"Nats-TTL", 8)
                if value.n > 0:
                    text = PyBytes_FromStringAndSize(cython.cast(cython.p_char, value.at), value.n)
                    ttl_s = parse_ttl(text)
                    if ttl_s and ttl_s > 0:
                        self.add(at, self.start_of(at, record.timestamp) + ttl_s * SECOND)
            self.scanned = at
        if at:
            self.stream.kernel.loop.call_soon(self.scan)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def load(self, sequence: cython.ulonglong, out: cython.pointer(Record)) -> cython.int:
        """Read a message; 0 when it is not there, or turns out damaged and is gone then."""
        try:
            return self.stream.store.load(sequence, out)
        except Damaged:
            return 0

    def renew(self) -> None:
        """The stream's limits have changed: end what is too old by now, of many a part, and set the
        timer for the rest. The leader of a replicated stream does so when the timer rings."""
        now: cython.longlong = self.now_ns()
        if self.stream.replicator is None:
            self.expire_due(now, SLICE)
            self.expire_old(now, SLICE)
            self.stream.count_usage()
        self.arm()

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
            wait = (due - self.now_ns()) / 1e9
            self.timer = self.stream.kernel.loop.call_later(max(wait, GRAIN_S), self.on_timer)

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def next_due(self) -> cython.longlong:
        """When the next message ends, in ns; 0 when none does."""
        due: cython.longlong = 0
        end: cython.longlong
        at: cython.ulonglong
        entry: cython.pointer(cython.const[IndexEntry])
        if self.ticks:
            due = cython.cast(cython.longlong, self.ticks[0]) * TICK
        if self.stream.max_age > 0:
            at = self.stream.store.next_match(None, max(self.kept, self.ended) + 1)
            entry = self.stream.store.at(at) if at else cython.NULL
            if entry != cython.NULL:
                end = self.start_of(at, entry.timestamp) + self.stream.max_age
                if not due or end < due:
                    due = end
        if self.owed:
            end = self.now_ns() + SECOND
            if not due or end < due:
                due = end
        return due

    def on_timer(self) -> None:
        """End what is due, then set the timer again."""
        now: cython.longlong
        watch: object = self.stream.node.age_watch
        if watch is not None:
            watch.check()
        now = self.now_ns()
        self.timer = None
        self.save()
        self.timer_at = 0
        if self.stopped:
            return
        self.pay()
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
        entry: cython.pointer(cython.const[IndexEntry])
        record: Record
        if self.stream.max_age <= 0:
            return 0
        while left > 0:
            at = self.stream.store.next_match(None, max(self.kept, self.ended) + 1)
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
                and self.load(at, cython.address(record))
            ):
                block = PyBytes_FromStringAndSize(
                    cython.cast(cython.p_char, record.body), record.header_len
                )
                if header_ttl(block) == NEVER:
                    self.kept = at
                    continue
            if self.stream.replicator is not None:
                self.ended = at
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
        try:
            found = stream.store.get(sequence)
        except Damaged:
            return 0
        if found is None:
            return 0
        subject = found.subject
        block = found.headers
        stream.drop(sequence)
        if not is_marker(block):
            self.leave_marker(subject, sequence)
        return 0

    def leave_marker(self, subject: bytes, ended: int = 0) -> None:
        """Store a marker for a subject whose last message `ended`; when there is no room, later."""
        stream: Stream = self.stream
        ttl_ns: object = stream.config.subject_delete_marker_ttl
        text: cython.p_const_uchar = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(subject))
        last: cython.ulonglong = stream.last_for(text, len(subject))
        # In a group, what has ended is still there until that is committed.
        if (last and last != ended) or ttl_ns <= 0:
            return
        try:
            stream.import_message(subject, marker_headers(ttl_ns), b"", stream.kernel.clock(), 0)
        except StoreError as failure:
            if not self.owed:
                log.warning(
                    "stream %s: delete markers are put off: %s; they are written once the store "
                    "takes messages",
                    stream.name,
                    failure,
                )
            if len(self.owed) < OWED_MAX:
                self.owed.append(subject)

    def pay(self) -> None:
        """Store the markers that were put off."""
        owed: list = self.owed
        if owed and self.stream.store.failure is None:
            self.owed = []
            for subject in owed:
                self.leave_marker(subject)

    def stop(self) -> None:
        """No more timers."""
        self.stopped = True
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
