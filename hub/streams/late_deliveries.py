"""What a leader handed out before it was replaced, and what arrives when another node leads.

A line may keep messages for seconds: the node at its end is paused, or its words are lost. By then
another node leads the stream, and may have handed out the same messages to others, who have
acknowledged them. So what comes late goes to the new leader, which knows by the consumer's progress
whether it counts. What the old leader wrote down before it was replaced goes on to the client, as
long as it waits for its ack. The rest was never delivered, as far as the group knows. A consumer
may not deliver a second time what counts, so a leader that says nothing is asked again.

A leader that leaves in order says so behind what it has handed out: nothing of that is late. Of one
that does not, a fence on its routes says when all has come.

A leader that was not replaced is asked in the same way about what may have been on its way for
long (`stale_routes`): since then the message may have gone to somebody else, who acknowledged it.
"""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from headwater.edge.jetstream.node.node import NodeJetStream
from headwater.edge.jetstream.stream.stream import Stream
from headwater.hub.cluster.peers import number_of_name
from headwater.hub.cluster.transport import CallFailed, Transport
from headwater.hub.routes.route_conn import RouteConn
from headwater.hub.streams.notice import Notice
from headwater.hub.streams.passed_message import Delivery
from headwater.hub.streams.stale_routes import StaleRoutes

FENCE_SECONDS = 120.0
"""A route that says nothing is cut before that."""
LEFT_MAX = 10_000
"""Streams of which it is remembered that their leader has left."""
ASK_SECONDS = 0.5
"""That the new leader has to say that it has heard of a delivery."""
PAUSE_SECONDS = (0.1, 1.6)
"""Before it is asked again, or the next one is: first, and at most."""
ASKED_SECONDS = 30.0
"""After which a delivery that nobody has heard of is dropped."""
ASKED_MAX = 1000
"""Deliveries of which leaders are asked at a time; more are dropped."""
PASSED_MAX = 1000
"""Deliveries that are remembered as passed on."""
REPORT_SECONDS = 1.0
"""In which dropped deliveries are counted, before a line in the log says how many."""
UNANSWERED = f"nobody who leads the stream has answered for {ASKED_SECONDS:.0f} s"
TOO_MANY = f"leaders are asked of {ASKED_MAX} others"
HEARD = b"+"
"""The answer of the leader, whether the delivery counts or not."""
REPLY_TOKENS = 9
"""$JS.ACK.<stream>.<consumer>.<deliveries>.<sequence>.<consumer sequence>.<time>.<pending>"""

log = logging.getLogger("headwater.streams")


Message = tuple[bytes, bytes, bytes, bytes]
"""Subject, reply, headers and payload."""


class Replaced:
    """A leader of a stream that was replaced and has not said that it leaves."""

    def __init__(self, notice: Notice, leader: int, old: int, routes: list[RouteConn]) -> None:
        self.notice = notice
        """Of the node that replaced it."""
        self.leader = leader
        """The number of the node that leads now."""
        self.old = old
        """The number of the one that was replaced."""
        self.routes = routes
        """To that one."""
        self.count = 0
        """Of deliveries that came late."""


class LateDeliveries:
    """Of one node, for streams that it leads and for clients that are connected to it.
    `leader_of(group)` is the number of the node that leads a group, 0 when none is known, and
    `known(account, name)` what the cluster says of a stream, an assignment or None."""

    def __init__(
        self,
        jetstream: NodeJetStream,
        transport: Transport,
        leader_of: Callable[[int], int],
        known: Callable[[str, str], Any],
    ) -> None:
        self.jetstream = jetstream
        self.transport = transport
        self.leader_of = leader_of
        self.known = known
        self.on_replaced: Callable[[str], None] = lambda stream: None
        """A leader of the stream of that name was replaced, and has not said that it leaves."""
        self.stale = StaleRoutes(jetstream.kernel, transport, self._comes, self._is_awaited)
        self.awaited: dict[RouteConn, dict[tuple[bytes, bytes], Replaced]] = {}
        """By route, account and stream."""
        self._left: dict[int, int] = {}
        """By group: the last term whose leader has said that it leaves."""
        self._begun: dict[int, dict[str, int]] = {}
        """By group that is led here: what each consumer had handed out before, by its count."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._asked = 0
        self._passed: dict[tuple[str, bytes], None] = {}
        """Deliveries that nodes asked about and this one passed on, by account and reply subject:
        an answer may be lost, and several nodes may have clients for one."""
        self._dropped: Counter[tuple[str, str, str]] = Counter()
        """Deliveries that no line in the log has told of yet, by account, stream and cause."""
        transport.methods["late"] = self._arrived

    # -- who leads -----------------------------------------------------------------

    def leaves(self, notice: Notice) -> None:
        """A leader has said that it leaves, in order with what it has handed out."""
        self._left.pop(notice.group, None)
        self._left[notice.group] = notice.term
        if len(self._left) > LEFT_MAX:
            del self._left[next(iter(self._left))]

    def begins(self, notice: Notice, stream: Any) -> None:
        """This node leads a stream, and has handed out nothing yet, or it leads on."""
        if notice.group in self._begun:
            return
        consumers = stream.consumers.items()
        self._begun[notice.group] = {name: each.delivered_count() for name, each in consumers}

    def ends(self, group: int) -> None:
        """This node leads a stream no more."""
        self._begun.pop(group, None)

    def changed(self, notice: Notice, leader: int, before: tuple[int, int]) -> None:
        """Node `leader` leads a stream; `before` is the term and the number of the leader that was
        known till then, zeros for none."""
        term, old = before
        key = (notice.account.encode(), notice.stream.encode())
        for row in [rows[key] for rows in self.awaited.values() if key in rows]:
            row.leader = leader
            if leader == row.old:
                self._forget(row)
        left = self._left.pop(notice.group, 0)
        if old in (0, leader, self.transport.number) or left >= term:
            return
        routes = [conn for conn in self.transport.all_routes() if number_of(conn) == old]
        if routes:
            self._await(Replaced(notice, leader, old, routes))
            self.on_replaced(notice.stream)

    def _await(self, row: Replaced) -> None:
        key = (row.notice.account.encode(), row.notice.stream.encode())
        for conn in row.routes:
            self.awaited.setdefault(conn, {})[key] = row
            conn.late = self._comes
        self._spawn(self._wait(row))

    def _is_awaited(self, conn: RouteConn) -> bool:
        return conn in self.awaited

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work, loop=self.jetstream.kernel.loop)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def stop(self) -> None:
        """The node stops: wait for nothing."""
        self._report()
        self.stale.stop()
        for task in list(self._tasks):
            task.cancel()

    async def _wait(self, row: Replaced) -> None:
        """Whatever the old leader has said is here, or lost."""
        try:
            await self.transport.fence(row.old, FENCE_SECONDS)
        except CallFailed as error:
            log.debug("stream '%s': its old leader says nothing: %s", row.notice.stream, error)
        self._forget(row)

    def _forget(self, row: Replaced) -> None:
        if row.count:
            log.info(
                "stream '%s': %d messages that an earlier leader had handed out came late",
                row.notice.stream,
                row.count,
            )
            row.count = 0
        key = (row.notice.account.encode(), row.notice.stream.encode())
        for conn in row.routes:
            rows = self.awaited.get(conn, {})
            if rows.get(key) is row:
                del rows[key]
            if not rows:
                self.awaited.pop(conn, None)
                if not self.stale.asks(conn):
                    conn.late = None

    # -- what comes ------------------------------------------------------------------

    def _comes(
        self,
        conn: RouteConn,
        account: bytes,
        subject: bytes,
        reply: bytes,
        headers: bytes,
        payload: bytes,
    ) -> bool:
        """A delivery has come by a route of an old leader, or may be old; whether it goes no
        further that way."""
        message = (subject, reply, headers, payload)
        words = reply.split(b".")
        row = self.awaited.get(conn, {}).get((account, words[2])) if len(words) > 2 else None
        if row is None:
            if len(words) != REPLY_TOKENS or not self.stale.asks(conn):
                return False
            return self._is_asked_of(conn, account, words[2], message)
        row.count += 1
        notice = row.notice
        late = Delivery(notice.account, notice.stream, notice.group, *message)
        if row.leader == self.transport.number:
            return not self._counts(late)
        if self._asked < ASKED_MAX:
            self._asked += 1
            self._spawn(self._ask(late))
        else:
            self._drop(late, TOO_MANY)
        return True

    def _is_asked_of(
        self, conn: RouteConn, account: bytes, stream: bytes, message: Message
    ) -> bool:
        """Ask whoever has handed out a delivery that may be old; False when it goes on at once:
        the answer has passed it on, or there is nobody to ask, or too much was asked."""
        owner, name = account.decode("utf-8", "replace"), stream.decode("utf-8", "replace")
        known, key = self.known(owner, name), (account, message[1])
        if self.stale.was_asked(conn, key) or known is None or self._asked >= ASKED_MAX:
            return False
        # With one replica no group leads the stream.
        group = known.group if len(known.peers) > 1 else 0
        late = Delivery(owner, name, group, *message, by=number_of(conn))
        self._asked += 1
        self.stale.asked(conn, key, self._spawn(self._ask(late)))
        return True

    async def _ask(self, late: Delivery) -> None:
        """Let whoever leads the stream know of a delivery."""
        body, loop = msgspec.msgpack.encode(late), self.jetstream.kernel.loop
        until = loop.time() + ASKED_SECONDS
        pause, longest = PAUSE_SECONDS
        try:
            while loop.time() < until:
                leader = self.leader_of(late.group) or late.by
                with contextlib.suppress(CallFailed):
                    if await self.transport.call(leader, "late", body, ASK_SECONDS) == HEARD:
                        return
                await asyncio.sleep(pause)
                pause = min(2 * pause, longest)
            self._drop(late, UNANSWERED)
        finally:
            self._asked -= 1

    def _drop(self, late: Delivery, why: str) -> None:
        """A delivery reaches nobody. Its consumer hands it out again, unless it may not."""
        if not self._dropped:
            self.jetstream.kernel.loop.call_later(REPORT_SECONDS, self._report)
        self._dropped[late.account, late.stream, why] += 1

    def _report(self) -> None:
        dropped, self._dropped = self._dropped, Counter()
        for (account, stream, why), count in dropped.items():
            log.warning(
                "stream '%s > %s': %d messages that came late are not delivered, because %s: "
                "consumers that wait for acks hand them out again, up to their max_deliver",
                account,
                stream,
                count,
                why,
            )

    def _arrived(self, number: int, body: bytes) -> bytes:
        """A node asks this one about a delivery; without a word when it does not lead the
        stream, or knows nobody who would get it. Raises CallFailed."""
        try:
            late = msgspec.msgpack.decode(body, type=Delivery)
        except msgspec.DecodeError as error:
            raise CallFailed(str(error)) from error
        if self._stream(late) is None:
            return b""
        key = (late.account, late.reply)
        if key not in self._passed and self._counts(late):
            account = self.jetstream.accounts[late.account].account
            if not account.has_interest(late.subject):
                # A route that has just come up may have yet to say who listens: asked again.
                return b""
            self._passed[key] = None
            if len(self._passed) > PASSED_MAX:
                del self._passed[next(iter(self._passed))]
            account.send(late.subject, late.payload, late.reply, late.headers)
        return HEARD

    def _stream(self, late: Delivery) -> Stream | None:
        """The stream, when this node leads it."""
        js = self.jetstream.accounts.get(late.account)
        stream = js.streams.get(late.stream) if js is not None else None
        return stream if stream is not None and stream.group == late.group else None

    def _counts(self, late: Delivery) -> bool:
        """Whether a consumer has handed that out, as far as the group knows, and waits for it."""
        stream, words = self._stream(late), late.reply.split(b".")
        if stream is None or len(words) != REPLY_TOKENS:
            return False
        name = words[3].decode("utf-8", "replace")
        consumer = stream.consumers.get(name)
        begun = self._begun.get(late.group, {}).get(name, 0)
        try:
            deliveries, sequence, consumer_seq = map(int, words[4:7])
        except ValueError:
            return False
        if consumer is None:
            return False
        if consumer_seq > begun and late.by != self.transport.number:
            return False
        if consumer.config.ack_policy == "none":
            return True
        return bool(consumer.pending.deliveries(sequence) == deliveries)


def number_of(conn: RouteConn) -> int:
    """Of the node at the other end of a route."""
    return number_of_name(conn.session.peer.server_name)
