"""Requests that come while leaders change: none is lost, and none is done by two nodes.

Every node hears every request, and leaves it to the node that it takes for the leader. When
leaders change, nodes hear requests and of the new leader in different orders:

- The old leader may hear a request after it has heard of the new one, and the new one before it
  knew that it leads. Both leave it to the other. So who led a moment ago, or has waited for a
  leader, passes on what it leaves. The new leader takes that only when it has left its own copy of
  the same request to a node that has left it, too.
- The old leader may hear a request while it leads, and the new one when it does. So who leads since
  a moment ago asks the others whether they have done it. Who says no does not do it later, unless
  it leads in a later term.

Nodes make an account of tokens when they first hear of it. So the first request of such an account
may reach a leader that does not listen yet. So the node whose client asks passes on what a new
account asks, behind the request itself, and the leader takes it if it has not heard it. The same is
done when the leader's node starts again: it leads still, as far as others know, and hears nothing.
"""

import asyncio
import hashlib
import logging
import struct
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from headwater.edge.jetstream.account.account_js import AccountJetStream
from headwater.edge.jetstream.model.requests import Context
from headwater.hub.api.cluster import Cluster
from headwater.hub.cluster.transport import CallFailed
from headwater.hub.meta.assignment import Assignment

log = logging.getLogger("headwater.meta")

META = ""
"""Stands for the cluster's metadata where else an incarnation stands for a stream."""
RECENT_SECONDS = 3.0
"""That a node remembers that it began or ceased to lead, and which requests it has done or left."""
REMEMBERED_MAX = 20_000
"""Requests of one kind that are remembered, and leaderships; of more, the oldest are forgotten."""
UNANSWERABLE_MAX = 500
"""Requests that wait until it is known who asks. Each is looked at many times."""
HOPS_MAX = 16
"""How often one request may be passed on."""
OFFER_SECONDS = 2.0
"""That a request is kept for a node which is away: as long as an election may take."""
OFFER_AGAIN_SECONDS = 0.05
ASK_SECONDS = 0.5
"""That other nodes have to say whether they have done a request."""
DONE = b"+"
TERM_MAX = (1 << 64) - 1
"""Behind every term: who is asked does the request in none of its own."""
_TERM = struct.Struct("<Q")

class Passing(msgspec.Struct, array_like=True, frozen=True):
    """How a request came to a node."""

    by: list[int] = []
    """The nodes that have left it, and passed it on, in their order."""
    hops: int = 0
    """How often it was passed on."""


HEARD = Passing()
"""From the client, as every node hears it."""


class Copy(msgspec.Struct, array_like=True, frozen=True):
    """A request, maybe on its way from a node that led to the one that leads."""

    passing: Passing
    account: str
    subject: bytes
    reply: bytes
    headers: bytes
    payload: bytes

    @property
    def by(self) -> list[int]:
        """The nodes that have passed it on."""
        return self.passing.by

    @property
    def digest(self) -> bytes:
        """The same for all nodes; headers may tell more on some of them."""
        newest = _newest[0]
        if newest[0] is not self:
            parts = [self.account.encode(), self.subject, self.reply, self.payload]
            made = hashlib.blake2b(b"\0".join(parts), digest_size=16).digest()
            newest = _newest[0] = self, made
        return newest[1]


_newest: list[tuple[Copy | None, bytes]] = [(None, b"")]
"""The copy that was asked last, and its digest: each is asked for it several times in a row. One
pair, since nodes of one process may run in several threads."""


def copy_of(js: AccountJetStream, ctx: Context) -> Copy:
    """A request to an account's API."""
    return Copy(ctx.passing or HEARD, js.name, ctx.subject, ctx.reply, ctx.headers, ctx.payload)


def _decoded(body: memoryview) -> Copy:
    """What another node has passed on. Raises ValueError."""
    try:
        return msgspec.msgpack.decode(body, type=Copy)
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from error


Served = Callable[[bytes, bytes, bytes, bytes, Passing], None]
"""Takes subject, reply, header block and payload of a request, and how it came."""


class RecentRequests:
    """Requests of the last seconds by their digests, each with a value; the same one may be there
    several times."""

    def __init__(self) -> None:
        self._order: deque[tuple[float, bytes, list[Any]]] = deque()
        self._values: dict[bytes, deque[list[Any]]] = {}

    def __len__(self) -> int:
        return len(self._order)

    def add(self, digest: bytes, value: Any, now: float) -> None:
        """Remember one. `now` in seconds of a clock that does not go back."""
        self._expire(now, REMEMBERED_MAX - 1)
        entry = [value]
        self._order.append((now, digest, entry))
        self._values.setdefault(digest, deque()).append(entry)

    def values(self, digest: bytes, now: float) -> list[Any]:
        """The values of a request, the oldest first."""
        self._expire(now)
        return [entry[0] for entry in self._values.get(digest, ())]

    def pop(self, digest: bytes, wanted: Callable[[Any], bool], now: float) -> Any:
        """The oldest value that is wanted, which counts no more then; None for none."""
        self._expire(now)
        for entry in self._values.get(digest, ()):
            if wanted(entry[0]):
                return self._forget(digest, entry)
        return None

    def _expire(self, now: float, most: int = REMEMBERED_MAX) -> None:
        order = self._order
        while order and (order[0][0] < now - RECENT_SECONDS or len(order) > most):
            _, digest, entry = order.popleft()
            if entry:
                self._forget(digest, entry)

    def _forget(self, digest: bytes, entry: list[Any]) -> Any:
        found = self._values[digest]
        found.remove(entry)
        if not found:
            del self._values[digest]
        return entry.pop()


class Turns:
    """When something happened last to the metadata or a stream, in the last seconds."""

    def __init__(self) -> None:
        self._at: dict[str, float] = {}

    def record(self, key: str, now: float) -> None:
        """It happens now."""
        self._at.pop(key, None)
        self._at[key] = now
        while len(self._at) > REMEMBERED_MAX:
            del self._at[next(iter(self._at))]

    def is_recent(self, key: str, now: float) -> bool:
        """Whether it has happened a moment ago."""
        at = self._at.get(key)
        if at is None:
            return False
        if now - at < RECENT_SECONDS:
            return True
        del self._at[key]
        return False


class Relay:
    """Decides what becomes of requests while leaders change. A *key* is `META`, or a stream's
    incarnation."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.left = RecentRequests()
        """What was left to others; the value is the node."""
        self.done = RecentRequests()
        """What was done here; the values are the nodes that have heard so."""
        self.refused = RecentRequests()
        """What a later leader asked for, and was not done here; the value is node and term."""
        self.offered = RecentRequests()
        """What was passed on to this node, which had not left it; the value is a `Passing`."""
        self.system: Served | None = None
        """Takes requests of the system account that concern the cluster."""
        self.heard = RecentRequests()
        """What this node was asked, whoever leads."""
        self._unanswerable = 0
        """Requests that wait here until it is known who asks."""
        self.early = RecentRequests()
        """Served as not heard, before they came from their clients."""
        self._accounts = Turns()
        """When accounts asked this node first."""
        self._known_accounts: set[str] = set()
        self._came = Turns()
        """When routes to other nodes came up, by number."""
        self._began = Turns()
        self._ended = Turns()
        self._leads_meta = False
        cluster.group.watchers.append(self._meta_changed)
        cluster.transport.route_watchers.append(self._route_up)
        cluster.transport.handlers[b"relay"] = self._arrived
        cluster.transport.handlers[b"unheard"] = self._unheard
        cluster.transport.methods["done"] = self._was_done

    def _now(self) -> float:
        now: float = self.cluster.jetstream.kernel.loop.time()
        return now

    # -- who leads ------------------------------------------------------------------

    def _meta_changed(self) -> None:
        leads = self.cluster.group.leader == self.cluster.number
        if self._leads_meta != leads:
            (self._began if leads else self._ended).record(META, self._now())
        self._leads_meta = leads

    def elected(self, assignment: Assignment) -> None:
        """A stream is led here from now on."""
        self._began.record(assignment.incarnation, self._now())

    def deposed(self, assignment: Assignment) -> None:
        """A stream is led here no more."""
        self._ended.record(assignment.incarnation, self._now())

    def _led_lately(self, key: str) -> bool:
        # The group may know of another leader, and tell it only at the end of a round.
        return (key == META and self._leads_meta) or self._ended.is_recent(key, self._now())

    # -- what is done here ------------------------------------------------------------

    def is_doubtful(self, copy: Copy, key: str) -> bool:
        """Whether another node may have done a request: this one leads since a moment ago, or it
        was passed on."""
        # The group may lead before it tells that, at the end of a round.
        fresh = key == META and not self._leads_meta
        return bool(copy.by) or fresh or self._began.is_recent(key, self._now())

    async def is_done(self, copy: Copy, term: int) -> bool:
        """Whether another node says that it has done a request. One that has not leaves it to this
        node, which leads in `term`."""
        transport, members = self.cluster.transport, self.cluster.group.members
        question = _TERM.pack(term) + copy.digest
        others = [number for number in members if number in transport.conns]
        asked = (transport.call(number, "done", question, ASK_SECONDS) for number in others)
        return DONE in await asyncio.gather(*asked, return_exceptions=True)

    async def was_done_by(self, number: int, copy: Copy) -> bool:
        """Whether a node that is about to stop has done a request. If not, it does not do it."""
        try:
            question = _TERM.pack(TERM_MAX) + copy.digest
            return await self.cluster.transport.call(number, "done", question, ASK_SECONDS) == DONE
        except CallFailed:
            return False

    async def unless_done(self, copy: Copy, term: int, work: Callable[[], Any]) -> Any:
        """What `work` returns; None when another node has done the request."""
        if await self.is_done(copy, term):
            return None
        answer = work()
        return await answer if isinstance(answer, Awaitable) else answer

    def _was_done(self, sender: int, question: bytes) -> bytes:
        """Another node asks about a request that it is to do."""
        (term,), digest, now = _TERM.unpack_from(question), question[_TERM.size :], self._now()
        for told in self.done.values(digest, now):
            if sender not in told:
                told.add(sender)
                return DONE
        self.refused.add(digest, (sender, term), now)
        return b""

    def may_do(self, copy: Copy, key: str, term: int) -> bool:
        """Whether this node, which leads in `term`, does a request now. False when a later leader
        was told that it would not: it is left to that one."""
        digest, now = copy.digest, self._now()
        later = self.refused.pop(digest, lambda found: bool(found[1] > term), now)
        if later is not None:
            self.leave(copy, key, later[0], waited=True)
            return False
        self.done.add(digest, set(), now)
        return True

    # -- what is left to another node -------------------------------------------------

    def leave(self, copy: Copy, key: str, to: int, waited: bool) -> None:
        """This node does nothing about a request: node `to` leads what it concerns. `waited`:
        nobody was known to lead it when it came."""
        digest, now = copy.digest, self._now()
        self.left.add(digest, to, now)
        offered = self.offered.pop(digest, lambda by: True, now)
        if offered is not None:
            both = Passing([*copy.by, *offered.by], max(copy.passing.hops, offered.hops))
            copy = msgspec.structs.replace(copy, passing=both)
        if copy.by or waited or self._led_lately(key):
            self._pass_on(copy, to)

    def left_by_client(self, copy: Copy, to: int) -> None:
        """A client of this node has asked, and the request was left to node `to`, which leads. The
        node may not know the client's account yet, or start again just now."""
        new = self._is_new(copy.account)
        if not copy.by and (new or self._misses_some(to)):
            # The request itself goes first, in this turn, to all nodes that listen.
            until = self._now() + OFFER_SECONDS
            self.cluster.jetstream.kernel.loop.call_soon(self._offer, copy, to, until)

    def left_by_meta(self, copy: Copy, to: int) -> None:
        """The leader of the metadata leaves to node `to` what another node's client asked. That
        node leaves it to this one if it has yet to hear that `to` is back, and then `to` hears
        nothing of it."""
        if not copy.by and self._misses_some(to):
            until = self._now() + OFFER_SECONDS
            self.cluster.jetstream.kernel.loop.call_soon(self._offer, copy, to, until)

    def _route_up(self, number: int, conn: object) -> None:
        self._came.record(str(number), self._now())

    def _misses_some(self, number: int) -> bool:
        """Whether a node may not have heard what was asked a moment ago."""
        away = number not in self.cluster.transport.conns
        return away or self._came.is_recent(str(number), self._now())

    def _is_new(self, account: str) -> bool:
        """Whether an account began to ask here a moment ago, so that others may not know it."""
        now = self._now()
        if account not in self._known_accounts:
            self._known_accounts &= self.cluster.jetstream.accounts.keys()
            self._known_accounts.add(account)
            self._accounts.record(account, now)
        return self._accounts.is_recent(account, now)

    def _offer(self, copy: Copy, to: int, until: float) -> None:
        """Send a request behind all that the account said: its interest, and the request. Tried
        again while there is no route, `until` then, on the loop's clock."""
        passing = Passing([self.cluster.number], copy.passing.hops + 1)
        body = msgspec.msgpack.encode(msgspec.structs.replace(copy, passing=passing))
        sent = self.cluster.transport.send_beside(to, copy.account, b"unheard", body)
        if not sent and self._now() < until:
            loop = self.cluster.jetstream.kernel.loop
            loop.call_later(OFFER_AGAIN_SECONDS, self._offer, copy, to, until)

    def _unheard(self, number: int, body: memoryview) -> None:
        """A node has left a request to this one, which may not have heard it."""
        self._serve_unheard(_decoded(body), self._now() + OFFER_SECONDS)

    def _serve_unheard(self, copy: Copy, until: float) -> None:
        """Serve a request unless it was heard. Who asks may be at a third node, of which nothing
        has come yet: an answer would reach nobody, so it waits, `until` then."""
        router, now = self._router(copy), self._now()
        waits = router is not None and router.is_in_line(copy.subject, copy.reply)
        if waits or self.heard.values(copy.digest, now):
            return
        if now < until and self._unanswerable < UNANSWERABLE_MAX and not self._is_known(copy):
            self._unanswerable += 1
            loop = self.cluster.jetstream.kernel.loop
            loop.call_later(OFFER_AGAIN_SECONDS, self._look_again, copy, until)
            return
        self.early.add(copy.digest, True, now)
        self._serve_passed(copy)

    def _look_again(self, copy: Copy, until: float) -> None:
        self._unanswerable -= 1
        self._serve_unheard(copy, until)

    def _is_known(self, copy: Copy) -> bool:
        """Whether somebody would hear the answer to a request, or none is wanted."""
        js = self.cluster.jetstream.accounts.get(copy.account)
        return js is None or not copy.reply or bool(js.account.has_interest(copy.reply))

    def came_early(self, copy: Copy) -> bool:
        """Whether a request that comes from its client was served before, as one that this node
        had not heard. Asked once for each."""
        return not copy.by and bool(self.early.pop(copy.digest, lambda _: True, self._now()))

    def hear(self, copy: Copy) -> None:
        """This node was asked."""
        self.heard.add(copy.digest, True, self._now())

    def _pass_on(self, copy: Copy, to: int) -> None:
        own, hops = self.cluster.number, copy.passing.hops
        if to and to != own and hops < HOPS_MAX:
            passing = Passing(list(dict.fromkeys([*copy.by, own])), hops + 1)
            passed = msgspec.structs.replace(copy, passing=passing)
            self.cluster.transport.send(to, b"relay", msgspec.msgpack.encode(passed))

    def _arrived(self, number: int, body: memoryview) -> None:
        """A node that led has left a request to this one."""
        copy = _decoded(body)
        digest, now = copy.digest, self._now()
        if self.left.pop(digest, lambda to: to in copy.by, now) is not None:
            self._serve_passed(copy)
        elif found := self.left.values(digest, now):
            self._pass_on(copy, found[-1])
        else:
            self.offered.add(digest, copy.passing, now)

    def _router(self, copy: Copy) -> Any:
        """What serves requests of an account here; None where it has none."""
        js = self.cluster.jetstream.accounts.get(copy.account)
        return js.router if js is not None else None

    def _serve_passed(self, copy: Copy) -> None:
        log.debug("a request on %s is taken over from others", copy.subject)
        request = (copy.subject, copy.reply, copy.headers, copy.payload)
        router = self._router(copy)
        if router is not None:
            router.serve_routed((*request, None, copy.passing))
        elif self.system is not None and copy.account == self.cluster.system_account:
            self.system(*request, copy.passing)
