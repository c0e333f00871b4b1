"""Pull requests (ADR-13) and the queue in which they wait for messages.

The queue is first in, first out: a request that got a message goes to the end, so that concurrent
pulls take turns; under the `prioritized` policy (ADR-42) it goes to the end of its own priority.
"""

import cython
from cython.cimports.cpython.bytes import PyBytes_FromStringAndSize
from cython.cimports.headwater.edge.broker.account import Account
from cython.cimports.headwater.edge.kernel.kernel import Sink
from cython.cimports.headwater.edge.subjects.trie import Match
from cython.cimports.headwater.edge.wire.numbers import parse_number

from headwater.edge.jetstream.model.bodies import decode_pull
from headwater.edge.jetstream.model.bounds import span

# Requests without a group come after all that have a priority.
UNGROUPED = cython.declare(cython.int, 1 << 30)
# Twice this many nanoseconds are no 64-bit number any more.
WRAPS_NS = 1 << 62
SPACES = b" \t\r\n\v\f"


@cython.cfunc
@cython.exceptval(-1, check=False)
def match_inside(match: Match) -> cython.bint:
    """Whether the node itself is among the receivers, so that a delivery may reach a store."""
    for item in match.plain:
        if cython.cast(Sink, item).owner is None:
            return True
    for group in match.queues:
        for item in group:
            if cython.cast(Sink, item).owner is None:
                return True
    return False


@cython.cclass
class PullRequest:
    """One request for messages; where it comes from is its inbox.

    Whoever asks for none or fewer gets one.
    """

    def __init__(self, batch: int = 1):
        self.batch = batch
        self.group = ""
        self.pin = ""
        self.priority = UNGROUPED

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def wanted(self, account: Account) -> cython.bint:
        """Whether somebody still listens on the inbox; keeps `match` up to date."""
        if self.match is None or self.generation != account.generation:
            self.match = account.match(self.reply, len(self.reply))
            self.generation = account.generation
            self.inside = match_inside(self.match)
        return bool(self.match.plain) or bool(self.match.queues)


@cython.cfunc
def parse_request(
    body: cython.p_const_uchar, n: cython.Py_ssize_t, now: cython.longlong
) -> PullRequest:
    """A request from its body: empty, a number, or JSON. Raises ValueError for the client to see.

    `now` is the monotonic time that `expires` counts from.
    """
    request: PullRequest
    number: cython.longlong
    sign: cython.Py_ssize_t
    while n > 0 and (body[0] == 32 or 9 <= body[0] <= 13):
        body += 1
        n -= 1
    while n > 0 and (body[n - 1] == 32 or 9 <= body[n - 1] <= 13):
        n -= 1
    if n == 0:
        return PullRequest()
    if body[0] != 123:
        sign = 1 if body[0] == 43 or body[0] == 45 else 0
        number = parse_number(body + sign, n - sign)
        if number < 0:
            return PullRequest()
        return PullRequest(-number if body[0] == 45 else number)
    found = decode_pull(PyBytes_FromStringAndSize(cython.cast(cython.p_char, body), n))
    request = PullRequest(found.batch)
    request.max_bytes = found.max_bytes
    request.no_wait = found.no_wait
    request.expires = now + span(found.expires) if found.expires else 0
    if found.idle_heartbeat > 0:
        # As nats-server has it: twice 2^62 ns and more is below zero there.
        if found.idle_heartbeat < WRAPS_NS and found.idle_heartbeat * 2 > found.expires:
            raise ValueError("heartbeat value too large")
        request.heartbeat = span(found.idle_heartbeat)
        request.heartbeat_at = now + request.heartbeat
    request.grouped = True
    request.group = found.group
    request.pin = found.id
    request.min_pending = found.min_pending
    request.min_ack_pending = found.min_ack_pending
    request.priority = min(max(found.priority, -1), UNGROUPED)
    request.special = bool(found.id or found.min_pending or found.min_ack_pending or found.priority)
    return request


@cython.cclass
class PullQueue:
    """Requests that wait, at most `limit` (the consumer's `max_waiting`) of them."""

    def __init__(self, limit: int, prioritized: bool):
        self.limit = limit
        self.prioritized = prioritized

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def add(self, request: PullRequest) -> cython.int:
        """Queue a request; 0 when the queue is full."""
        if self.count >= self.limit:
            return 0
        self.put_back(request)
        return 1

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def put_back(self, request: PullRequest) -> cython.int:
        """Queue a request, however many there are."""
        self.insert(request)
        self.count += 1
        if request.no_wait:
            self.no_waits += 1
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def insert(self, request: PullRequest) -> cython.int:
        """Link a request in behind everything of its priority."""
        before: PullRequest = self.tail
        at: PullRequest
        if self.prioritized:
            before = None
            at = self.head
            while at is not None and at.priority <= request.priority:
                before = at
                at = at.next
        if before is None:
            request.next = self.head
            self.head = request
        else:
            request.next = before.next
            before.next = request
        if request.next is None:
            self.tail = request
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def rotate(self) -> cython.int:
        """Move the head behind the others."""
        request: PullRequest = self.head
        if self.count < 2:
            return 0
        self.head = request.next
        request.next = None
        self.insert(request)
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def served(self, request: PullRequest, turned: cython.bint) -> cython.int:
        """Count a message for a request, which goes behind the others unless it has `turned`; 1
        when that was its last and it has left the queue."""
        request.delivered += 1
        request.batch -= 1
        if request.batch <= 0:
            self.discard(request)
            return 1
        if self.head is request and not turned:
            self.rotate()
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def discard(self, request: PullRequest) -> cython.int:
        """Unlink a request wherever it is, if it is still there."""
        before: PullRequest = None
        at: PullRequest = self.head
        while at is not None and at is not request:
            before = at
            at = at.next
        if at is None:
            return 0
        return self.remove(before, request)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def remove(self, before: PullRequest, request: PullRequest) -> cython.int:
        """Unlink a request; `before` is the one ahead of it, None for the head."""
        if before is None:
            self.head = request.next
        else:
            before.next = request.next
        if self.tail is request:
            self.tail = before
        request.next = None
        self.count -= 1
        if request.no_wait:
            self.no_waits -= 1
        return 0

    def requests(self) -> list:
        """All waiting requests, the next one to be served first."""
        found: list = []
        at: PullRequest = self.head
        while at is not None:
            found.append(at)
            at = at.next
        return found

    def clear(self) -> None:
        """Forget all that waits; nobody is told."""
        self.head = self.tail = None
        self.count = self.no_waits = 0
