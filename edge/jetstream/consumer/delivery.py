"""A consumer: delivers a stream's messages to whoever pulls them or listens.

`run` is called when something may be deliverable (messages were committed, an ack or pull request
came, interest changed, a slow receiver goes on) and when a deadline is due. It delivers at most
`BURST` messages and then lets others have their turn. Redeliveries go before new messages. Nothing
is delivered that is not committed.

Subjects, headers and statuses are those of the JetStream protocol (ADR-2, ADR-9, ADR-13, ADR-42).
"""

import cython
from cython.cimports.cpython.bytes import (
    PyBytes_AS_STRING,
    PyBytes_GET_SIZE,
)
from cython.cimports.headwater.edge.jetstream.consumer.demand import (
    POLICY_NONE,
    POLICY_PINNED,
    POLICY_PRIORITIZED,
    Demand,
)
from cython.cimports.headwater.edge.jetstream.consumer.flow import FlowWindow
from cython.cimports.headwater.edge.jetstream.consumer.pull import PullQueue, PullRequest
from cython.cimports.headwater.edge.jetstream.progress.consumer import (
    ACK_FLOW,
    ACK_NONE,
)
from cython.cimports.headwater.edge.jetstream.progress.delta import Delta
from cython.cimports.headwater.edge.jetstream.progress.pending import PendingEntry
from cython.cimports.headwater.edge.jetstream.replication.replicator import Replicator
from cython.cimports.headwater.edge.jetstream.stream.stream import Stream
from cython.cimports.headwater.edge.kernel.kernel import MADE, Msg, Sink
from cython.cimports.headwater.edge.storage.index.store import NOT_WRITTEN
from cython.cimports.headwater.edge.wire.header_block import kept_length
from cython.cimports.headwater.edge.wire.numbers import put_kept, put_moment, put_number
from cython.cimports.libc.stdlib import free, malloc, realloc
from cython.cimports.libc.string import memcpy

from headwater.edge.jetstream.config import pull_rules
from headwater.edge.jetstream.config.link_choices import is_urgent
from headwater.edge.jetstream.model.bounds import span
from headwater.edge.jetstream.progress import consumer_events as events
from headwater.edge.jetstream.progress import consumer_setup as setup
from headwater.edge.jetstream.progress import consumer_state as state
from headwater.edge.storage.format.errors import Damaged, broken

DELETED = "Consumer Deleted"
# Deliveries in one run before other tasks get theirs.
BURST = cython.declare(cython.int, 512)
# Five numbers of up to twenty digits and the dots between them.
NUMBERS_MAX = cython.declare(cython.Py_ssize_t, 112)
# A receiver that took nothing although it seemed to listen is tried again after this time.
RETRY_NS = cython.declare(cython.longlong, 1000000000)
TICK_NS = cython.declare(cython.longlong, 1000000)
NOBODY = cython.declare(cython.longlong, -2)


@cython.cclass
class Delivery(Demand):
    """One consumer of one stream. `consumers` and `consumer_recovery` make them."""

    def __cinit__(self, *args, **kwargs):
        self.scratch = self.copy = cython.NULL
        self.sinks = []

    def __init__(self, stream: Stream, config: object, name: str, created_ns: int, wiring: object):
        self.wiring = wiring
        self.stream = stream
        self.account = stream.account
        self.kernel = stream.kernel
        self.store = stream.store
        self.name = name
        self.name_bytes = name.encode()
        self.created_ns = created_ns
        self.active_ns = self.sent_ns = self.kernel.monotonic_ns()
        self.wall_offset = self.kernel.wall_ns() - self.active_ns
        self.ack_event, self.nak_event, self.term_event, self.limit_event = events.subjects(self)
        prefix: bytes = b"$JS.ACK." + stream.name_bytes + b"." + self.name_bytes + b"."
        self.prefix = len(prefix)
        self.scratch = cython.cast(cython.p_uchar, malloc(self.prefix + NUMBERS_MAX))
        if self.scratch == cython.NULL:
            raise MemoryError
        memcpy(self.scratch, PyBytes_AS_STRING(prefix), self.prefix)
        self.configure(config)

    def __dealloc__(self):
        free(self.scratch)
        free(self.copy)

    # --- configuration ----------------------------------------------------------------------------

    def configure(self, config: object) -> None:
        """Act on a checked configuration from now on."""
        i: cython.int
        waits = config.backoff
        self.config = config
        self.ack_policy = setup.ACK_POLICIES[config.ack_policy]
        self.ack_wait = span(config.ack_wait)
        free(self.backoff)
        self.backoff = cython.NULL
        self.backoff_count = 0
        if waits:
            self.backoff = cython.cast(
                cython.pointer(cython.longlong), malloc(len(waits) * cython.sizeof(cython.longlong))
            )
            if self.backoff == cython.NULL:
                raise MemoryError
            self.backoff_count = len(waits)
            for i in range(self.backoff_count):
                self.backoff[i] = span(waits[i])
        self.max_deliver = max(config.max_deliver, 0)
        self.max_ack_pending = max(config.max_ack_pending, 0) if self.ack_policy else 0
        self.sample_percent = setup.sample_percent(config)
        patterns = setup.patterns(config)
        if self.filter is None or self.filter.patterns != patterns:
            self.filter = self.store.filter(patterns) if patterns else None
            self.unread_known = False
        self.headers_only = config.headers_only
        self.copies = config.direct or config.sourcing
        self.begins = max(config.opt_start_seq, 1)
        self.threshold = setup.threshold(config, self.threshold, self.kernel.chance)
        self.paused_until = setup.pause_end(config)
        if self.paused_until <= self.kernel.wall_ns():
            # Nothing ends that has not begun.
            self.paused_until = 0
        self.policy = setup.POLICIES[config.priority_policy]
        self.pin_timeout = span(config.priority_timeout)
        self.ruled = self.policy != POLICY_NONE or pull_rules.limited(config)
        self.heartbeat = span(config.idle_heartbeat)
        self.set_rate(config.rate_limit_bps)
        self.urgent = is_urgent(config.metadata)
        if config.deliver_subject:
            self.deliver_subject = config.deliver_subject.encode()
            self.deliver_group = config.deliver_group.encode() or None
            self.match = None
            if config.flow_control and self.flow is None:
                self.flow = FlowWindow()
        elif self.queue is None:
            self.queue = PullQueue(config.max_waiting, self.policy == POLICY_PRIORITIZED)

    def set_rate(self, bits_per_second: int) -> None:
        """Deliver at most that fast; 0 is without a limit."""
        self.rate = 8e9 / bits_per_second if bits_per_second else 0.0

    def use_saver(self, unsaved: list) -> None:
        """Have progress saved: `unsaved` collects the consumers that changed in a turn."""
        self.unsaved = unsaved
        self.delta = Delta()

    def start(self) -> None:
        """Listen for acks, requests and interest, and deliver."""
        self.sinks = self.wiring.sinks(self)
        for sink in self.sinks:
            self.account.insert(cython.cast(Sink, sink))
        if self.deliver_subject is not None:
            self.watch = self.wiring.watch(self)
            self.interested()
        self.replay = self.config.replay_policy == "original"
        self.replay_end = self.store.last_seq
        self.active_ns = self.kernel.monotonic_ns()
        self.due = True
        self.kernel.schedule(self)

    def redirect(self) -> None:
        """The deliver subject has changed: what is pending goes to the new one."""
        self.requeue_all(self.kernel.monotonic_ns())
        if self.watch is not None:
            self.watch.drop(self)
            self.watch = self.wiring.watch(self)
        if self.flow is not None:
            self.flow = FlowWindow()
            # What went to the old one may still wait for the same link.
            self.flow.fresh = False
        self.match = None
        self.interested()
        self.wake()

    def wake(self) -> None:
        """Look again for something to do, deadlines included."""
        self.due = True
        self.kernel.schedule(self)

    def announce(self) -> None:
        """Deliver from now on: whoever asked for this consumer has the answer."""
        self.unannounced = False
        self.wake()

    # --- end --------------------------------------------------------------------------------------

    def stop(self, reason: str = DELETED) -> None:
        """End; waiting pulls are told `reason`. What is saved goes only with `DELETED`."""
        if self.deleted:
            return
        if reason == DELETED:
            state.forget(self)
        else:
            state.flush(self)
        self.deleted = True
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        for sink in self.sinks:
            self.account.remove(cython.cast(Sink, sink))
        self.sinks = []
        if self.watch is not None:
            self.watch.drop(self)
            self.watch = None
        self.active = False
        if self.queue is not None:
            for request in self.queue.requests():
                if reason == DELETED:
                    self.status(request.reply, b"409 Consumer Deleted")
                else:
                    self.status_pending(request, b"409 " + reason.encode())
            self.queue = PullQueue(0, False)

    # --- choosing a message -----------------------------------------------------------------------

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def can_send(self) -> cython.bint:
        """Whether somebody would take a message now."""
        if self.paused_until or self.halted or self.unannounced:
            return False
        if self.queue is not None:
            return self.queue.head is not None or self.held is not None
        return self.active and (self.flow is None or not self.flow.blocked())

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def load(self, sequence: cython.ulonglong) -> cython.bint:
        """Load a message; False when it is gone or damaged (the store reports damage itself)."""
        try:
            return self.store.load(sequence, cython.address(self.record)) == 1
        except Damaged:
            return False

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def choose(self) -> cython.int:
        """Find and load the next message to deliver, without changing any position."""
        sequence: cython.ulonglong
        # A message that waits for its time in a replay goes before what is to be sent again.
        if self.pending.queued and (not self.holds_new or self.full()) and self.choose_again():
            return FOUND_AGAIN
        if self.full():
            return FOUND_FULL
        if self.skip_at < self.skip_len and self.choose_skipped():
            return FOUND_NEW
        while not self.halted:
            sequence = self.store.next_match(self.filter, self.at.next_seq)
            if self.holds_new and (sequence == 0 or sequence > self.store.committed):
                self.holds_new = False
                return self.choose()
            if sequence == 0:
                self.at.next_seq = max(self.at.next_seq, self.store.last_seq + 1)
                return FOUND_END
            if sequence > self.store.committed:
                return FOUND_NOTHING
            self.deliveries = 1
            if self.load(sequence):
                return FOUND_NEW
            if self.halted:
                break
            self.at.next_seq = sequence + 1
            self.unread_known = False
        return FOUND_NOTHING

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def choose_again(self) -> cython.int:
        """Find and load the next redelivery."""
        entry: cython.pointer(PendingEntry) = self.pending.next_queued()
        while entry != cython.NULL:
            if self.max_deliver and entry.deliveries >= self.max_deliver:
                self.exhaust(entry)
            elif self.load(entry.sequence):
                self.deliveries = entry.deliveries + 1
                return 1
            elif self.halted:
                return 0
            else:
                self.settle(entry)
            entry = self.pending.next_queued()
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def choose_skipped(self) -> cython.int:
        """Find and load the next message of the last-per-subject phase."""
        while self.skip_at < self.skip_len:
            if self.load(self.skip[self.skip_at]):
                self.deliveries = 1
                return 1
            if self.halted:
                return 0
            self.skip_at += 1
        self.forget_skip()
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def held_back(self, found: cython.int, now: cython.longlong) -> cython.longlong:
        """When the chosen message may go, for rate limit and replay; 0 for at once, below it when
        nobody is there to take it."""
        if self.rate and self.rate_ready > now:
            return self.rate_ready
        if self.replay:
            if self.replay_last and self.replay_ready == 0:
                self.replay_ready = now + max(self.record.timestamp - self.replay_last, 0)
            if self.replay_ready > now + TICK_NS:
                if self.queue is not None and not self.hold(self.replay_ready, now):
                    self.replay_ready = 0
                    return NOBODY
                self.holds_new = found == FOUND_NEW
                return self.replay_ready
        return 0

    # --- delivery ---------------------------------------------------------------------------------

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def run(self) -> cython.int:
        """Do what is due, deliver what can be delivered."""
        now: cython.longlong
        if self.deleted:
            return 0
        now = self.kernel.monotonic_ns()
        self.wall_offset = self.kernel.wall_ns() - now
        if self.due:
            self.due = False
            self.arm(self.tend(now))
            if self.deleted:
                return 0
        if self.waiting_for is not None:
            if self in self.waiting_for.waiters and not self.waiting_for.closed:
                return 0
            self.waiting_for = None
        return self.deliver(now)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def deliver(self, now: cython.longlong) -> cython.int:
        """Deliver up to `BURST` messages."""
        found: cython.int
        left: cython.int = BURST
        later: cython.longlong
        group: Replicator = self.stream.replicator
        while left > 0:
            if self.deleted or not self.can_send():
                return self.rest()
            found = self.choose()
            if group is not None and (found >= FOUND_NEW or self.tells_end(found)):
                if group.must_wait(self, now, now + self.wall_offset):
                    return 0
                group = None
            if found < FOUND_NEW:
                if found == FOUND_END:
                    self.at_end(now)
                elif (
                    found == FOUND_FULL
                    and self.ack_policy == ACK_FLOW
                    and self.flow is not None
                    and self.flow.token is None
                ):
                    self.ask_flow()
                return self.rest()
            if self.copies and found == FOUND_NEW and self.removals_are_fresh(now):
                return 0
            later = self.held_back(found, now)
            if later == NOBODY:
                return self.rest()
            if later:
                return self.arm(later)
            if not self.send_one(found, now):
                return 0
            left -= 1
            if self.kernel.congested is not None:
                self.waiting_for = self.kernel.congested
                self.kernel.congested = None
                self.waiting_for.waiters.append(self)
                return 0
        return self.kernel.schedule_later(self)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def rest(self) -> cython.int:
        """Wait for something to deliver, or somebody to deliver it to; a replay ends where all that
        was there at its start has been delivered."""
        if self.replay and self.at.next_seq > self.replay_end:
            self.replay = self.holds_new = False
        return self.kernel.schedule_later(self) if self.due else 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def removals_are_fresh(self, now: cython.longlong) -> cython.bint:
        """Whether the chosen message would have a copy pass over one that a crash can bring back;
        `run` comes again when it cannot. What a group has removed is committed."""
        lsn: cython.ulonglong
        # A consumer begins where the stream does, which may have lost its head just now.
        first: cython.ulonglong = self.at.next_seq if self.at.next_cseq > 1 else self.begins
        if self.record.sequence <= first or self.stream.replicator is not None:
            return False
        lsn = self.store.unsafe_removal(first, self.record.sequence - 1)
        if lsn == 0:
            return False
        if lsn != NOT_WRITTEN:
            if lsn > self.safe_after:
                self.safe_after = lsn
                self.store.when_safe(lsn, self)
        elif self.store.failure is not None:
            self.arm(now + RETRY_NS)
        else:
            self.kernel.schedule_later(self)
        return True

    def passed(self) -> int:
        """The sequence up to which a copy that has got nothing yet may take all for passed over:
        no crash can bring any of it back."""
        if (
            self.copies
            and self.at.next_cseq == 1
            and self.begins < self.at.next_seq
            and self.stream.replicator is None
            and self.store.unsafe_removal(self.begins, self.at.next_seq - 1)
        ):
            return self.begins - 1
        return self.at.next_seq - 1

    @cython.cfunc
    @cython.exceptval(check=False)
    def tells_end(self, found: cython.int) -> cython.bint:
        """Whether somebody is to hear that there is nothing more."""
        return found == FOUND_END and self.queue is not None and self.queue.no_waits > 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def write_reply(self, pending: cython.ulonglong) -> cython.Py_ssize_t:
        """Write the ack subject of the chosen message; returns its length."""
        out: cython.p_uchar = self.scratch
        n: cython.Py_ssize_t = self.prefix
        n += put_number(out + n, self.deliveries)
        out[n] = 46
        n += 1
        n += put_kept(out + n, cython.address(self.last_sequence), self.record.sequence)
        out[n] = 46
        n += 1
        n += put_kept(out + n, cython.address(self.last_number), self.at.next_cseq)
        out[n] = 46
        n += 1
        n += put_moment(
            out + n,
            cython.address(self.last_second),
            cython.cast(cython.ulonglong, self.record.timestamp),
        )
        out[n] = 46
        n += 1
        n += put_kept(out + n, cython.address(self.last_pending), pending)
        return n

    def size_header_len(self) -> int:
        """Bytes of the chosen message's headers with the line that tells how large it is."""
        line = len(b"Nats-Msg-Size: %d\r\n" % (self.record.size - self.record.header_len))
        return (kept_length(self.record.header_len) or len(b"NATS/1.0\r\n")) + line + 2

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def shape(
        self, m: cython.pointer(Msg), request: PullRequest, inside: cython.bint
    ) -> cython.int:
        """Fill in subject and body as the receiver shall see them.

        They point into the store, unless headers are added or the message may come back to a store
        of this node while it is delivered; then they are copied.
        """
        lines: bytes = None
        payload: cython.Py_ssize_t = self.record.size - self.record.header_len
        headers: cython.Py_ssize_t = self.record.header_len
        at: cython.Py_ssize_t
        m.shown = self.record.subject
        m.shown_len = self.record.subject_len
        m.body = self.record.body
        m.header_len = headers
        m.size = self.record.size
        if self.headers_only:
            lines = b"Nats-Msg-Size: %d\r\n" % payload
            payload = 0
        if request is not None and self.policy == POLICY_PINNED:
            lines = (lines or b"") + b"Nats-Pin-Id: %b\r\n" % self.pin.encode()
        if lines is None and not inside:
            return 0
        self.make_copy(m.shown_len + m.size + len(lines or b"") + 12)
        memcpy(self.copy, m.shown, m.shown_len)
        m.shown = self.copy
        at = m.shown_len
        m.body = self.copy + at
        if lines is None:
            memcpy(self.copy + at, self.record.body, self.record.size)
            return 0
        if kept_length(headers):
            memcpy(self.copy + at, self.record.body, kept_length(headers))
            at += kept_length(headers)
        else:
            memcpy(self.copy + at, cython.cast(cython.p_const_char, b"NATS/1.0\r\n"), 10)
            at += 10
        memcpy(self.copy + at, PyBytes_AS_STRING(lines), PyBytes_GET_SIZE(lines))
        at += PyBytes_GET_SIZE(lines)
        memcpy(self.copy + at, cython.cast(cython.p_const_char, b"\r\n"), 2)
        at += 2
        m.header_len = at - m.shown_len
        if payload:
            memcpy(self.copy + at, self.record.body + headers, payload)
        m.size = m.header_len + payload
        return 0

    def make_copy(self, need: cython.Py_ssize_t) -> None:
        """Have room for `need` bytes in `copy`."""
        grown: cython.p_uchar
        if need > self.copy_capacity:
            grown = cython.cast(cython.p_uchar, realloc(self.copy, need * 2))
            if grown == cython.NULL:
                raise MemoryError
            self.copy = grown
            self.copy_capacity = need * 2

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def send_one(self, found: cython.int, now: cython.longlong) -> cython.int:
        """Deliver the chosen message; 0 when nobody is there to take it."""
        m: Msg
        request: PullRequest = None
        size: cython.Py_ssize_t
        count: cython.Py_ssize_t
        unread: cython.ulonglong = self.count_unread()
        if found == FOUND_NEW and unread > 0:
            unread -= 1
        m.reply_len = self.write_reply(unread)
        m.reply = self.scratch
        m.via = MADE
        size = self.record.subject_len + m.reply_len
        if self.headers_only:
            size += self.size_header_len()
        else:
            size += self.record.size
        if self.queue is not None:
            request = self.next_request(size, now, unread)
            if request is None:
                return 0
            m.subject = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(request.reply))
            m.subject_len = PyBytes_GET_SIZE(request.reply)
            self.shape(cython.address(m), request, request.inside)
        else:
            stale: cython.bint = self.match is None or self.generation != self.account.generation
            if stale and not self.interested():
                return 0
            m.subject = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(self.deliver_subject))
            m.subject_len = PyBytes_GET_SIZE(self.deliver_subject)
            self.shape(cython.address(m), None, self.inside)
        self.record_delivery(found, now)
        self.kernel.congested = None
        if self.flow is not None:
            self.flow.goes_ahead(size)
        self.kernel.urgent = self.is_urgent()
        count = self.account.route(
            cython.address(m), None, self.match if request is None else request.match, None
        )
        self.kernel.urgent = False
        if count == 0:
            self.undo_delivery(found)
            if request is None:
                self.active = False
                self.arm(now + RETRY_NS)
                return 0
            if request is self.held:
                self.held = None
            self.queue.discard(request)
            return 1
        self.delivered(found, size, request, now)
        return 1

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def record_delivery(self, found: cython.int, now: cython.longlong) -> cython.int:
        """Move the positions over the chosen message, before it is sent."""
        sequence: cython.ulonglong = self.record.sequence
        entry: cython.pointer(PendingEntry)
        if found == FOUND_AGAIN:
            entry = self.pending.find(sequence)
            self.pending.unqueue(entry)
            entry.deliveries += 1
            if entry.deliveries == 2:
                self.pending.redelivered += 1
            entry.since = now
            self.at.next_cseq += 1
            return 0
        if self.skip_at < self.skip_len:
            self.skip_at += 1
        else:
            self.at.next_seq = sequence + 1
            self.unread -= 1
        if self.ack_policy != ACK_NONE:
            self.pending.add(sequence, self.at.next_cseq, now, 1)
        self.at.next_cseq += 1
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def undo_delivery(self, found: cython.int) -> cython.int:
        """Take `record_delivery` back: nobody got the message."""
        sequence: cython.ulonglong = self.record.sequence
        entry: cython.pointer(PendingEntry) = self.pending.find(sequence)
        self.at.next_cseq -= 1
        if found == FOUND_AGAIN:
            if entry != cython.NULL:
                entry.deliveries -= 1
                if entry.deliveries == 1:
                    self.pending.redelivered -= 1
                self.pending.requeue(entry)
            return 0
        if entry != cython.NULL:
            self.pending.drop(entry)
        if self.at.next_seq == sequence + 1 and sequence > self.at.skip_resume:
            self.at.next_seq = sequence
            self.unread += 1
        else:
            self.skip_at -= 1
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def delivered(
        self,
        found: cython.int,
        size: cython.Py_ssize_t,
        request: PullRequest,
        now: cython.longlong,
    ) -> cython.int:
        """Everything that follows a delivery."""
        sequence: cython.ulonglong = self.record.sequence
        wait: cython.longlong
        entry: cython.pointer(PendingEntry)
        self.at.delivered_ns = now + self.wall_offset
        if found == FOUND_NEW:
            self.at.delivered_seq = max(self.at.delivered_seq, sequence)
        self.replay_last = self.record.timestamp
        self.replay_ready = 0
        self.holds_new = False
        if self.held is not None:
            self.due = True
        if self.rate:
            self.rate_ready = max(self.rate_ready, now) + cython.cast(
                cython.longlong, size * self.rate
            )
        if self.ack_policy == ACK_NONE:
            self.at.floor_cseq = self.at.next_cseq - 1
            self.at.floor_seq = self.at.delivered_seq
            self.schedule_save()
        else:
            entry = self.pending.find(sequence)
            if entry != cython.NULL:
                self.track(entry)
                wait = self.wait_of(entry.deliveries)
                if wait and (self.timer_at == 0 or now + wait < self.timer_at):
                    self.arm(now + wait)
        if request is not None:
            self.active_ns = now
            if request.heartbeat:
                request.heartbeat_at = now + request.heartbeat
            if self.queue.served(request, self.held is not None) and request.max_bytes > 0:
                self.status_pending(request, b"409 Batch Completed")
            self.held = None
        else:
            self.sent_ns = now
            if self.flow is not None:
                wants: cython.bint = self.flow.sent(size, now)
                if not wants and self.ack_policy == ACK_FLOW and self.flow.token is None:
                    wants = self.full()
                if wants:
                    self.ask_flow()
        if self.ack_policy == ACK_NONE:
            self.stream.consumer_acked(sequence)
        return 0

    # --- for interpreted callers ------------------------------------------------------------------

    def numbers(self) -> dict[str, int]:
        """Positions and counts, as INFO shows them. Times in ns, 0 for never. Raises
        InvariantBroken rather than answer what cannot be."""
        waiting: cython.Py_ssize_t = 0
        unsound: str = self.unsound()
        if unsound is not None:
            broken(f"consumer '{self.name}' of stream '{self.stream.name}': {unsound}")
        if self.queue is not None:
            self.tend_requests(self.kernel.monotonic_ns(), False)
            waiting = self.queue.count
        return {
            "next_seq": self.at.next_seq,
            "next_cseq": self.at.next_cseq,
            "delivered_seq": self.at.delivered_seq,
            "delivered_ns": self.at.delivered_ns,
            "floor_cseq": self.at.floor_cseq,
            "floor_seq": self.at.floor_seq,
            "acked_ns": self.at.acked_ns,
            "ack_pending": self.pending.count,
            "redelivered": self.pending.redelivered + len(self.exhausted),
            "waiting": waiting,
            "unread": self.count_unread(),
        }

    def delivered_count(self) -> int:
        """How often it has handed out a message: the consumer sequence of the last time."""
        return self.at.next_cseq - 1

    def start_at(self, sequence: int) -> None:
        """Begin at a stream sequence, before anything was delivered."""
        self.at.next_seq = max(sequence, 1)
        self.at.delivered_seq = self.at.floor_seq = self.at.next_seq - 1
        self.unread_known = False

    def start_after(self, sequence: int) -> None:
        """What was delivered so far, for a consumer that starts with a list of sequences."""
        self.at.delivered_seq = self.at.floor_seq = sequence

    def clear_floor(self) -> None:
        """Have no ack floor before the first ack, after the start was set."""
        self.at.floor_seq = 0

    def reset(self, sequence: int) -> int:
        """Deliver again from `sequence`, 0 for behind the ack floor; returns the sequence."""
        target: cython.ulonglong = sequence if sequence else self.at.floor_seq + 1
        first: cython.pointer(PendingEntry)
        if not sequence and not self.at.floor_cseq and not self.at.floor_seq:
            first = self.pending.first()
            target = self.at.delivered_seq + 1 if first == cython.NULL else first.sequence
        if target == 0:
            target = 1
        self.reset_to(target)
        return self.at.next_seq
