"""Who wants a consumer's messages: pull requests, a listening receiver, and their deadlines.

`Demand` keeps the requests and the receiver's interest, answers with statuses, and wakes the
consumer when a deadline is due. Which message goes out next is the consumer's business.
"""

import cython
from cython.cimports.cpython.bytes import PyBytes_FromStringAndSize
from cython.cimports.headwater.edge.jetstream.consumer.pull import (
    PullRequest,
    match_inside,
    parse_request,
)
from cython.cimports.headwater.edge.jetstream.progress.consumer import (
    ACK_FLOW,
    Consumer,
)
from cython.cimports.headwater.edge.kernel.kernel import Msg, Sink
from cython.cimports.headwater.edge.subjects.trie import Match

from headwater.edge.jetstream.config import pull_rules
from headwater.edge.jetstream.progress import consumer_events as events
from headwater.edge.jetstream.progress import consumer_setup as setup

# A full queue of pull requests is searched for dead ones at most this often.
CHECK_NS = cython.declare(cython.longlong, 1000000000)
TICK_NS = cython.declare(cython.longlong, 1000000)
# A message that is chosen in a replay waits for its request so long beyond its time, and no longer.
HELD_OVER_NS = cython.declare(cython.longlong, 1000000000)
# A request counts for at most so many messages where those of all requests are added up.
BATCH_COUNTED = cython.declare(cython.longlong, 1 << 40)
ENDLESS = cython.declare(cython.longlong, (1 << 63) - 1)


@cython.cfunc
@cython.exceptval(check=False)
def sooner(a: cython.longlong, b: cython.longlong) -> cython.longlong:
    """The earlier of two deadlines; 0 is none."""
    if a == 0 or (b != 0 and b < a):
        return b
    return a


@cython.cclass
class Demand(Consumer):
    """The receivers of one consumer, as far as they are known."""

    def __cinit__(self, *args, **kwargs):
        self.pin = ""

    # --- what receivers say -----------------------------------------------------------------------

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def touch(self) -> cython.int:
        """Remember that the consumer is in use."""
        self.active_ns = self.kernel.monotonic_ns()
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def answer(self, reply: cython.p_const_uchar, n: cython.Py_ssize_t) -> cython.int:
        """Answer an ack, as soon as what it changed is as safe as the stream's durability says."""
        subject: bytes = PyBytes_FromStringAndSize(cython.cast(cython.p_char, reply), n)
        if self.unsaved is None:
            self.account.send(subject, b"")
        else:
            self.replies.append(subject)
            self.schedule_save()
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def level_refused(
        self,
        block: cython.p_const_uchar,
        n: cython.Py_ssize_t,
        reply: cython.p_const_uchar,
        reply_len: cython.Py_ssize_t,
    ) -> cython.bint:
        """Refuse a pull that asks for a newer API level (ADR-44); whether that was so."""
        headers: bytes = PyBytes_FromStringAndSize(cython.cast(cython.p_char, block), n)
        if not pull_rules.level_too_high(headers):
            return False
        self.status(
            PyBytes_FromStringAndSize(cython.cast(cython.p_char, reply), reply_len),
            b"412 Required Api Level",
        )
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def pull(
        self,
        reply: cython.p_const_uchar,
        reply_len: cython.Py_ssize_t,
        body: cython.p_const_uchar,
        n: cython.Py_ssize_t,
    ) -> cython.int:
        """Take a pull request."""
        request: PullRequest
        now: cython.longlong = self.kernel.monotonic_ns()
        inbox: bytes = PyBytes_FromStringAndSize(cython.cast(cython.p_char, reply), reply_len)
        available: cython.longlong
        if self.queue is None:
            return self.status(inbox, b"409 Consumer is push based")
        try:
            request = parse_request(body, n, now)
        except ValueError as error:
            reason = "".join([c if c.isprintable() else " " for c in str(error)])
            return self.status(inbox, b"400 Bad Request - " + reason.encode("utf-8", "replace"))
        request.reply = inbox
        if self.ruled or request.special:
            refusal = pull_rules.refusal(self, request, now)
            if refusal is not None:
                return self.status(inbox, refusal)
        if self.pin and request.pin == self.pin:
            self.pin_until = now + self.pin_timeout
        if self.queue.count >= self.queue.limit and now - self.checked_ns > CHECK_NS:
            self.tend_requests(now, False)
        if request.no_wait:
            available = self.count_unread() + self.pending.queued
            if self.held is not None:
                available -= 1
            if available == 0 and request.expires == 0:
                self.touch()
                return self.status(inbox, b"404 No Messages")
            if available > 0 and self.queue.count and available < self.pending_batch():
                self.touch()
                return self.status(inbox, b"408 Requests Pending")
            if self.paused_until and request.expires == 0:
                self.touch()
                return self.status(inbox, b"404 No Messages")
        if not self.queue.add(request):
            # A client with a heartbeat would ask again at once; let it miss the beats instead.
            return 0 if request.heartbeat else self.status(inbox, b"409 Exceeded MaxWaiting")
        if not request.wanted(self.account):
            # It takes no place of one that somebody listens for: a full queue is looked through.
            self.checked_ns = now - 2 * CHECK_NS
        self.active_ns = now
        if request.expires or request.heartbeat_at:
            self.arm(sooner(request.expires, request.heartbeat_at))
        return self.kernel.schedule(self)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def pending_batch(self) -> cython.longlong:
        """Messages that the requests which are alive still want."""
        total: cython.longlong = 0
        number: cython.longlong
        self.tend_requests(self.kernel.monotonic_ns(), False)
        for request in self.queue.requests():
            number = cython.cast(PullRequest, request).batch
            total += max(-BATCH_COUNTED, min(number, BATCH_COUNTED))
        if self.held is not None and not self.held_last:
            total -= 1
        return total if total >= 0 else ENDLESS

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def flow_confirmed(self, m: cython.pointer(Msg)) -> cython.int:
        """Take the answer to a flow control request."""
        if self.flow is None or not self.flow.confirmed(
            m.subject, m.subject_len, self.kernel.monotonic_ns()
        ):
            return 0
        if self.flow.wants():
            self.ask_flow()
        if self.ack_policy == ACK_FLOW and m.header_len:
            last = pull_rules.last_received(
                PyBytes_FromStringAndSize(cython.cast(cython.p_char, m.body), m.header_len)
            )
            if last is not None:
                self.acknowledge(last[0], last[1], 1, False)
        return self.kernel.schedule(self)

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def interested(self) -> cython.bint:
        """See whether somebody listens on the deliver subject; called when interest changed."""
        match: Match
        found: cython.bint = False
        if self.deleted or self.deliver_subject is None:
            return False
        match = self.match = self.account.match(self.deliver_subject, len(self.deliver_subject))
        self.generation = self.account.generation
        self.inside = match_inside(match)
        if self.deliver_group is None:
            found = self.listens(match.plain)
        else:
            for group in match.queues:
                if cython.cast(Sink, group[0]).queue == self.deliver_group:
                    found = found or self.listens(group)
        if found != self.active:
            self.active = found
            self.active_ns = self.kernel.monotonic_ns()
            if found:
                self.kernel.schedule(self)
            elif self.threshold:
                self.arm(self.active_ns + self.threshold)
        return found

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def listens(self, sinks: tuple) -> cython.bint:
        """Whether one of `sinks` wants this deliver subject itself. As with nats-server, who wants
        it among others does not count: a monitor on `>` starts no consumer."""
        for item in sinks:
            if cython.cast(Sink, item).subject == self.deliver_subject:
                return True
            # A leaf link's peer may have asked for it, and something wider is kept in its place.
            if cython.cast(Sink, item).remote and getattr(item, "stands_for_others", False):
                return True
        return False

    @cython.cfunc
    @cython.exceptval(check=False)
    def is_urgent(self) -> cython.bint:
        """Whether deliveries and statuses go ahead of others that wait for a link."""
        return self.urgent or self.stream.urgent or (self.flow is not None and self.flow.fresh)

    # --- statuses ---------------------------------------------------------------------------------

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def status(self, reply: bytes, text: bytes) -> cython.int:
        """Send a message that has only a status line."""
        self.kernel.urgent = self.is_urgent()
        self.account.send(reply, b"", b"", b"NATS/1.0 " + text + b"\r\n\r\n")
        self.kernel.urgent = False
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def status_pending(self, request: PullRequest, text: bytes) -> cython.int:
        """Send a status that ends a request, with what was left of it."""
        headers: bytes = b"%b\r\nNats-Pending-Messages: %d\r\nNats-Pending-Bytes: %d" % (
            text,
            request.batch,
            request.max_bytes,
        )
        return self.status(request.reply, headers)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def idle_heartbeat(self, reply: bytes) -> cython.int:
        """Say that the consumer is alive and how far it is."""
        headers: bytes = b"100 Idle Heartbeat\r\nNats-Last-Consumer: %d\r\nNats-Last-Stream: %d" % (
            self.at.next_cseq - 1,
            self.at.next_seq - 1 if self.skip_at >= self.skip_len else self.at.delivered_seq,
        )
        if self.flow is not None and self.flow.token is not None:
            headers += b"\r\nNats-Consumer-Stalled: " + self.flow.token
        return self.status(reply, headers)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def ask_flow(self) -> cython.int:
        """Ask the receiver to confirm what it got."""
        token: bytes = b"$JS.FC.%b.%b.%b" % (
            self.stream.name_bytes,
            self.name_bytes,
            pull_rules.flow_suffix(self.kernel.random()),
        )
        self.flow.ask(token, self.kernel.monotonic_ns())
        self.kernel.urgent = self.is_urgent()
        self.account.send(
            self.deliver_subject, b"", token, b"NATS/1.0 100 FlowControl Request\r\n\r\n"
        )
        self.kernel.urgent = False
        return 0

    # --- pull requests ----------------------------------------------------------------------------

    @cython.cfunc
    def next_request(
        self, size: cython.Py_ssize_t, now: cython.longlong, unread: cython.ulonglong
    ) -> PullRequest:
        """The request that gets a message of `size` bytes, now the head of the queue; or None.
        `unread` messages were never delivered, this one not counted."""
        request: PullRequest
        passed: cython.Py_ssize_t = 0
        verdict: cython.int
        while self.held is not None or self.queue.head is not None:
            request = self.queue.head if self.held is None else self.held
            if request.expires and now >= request.expires and request is not self.held:
                self.status_pending(request, b"408 Request Timeout")
            elif request.wanted(self.account):
                verdict = self.admits(request, size, unread)
                if verdict == ADMIT:
                    return request
                if verdict == WAIT:
                    if self.held is None:
                        self.queue.rotate()
                    else:
                        self.let_go()
                    passed += 1
                    if passed >= self.queue.count:
                        return None
                    continue
            self.held = None
            self.queue.discard(request)
        return None

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def hold(self, until: cython.longlong, now: cython.longlong) -> cython.bint:
        """Keep the next message, which goes at `until`, for the first request that wants it; False
        when none does. As with nats-server, it has had its turn, and no request ends before. One
        that wants no more leaves the queue, and takes no place there."""
        request: PullRequest
        while self.held is None and self.queue.head is not None:
            request = self.queue.head
            if request.expires and now >= request.expires:
                self.status_pending(request, b"408 Request Timeout")
            elif request.wanted(self.account):
                self.held = request
                self.held_until = until + HELD_OVER_NS
                self.held_last = request.batch <= 1
                if not self.held_last:
                    self.queue.rotate()
                    break
            self.queue.discard(request)
        return self.held is not None

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def let_go(self) -> cython.int:
        """Keep nothing for a request any more; one that has left the queue is back in it."""
        request: PullRequest = self.held
        self.held = None
        if self.held_last:
            self.queue.put_back(request)
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def admits(
        self, request: PullRequest, size: cython.Py_ssize_t, unread: cython.ulonglong
    ) -> cython.int:
        """ADMIT, or WAIT for another message, or OVER: the request was told that it has ended."""
        claimed: cython.bint = False
        if self.policy == POLICY_PINNED:
            if self.pin and request.pin == "":
                return WAIT
            if self.pin != request.pin:
                self.status_pending(request, b"423 Nats-Wrong-Pin-Id")
                return OVER
            if not self.pin and request.group:
                setup.pin_client(self, request)
                claimed = True
        elif self.policy == POLICY_OVERFLOW and self.overflow_waits(request, unread):
            return WAIT
        if request.max_bytes > 0:
            if size > request.max_bytes:
                self.status_pending(request, b"409 Message Size Exceeds MaxBytes")
                if claimed:
                    self.set_pin("", 0)
                return OVER
            request.max_bytes -= size
            if request.max_bytes == 0:
                request.batch = 1
        return ADMIT

    def set_pin(self, pin: str, wall: int) -> None:
        """Pin a client, or nobody with `pin` empty."""
        self.pin = pin
        self.pinned_ns = wall
        if pin:
            self.pin_until = self.kernel.monotonic_ns() + self.pin_timeout
            self.arm(self.pin_until)
        else:
            self.kernel.schedule(self)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def overflow_waits(self, request: PullRequest, unread: cython.ulonglong) -> cython.bint:
        """Whether a request of the overflow policy is not to be served yet. The message counts as
        one that is not delivered, also when it is sent again: as with nats-server."""
        if not request.grouped or (request.min_pending <= 0 and request.min_ack_pending <= 0):
            return False
        if 0 < request.min_pending <= cython.cast(cython.longlong, unread) + 1:
            return False
        return not (request.min_ack_pending > 0 and request.min_ack_pending <= self.pending.count)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def at_end(self, now: cython.longlong) -> cython.int:
        """All that is stored was delivered: requests that do not wait are over."""
        if self.skip_at >= self.skip_len and self.at.skip_resume:
            self.forget_skip()
            self.schedule_save()
        if self.queue is not None and self.queue.no_waits:
            self.tend_requests(now, True)
        if self.flow is not None and self.flow.settles(now):
            self.ask_flow()
        return 0

    # --- deadlines --------------------------------------------------------------------------------

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def arm(self, when: cython.longlong) -> cython.int:
        """Have `run` called at a monotonic time, if nothing calls it before; 0 is never."""
        now: cython.longlong
        if when == 0 or self.deleted or (self.timer_at and self.timer_at <= when):
            return 0
        if self.timer is not None:
            self.timer.cancel()
        now = self.kernel.monotonic_ns()
        self.timer_at = when
        self.timer = self.kernel.loop.call_later(max(when - now, TICK_NS) / 1e9, self.on_timer)
        return 0

    def look_again(self) -> None:
        """The wall clock was set, and the stream's age offset with it: what is saved before the
        next run bears right times. What waits for a time of day may be due."""
        self.wall_offset = self.kernel.wall_ns() - self.kernel.monotonic_ns()
        if self.paused_until:
            self.due = True
            self.kernel.schedule(self)

    def on_timer(self) -> None:
        """A deadline is due."""
        self.timer = None
        self.timer_at = 0
        self.due = True
        self.kernel.schedule(self)

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def tend(self, now: cython.longlong) -> cython.longlong:
        """Do everything that is due; returns when to look again, 0 for never."""
        wall: cython.longlong = now + self.wall_offset
        again: cython.longlong = 0
        over: cython.bint
        if self.paused_until:
            if wall >= self.paused_until:
                self.paused_until = 0
                events.paused(self)
            else:
                again = now + (self.paused_until - wall)
        again = sooner(again, self.expire(now))
        if self.held is not None and (now >= self.held_until or self.paused_until):
            self.let_go()
        if self.held is not None:
            again = sooner(again, self.held_until)
        elif self.queue is not None:
            # What can be delivered is, right behind this: who does not wait is ended here by a
            # pause, and by the next deadline of any request where acks are awaited.
            over = self.paused_until != 0 or self.request_due(now)
            again = sooner(again, self.tend_requests(now, over))
        else:
            again = sooner(again, self.tend_push(now))
        if self.pin:
            if now >= self.pin_until:
                setup.unpin_client(self, "timeout")
            else:
                again = sooner(again, self.pin_until)
        if self.threshold and not self.active:
            again = sooner(again, self.tend_idle(now))
        return again

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def request_due(self, now: cython.longlong) -> cython.int:
        """Whether there are requests that do not wait, and the end or the heartbeat of any request
        is due."""
        request: PullRequest = self.queue.head if self.queue.no_waits else None
        while request is not None:
            if request.expires and now >= request.expires:
                return 1
            if request.heartbeat and now >= request.heartbeat_at:
                return 1
            request = request.next
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def tend_requests(self, now: cython.longlong, end: cython.bint) -> cython.longlong:
        """Drop requests that are over; `end` says that nothing more is to be delivered now.

        Returns the next expiry or heartbeat.
        """
        again: cython.longlong = 0
        before: PullRequest = None
        following: PullRequest
        request: PullRequest = self.queue.head
        over: cython.bint
        self.checked_ns = now
        while request is not None:
            following = request.next
            over = True
            if request.expires and now >= request.expires and request is not self.held:
                self.status_pending(request, b"408 Request Timeout")
            elif end and request.no_wait and (request.expires == 0 or request.delivered > 0):
                self.status(request.reply, b"404 No Messages")
            else:
                over = not request.wanted(self.account)
            if over:
                if request is self.held:
                    self.held = None
                self.queue.remove(before, request)
            else:
                if request.heartbeat:
                    if now >= request.heartbeat_at:
                        self.idle_heartbeat(request.reply)
                        request.heartbeat_at = now + request.heartbeat
                    again = sooner(again, request.heartbeat_at)
                again = sooner(again, request.expires)
                before = request
            request = following
        return again

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def tend_push(self, now: cython.longlong) -> cython.longlong:
        """Beat for the receiver, and see whether it is there; returns the next beat."""
        if not self.active and self.match is not None:
            self.interested()
        if not self.heartbeat:
            return 0
        if now >= self.sent_ns + self.heartbeat:
            if self.active:
                self.idle_heartbeat(self.deliver_subject)
                if self.flow is not None and (
                    self.flow.settles(now)
                    or (
                        self.ack_policy == ACK_FLOW
                        and self.pending.count
                        and self.flow.token is None
                    )
                ):
                    self.ask_flow()
            self.sent_ns = now
        return self.sent_ns + self.heartbeat

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def tend_idle(self, now: cython.longlong) -> cython.longlong:
        """Delete the consumer when nobody has used it for too long; returns when that is due.

        Somebody may still work on what was pulled: the wait for the acks counts as use.
        """
        i: cython.Py_ssize_t
        end: cython.longlong = self.active_ns + self.threshold
        deadline: cython.longlong
        if self.queue is not None:
            if self.queue.head is not None:
                return max(end, now + self.threshold)
            if end <= now:
                for i in range(self.pending.head, self.pending.end):
                    if self.pending.items[i].flags == 0:
                        continue
                    deadline = self.pending.items[i].since + self.threshold
                    deadline += self.wait_of(self.pending.items[i].deliveries)
                    end = max(end, deadline)
        if end > now:
            return end
        self.wiring.expire(self)
        return 0
