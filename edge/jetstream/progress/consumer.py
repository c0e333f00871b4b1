"""How far a consumer is: positions, pending acks, what is still to come, and acknowledgement.

This is what streams know of a consumer; `Delivery` is what runs. It sends nothing but events.
Deadlines count on the monotonic clock, so that a wall clock that jumps redelivers nothing; what is
written down is converted to wall time.
"""

import cython
from cython.cimports.headwater.edge.jetstream.progress.delta import Delta, apply_delta
from cython.cimports.headwater.edge.jetstream.progress.pending import (
    ENTRY_ALIVE,
    ENTRY_QUEUED,
    PendingEntry,
    PendingTable,
)
from cython.cimports.libc.stdlib import free, malloc
from cython.cimports.libc.string import memmove

from headwater.edge.jetstream.model.bounds import span
from headwater.edge.jetstream.progress import consumer_events as events
from headwater.edge.jetstream.progress import consumer_state as state

# Looking through many pending acks takes time, so that is done less often the more there are: at
# most every microsecond per entry, but ten times a second however many there are.
SCAN_NS = cython.declare(cython.longlong, 1000)
SCAN_PAUSE_NS = cython.declare(cython.longlong, 100000000)


@cython.cclass
class Consumer(StreamObserver):
    """State of one consumer. `arm(when)` of a subclass has `run` called at a monotonic time."""

    def __cinit__(self, *args, **kwargs):
        self.backoff = cython.NULL
        self.skip = cython.NULL
        self.pending = PendingTable()
        self.exhausted = {}
        self.replies = []
        self.key = self.owner = b""
        self.at.next_seq = self.at.next_cseq = 1

    def __dealloc__(self):
        free(self.backoff)
        free(self.skip)

    # --- what is still to come -------------------------------------------------------------------

    @cython.ccall
    @cython.exceptval(0, check=True)
    def count_unread(self) -> cython.ulonglong:
        """Stored messages that this consumer has not been given yet; exact."""
        last: cython.ulonglong = self.store.last_seq
        if not self.unread_known:
            self.unread = self.store.count_match(self.filter, self.at.next_seq)
            self.unread_known = True
            self.counted = last
        elif last > self.counted:
            self.unread += self.store.count_match(
                self.filter, max(self.counted + 1, self.at.next_seq)
            )
            self.counted = last
        return self.unread + cython.cast(cython.ulonglong, self.skip_len - self.skip_at)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def skipped(self, sequence: cython.ulonglong) -> cython.int:
        """Index + 1 of a sequence that is still to come in the last-per-subject phase, or 0."""
        low: cython.Py_ssize_t = self.skip_at
        high: cython.Py_ssize_t = self.skip_len
        middle: cython.Py_ssize_t
        while low < high:
            middle = (low + high) >> 1
            if self.skip[middle] < sequence:
                low = middle + 1
            else:
                high = middle
        if low < self.skip_len and self.skip[low] == sequence:
            return cython.cast(cython.int, low + 1)
        return 0

    @cython.ccall
    def set_skip(self, sequences: list, resume: cython.ulonglong):
        """Deliver `sequences` (ascending) first, then everything above `resume`."""
        i: cython.Py_ssize_t
        free(self.skip)
        self.skip = cython.NULL
        self.skip_at = self.skip_len = 0
        self.at.skip_resume = 0
        if sequences:
            self.skip = cython.cast(
                cython.pointer(cython.ulonglong),
                malloc(len(sequences) * cython.sizeof(cython.ulonglong)),
            )
            if self.skip == cython.NULL:
                raise MemoryError
            for i in range(len(sequences)):
                self.skip[i] = sequences[i]
            self.skip_len = len(sequences)
            self.at.skip_resume = resume
        self.at.next_seq = resume + 1
        self.unread_known = False

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def forget_skip(self) -> cython.int:
        """The last-per-subject phase is over."""
        free(self.skip)
        self.skip = cython.NULL
        self.skip_at = self.skip_len = 0
        self.at.skip_resume = 0
        return 0

    # --- what the stream asks and tells ----------------------------------------------------------

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def needs(self, sequence: cython.ulonglong) -> cython.bint:
        """Whether this consumer still has to deliver the message or waits for its ack."""
        if sequence >= self.at.next_seq:
            return self.filter is None or self.filter.next_until(sequence, sequence) == sequence
        if self.skip_at < self.skip_len and self.skipped(sequence):
            return True
        if self.ack_policy == ACK_NONE:
            return False
        if self.pending.find(sequence) != cython.NULL:
            return True
        return bool(self.exhausted) and sequence in self.exhausted

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def removed(self, sequence: cython.ulonglong) -> cython.int:
        """The stream dropped a message: neither deliver it nor wait for its ack."""
        entry: cython.pointer(PendingEntry)
        index: cython.int
        if sequence >= self.at.next_seq:
            if self.unread_known and sequence <= self.counted:
                if self.filter is None:
                    self.unread -= 1
                else:
                    self.unread_known = False
            return 0
        if self.skip_at < self.skip_len:
            index = self.skipped(sequence)
            if index and index - 1 - self.skip_at < self.skip_len - index:
                memmove(
                    self.skip + self.skip_at + 1,
                    self.skip + self.skip_at,
                    (index - 1 - self.skip_at) * cython.sizeof(cython.ulonglong),
                )
                self.skip_at += 1
            elif index:
                memmove(
                    self.skip + index - 1,
                    self.skip + index,
                    (self.skip_len - index) * cython.sizeof(cython.ulonglong),
                )
                self.skip_len -= 1
        entry = self.pending.find(sequence)
        if entry != cython.NULL:
            if self.full():
                self.kernel.schedule(self)
            self.settle(entry)
        elif self.exhausted and sequence in self.exhausted:
            del self.exhausted[sequence]
            self.schedule_save()
            if self.delta is not None:
                self.delta.forgive(sequence)
        return 0

    @cython.ccall
    def purged(self, start: cython.ulonglong):
        """The stream dropped many messages at once. Nothing before `start` is of interest any more;
        0 when what was dropped is nothing that this consumer wants."""
        i: cython.Py_ssize_t = self.pending.head
        k: cython.Py_ssize_t
        kept: cython.Py_ssize_t = 0
        sequence: cython.ulonglong
        self.unread_known = False
        if self.skip_at < self.skip_len:
            # Leave out of the last-per-subject phase what is not stored any more.
            for k in range(self.skip_at, self.skip_len):
                if self.store.at(self.skip[k]) != cython.NULL:
                    self.skip[kept] = self.skip[k]
                    kept += 1
            self.skip_at = 0
            self.skip_len = kept
            if kept == 0:
                self.forget_skip()
        while i < self.pending.end and self.pending.count:
            sequence = self.pending.items[i].sequence
            if self.pending.items[i].flags & ENTRY_ALIVE and self.store.at(sequence) == cython.NULL:
                self.settle(cython.address(self.pending.items[i]))
            i += 1
        for key in [k for k in self.exhausted if self.store.at(k) == cython.NULL]:
            del self.exhausted[key]
            if self.delta is not None:
                self.delta.forgive(key)
        self.at.next_seq = max(self.at.next_seq, start)
        if start and self.pending.count == 0 and self.skip_at >= self.skip_len:
            self.at.delivered_seq = self.at.floor_seq = self.at.next_seq - 1
            self.at.floor_cseq = self.at.next_cseq - 1
        elif self.pending.count and self.at.floor_seq + 1 < start:
            self.at.floor_seq = start - 1
        self.schedule_save()
        self.kernel.schedule(self)

    # --- bookkeeping -----------------------------------------------------------------------------

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def schedule_save(self) -> cython.int:
        """Have the progress saved when this turn ends."""
        if not self.dirty and self.unsaved is not None and not self.deleted:
            self.dirty = True
            self.unsaved.append(self)
            if not self.kernel.turning:
                self.kernel.kick()
        return 0

    @cython.cfunc
    def unsound(self) -> str | None:
        """Why its progress cannot be, and so must not be written or answered; None when it can."""
        first: cython.pointer(PendingEntry) = self.pending.first()
        last: cython.pointer(PendingEntry) = cython.NULL
        if self.at.floor_cseq >= self.at.next_cseq:
            return f"ack floor {self.at.floor_cseq} of deliveries up to {self.at.next_cseq - 1}"
        if self.ack_policy != ACK_FLOW and self.at.floor_seq > self.at.delivered_seq:
            return f"ack floor {self.at.floor_seq}, delivered up to {self.at.delivered_seq}"
        if self.pending.redelivered > self.pending.count or self.pending.redelivered < 0:
            return f"{self.pending.redelivered} of {self.pending.count} pending are redelivered"
        if first != cython.NULL:
            last = cython.address(self.pending.items[self.pending.end - 1])
            if first.deliveries == 0 or first.consumer_seq >= self.at.next_cseq:
                return f"message {first.sequence} is pending and was never delivered"
            if self.ack_policy != ACK_FLOW and first.sequence <= self.at.floor_seq:
                return f"message {first.sequence} is pending, ack floor {self.at.floor_seq}"
            if last.flags & ENTRY_ALIVE and last.sequence > self.at.delivered_seq:
                return f"message {last.sequence} is pending, delivered {self.at.delivered_seq}"
        return None

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def full(self) -> cython.bint:
        """Whether no new message may be delivered before one is acknowledged."""
        return self.max_ack_pending > 0 and self.pending.count >= self.max_ack_pending

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def age_offset(self) -> cython.longlong:
        """The node's age clock less the monotonic one, ns. Saved times bear a clock that is set."""
        return self.wall_offset - self.stream.age_offset

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def track(self, entry: cython.pointer(PendingEntry)) -> cython.int:
        """Write a pending ack down as it is now."""
        if self.delta is not None:
            self.delta.track(
                entry.sequence,
                entry.consumer_seq,
                entry.since + self.age_offset(),
                entry.deliveries,
            )
            self.schedule_save()
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def move_floor(self, was_first: cython.bint) -> cython.int:
        """Move the ack floor after an entry was dropped."""
        entry: cython.pointer(PendingEntry) = self.pending.first()
        if entry == cython.NULL:
            if self.at.next_cseq > 1:
                self.at.floor_cseq = self.at.next_cseq - 1
                self.at.floor_seq = max(self.at.floor_seq, self.at.delivered_seq)
        elif was_first:
            self.at.floor_cseq = entry.consumer_seq - 1
            self.at.floor_seq = entry.sequence - 1
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def settle(self, entry: cython.pointer(PendingEntry)) -> cython.int:
        """Nothing is awaited for this entry any more."""
        was_first: cython.bint = entry == self.pending.first()
        self.at.acked_ns = self.kernel.wall_ns()
        if self.delta is not None:
            self.delta.drop(entry.sequence)
        self.pending.drop(entry)
        self.move_floor(was_first)
        self.schedule_save()
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def exhaust(self, entry: cython.pointer(PendingEntry)) -> cython.int:
        """The message was delivered as often as it may be: it is no longer awaited, but kept."""
        sequence: cython.ulonglong = entry.sequence
        deliveries: cython.uint = entry.deliveries
        was_first: cython.bint = entry == self.pending.first()
        self.exhausted[sequence] = deliveries
        self.pending.drop(entry)
        self.move_floor(was_first)
        if self.delta is not None:
            self.delta.exhaust(sequence, deliveries)
            self.schedule_save()
        self.kernel.schedule(self)
        if self.account.has_interest(self.limit_event):
            events.max_deliveries(self, sequence, deliveries)
        return 0

    @cython.ccall
    def snapshot(self) -> bytes:
        """All progress as one delta."""
        i: cython.Py_ssize_t
        whole: Delta = Delta()
        whole.reset()
        for i in range(self.pending.head, self.pending.end):
            if self.pending.items[i].flags & ENTRY_ALIVE:
                whole.track(
                    self.pending.items[i].sequence,
                    self.pending.items[i].consumer_seq,
                    self.pending.items[i].since + self.age_offset(),
                    self.pending.items[i].deliveries,
                )
        for sequence, deliveries in self.exhausted.items():
            whole.exhaust(sequence, deliveries)
        return whole.drain(cython.address(self.at))

    @cython.ccall
    def save_whole(self) -> bytes:
        """Configuration and progress as one value for the log."""
        return state.encode(self)

    def restore(self, parts: list) -> None:
        """Take over saved progress: a snapshot and the deltas after it. Raises ValueError.

        What is ahead of the data is taken back, so that nothing new is skipped: as far as the
        sequence that the consumer was asked to begin at, if that is yet to come.
        """
        last: cython.ulonglong = self.store.last_seq
        begins: cython.ulonglong = self.config.opt_start_seq
        for part in parts:
            apply_delta(
                part, cython.address(self.at), self.pending, self.exhausted, self.age_offset()
            )
        for sequence, _, _, _ in self.pending.entries():
            if sequence > last or self.store.at(sequence) == cython.NULL:
                self.pending.pop(sequence)
        for sequence in [s for s in self.exhausted if self.store.at(s) == cython.NULL]:
            del self.exhausted[sequence]
        self.at.next_seq = min(self.at.next_seq, max(last + 1, begins))
        if self.at.next_seq == 0:
            self.at.next_seq = 1
        self.at.delivered_seq = min(self.at.delivered_seq, self.at.next_seq - 1)
        self.at.floor_seq = min(self.at.floor_seq, self.at.delivered_seq)
        self.move_floor(False)
        self.unread_known = False

    def go_on(self, delivered: tuple, floor: tuple, waiting: list, exhausted: dict) -> None:
        """Begin where another consumer was, before anything was delivered here.

        `delivered` and `floor` are pairs of stream and consumer sequence. `waiting` has what
        `waiting_entries` gives. What is ahead of the data is taken back. Raises OverflowError.
        """
        self.forget_skip()
        self.at.delivered_seq, self.at.next_seq = delivered[0], delivered[0] + 1
        self.at.next_cseq = delivered[1] + 1
        self.at.floor_seq, self.at.floor_cseq = floor
        for sequence, consumer_seq, since, deliveries in waiting:
            self.pending.add(sequence, consumer_seq, since - self.age_offset(), deliveries)
        self.exhausted.update(exhausted)
        self.restore([])

    def waiting_entries(self) -> list:
        """(sequence, consumer sequence, wall time of delivery in ns, deliveries) of every message
        that waits for its ack."""
        i: cython.Py_ssize_t
        found: list = []
        for i in range(self.pending.head, self.pending.end):
            if self.pending.items[i].flags & ENTRY_ALIVE:
                found.append(
                    (
                        self.pending.items[i].sequence,
                        self.pending.items[i].consumer_seq,
                        self.pending.items[i].since + self.age_offset(),
                        self.pending.items[i].deliveries,
                    )
                )
        return found

    @property
    def skip_resume(self) -> int:
        """End of a last-per-subject phase that was not over when the progress was saved."""
        return self.at.skip_resume

    # --- acknowledgement -------------------------------------------------------------------------

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def acknowledge(
        self,
        sequence: cython.ulonglong,
        consumer_seq: cython.ulonglong,
        deliveries: cython.longlong,
        sample: cython.bint,
    ) -> cython.int:
        """Take an ack; 1 when it may be answered, 0 when it is beyond what was delivered."""
        was_full: cython.bint = self.full()
        if self.ack_policy == ACK_NONE:
            return 0
        if sequence >= self.at.next_seq and self.ack_policy != ACK_FLOW:
            return 0
        if self.ack_policy == ACK_EXPLICIT:
            self.acknowledge_one(sequence, consumer_seq, sample)
        else:
            self.acknowledge_all(sequence, consumer_seq)
        if was_full and not self.full():
            self.kernel.schedule(self)
        return 1

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def acknowledge_one(
        self, sequence: cython.ulonglong, consumer_seq: cython.ulonglong, sample: cython.bint
    ) -> cython.int:
        """Take an ack for one message, pending or exhausted."""
        entry: cython.pointer(PendingEntry) = self.pending.find(sequence)
        if entry != cython.NULL:
            if (
                sample
                and self.sample_percent
                and self.kernel.random() % 100 < cython.cast(cython.ulonglong, self.sample_percent)
                and self.account.has_interest(self.ack_event)
            ):
                events.ack_sample(
                    self,
                    sequence,
                    entry.consumer_seq,
                    self.kernel.monotonic_ns() - entry.since,
                    entry.deliveries,
                )
            self.settle(entry)
        elif self.exhausted and sequence in self.exhausted:
            self.at.acked_ns = self.kernel.wall_ns()
            del self.exhausted[sequence]
            if self.delta is not None:
                self.delta.forgive(sequence)
            self.schedule_save()
        else:
            if consumer_seq > self.at.floor_cseq:
                self.at.acked_ns = self.kernel.wall_ns()
            return 0
        return self.stream.consumer_acked(sequence)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def acknowledge_all(
        self, sequence: cython.ulonglong, consumer_seq: cython.ulonglong
    ) -> cython.int:
        """Take an ack for everything delivered up to a message. Both numbers are the receiver's
        word: the floor goes no higher than what was delivered."""
        entry: cython.pointer(PendingEntry)
        acked: cython.ulonglong
        if consumer_seq <= self.at.floor_cseq or sequence <= self.at.floor_seq:
            return 0
        self.at.acked_ns = self.kernel.wall_ns()
        self.at.floor_cseq = min(consumer_seq, self.at.next_cseq - 1)
        self.at.floor_seq = sequence
        if self.ack_policy != ACK_FLOW:
            self.at.floor_seq = min(sequence, self.at.delivered_seq)
        if self.delta is not None:
            self.delta.floor(sequence)
        self.schedule_save()
        for key in [k for k in self.exhausted if k <= sequence] if self.exhausted else ():
            del self.exhausted[key]
            self.stream.consumer_acked(key)
        entry = self.pending.first()
        while entry != cython.NULL and entry.sequence <= sequence:
            acked = entry.sequence
            self.pending.drop(entry)
            self.stream.consumer_acked(acked)
            entry = self.pending.first()
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def refuse(
        self,
        sequence: cython.ulonglong,
        consumer_seq: cython.ulonglong,
        deliveries: cython.longlong,
        delay: object,
    ) -> cython.int:
        """Take a -NAK: deliver again, at once or as if the ack wait ended after `delay` ns: then a
        message that was delivered often enough is given up without a request for it. Written down
        is in both cases when the ack wait ends, so that a start delivers it then, too."""
        entry: cython.pointer(PendingEntry)
        now: cython.longlong
        wait: cython.longlong
        # nats-server takes the number of the next delivery, too: one from before a reset.
        if consumer_seq <= self.at.floor_cseq or consumer_seq > self.at.next_cseq:
            return 0
        entry = self.pending.find(sequence)
        if entry == cython.NULL:
            return 0
        if self.account.has_interest(self.nak_event):
            events.naked(self, sequence, consumer_seq, deliveries)
        now = self.kernel.monotonic_ns()
        if delay is None:
            entry.since = now - self.wait_of(entry.deliveries)
            self.track(entry)
            self.pending.requeue(entry)
            self.kernel.schedule(self)
            return 0
        wait = span(max(delay, 0))
        self.pending.unqueue(entry)
        entry.since = now + wait - self.wait_of(entry.deliveries)
        self.track(entry)
        self.arm(now + wait)
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def progress(self, sequence: cython.ulonglong) -> cython.int:
        """Take a +WPI: the ack wait starts anew."""
        entry: cython.pointer(PendingEntry) = self.pending.find(sequence)
        if entry != cython.NULL:
            entry.since = self.kernel.monotonic_ns()
            self.track(entry)
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def tell_terminated(
        self,
        sequence: cython.ulonglong,
        consumer_seq: cython.ulonglong,
        deliveries: cython.longlong,
        reason: bytes,
        answered: cython.bint,
    ) -> cython.int:
        """Tell that a +TERM was taken: behind its answer, where that waits."""
        event: object
        if self.account.has_interest(self.term_event):
            event = events.terminated(self, sequence, consumer_seq, deliveries, reason)
            if answered and self.unsaved is not None:
                self.replies.append((self.term_event, event))
            else:
                self.account.send(self.term_event, event)
        return 0

    # --- deadlines -------------------------------------------------------------------------------

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def wait_of(self, deliveries: cython.uint) -> cython.longlong:
        """How long to wait for the ack of the n-th delivery, in ns; 0 for ever."""
        index: cython.int
        if self.backoff_count == 0:
            return self.ack_wait
        index = cython.cast(cython.int, deliveries) - 1
        if index < 0:
            index = 0
        return self.backoff[min(index, self.backoff_count - 1)]

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def expire(self, now: cython.longlong) -> cython.longlong:
        """Queue what was not acknowledged in time; returns the next deadline, 0 without one."""
        i: cython.Py_ssize_t
        deadline: cython.longlong
        earliest: cython.longlong = 0
        entry: cython.pointer(PendingEntry)
        if self.ack_wait == 0 or self.pending.count == 0:
            return 0
        i = self.pending.head
        while i < self.pending.end and self.pending.count:
            entry = cython.address(self.pending.items[i])
            i += 1
            if entry.flags & (ENTRY_ALIVE | ENTRY_QUEUED) != ENTRY_ALIVE:
                continue
            deadline = entry.since + self.wait_of(entry.deliveries)
            if deadline > now:
                if earliest == 0 or deadline < earliest:
                    earliest = deadline
            elif self.max_deliver and entry.deliveries >= self.max_deliver:
                self.exhaust(entry)
            else:
                self.pending.requeue(entry)
        if earliest:
            earliest = max(earliest, now + min(self.pending.count * SCAN_NS, SCAN_PAUSE_NS))
        return earliest

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def requeue_all(self, now: cython.longlong) -> cython.int:
        """Deliver everything pending again: the receiver has changed."""
        i: cython.Py_ssize_t = self.pending.head
        entry: cython.pointer(PendingEntry)
        while i < self.pending.end and self.pending.count:
            entry = cython.address(self.pending.items[i])
            i += 1
            if not entry.flags & ENTRY_ALIVE:
                continue
            if self.max_deliver and entry.deliveries >= self.max_deliver:
                self.exhaust(entry)
            else:
                self.pending.requeue(entry)
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def arm(self, when: cython.longlong) -> cython.int:
        """Have `run` called at a monotonic time. Hook: the timer belongs to `Demand`."""
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def reset_to(self, sequence: cython.ulonglong) -> cython.int:
        """Start anew at a stream sequence: nothing delivered, nothing pending (ADR-60)."""
        self.forget_skip()
        self.pending.clear()
        self.exhausted.clear()
        self.at.next_seq = sequence
        self.at.delivered_seq = self.at.floor_seq = sequence - 1
        self.at.next_cseq = 1
        self.at.floor_cseq = 0
        self.at.delivered_ns = self.at.acked_ns = 0
        self.unread_known = False
        if self.delta is not None:
            self.delta.reset()
        self.schedule_save()
        self.kernel.schedule(self)
        return 0
