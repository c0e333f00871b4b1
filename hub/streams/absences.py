"""Streams that nobody leads at the moment: what is published on them waits for the next leader.

The node that a client is connected to holds what the client says to such a stream: publishes, pull
requests and acks. It begins when the leader says that it leaves, on the route on which it takes its
interest back, or when the leader's node is gone. It ends when the next leader says that it leads,
behind its interest: what was held goes to it on the same route, ahead of all that follows. So a
client notices nothing but a pause, and what it publishes stays in order.

A message is taken once. A node says to all others that it holds, and that it has given away what it
held. A leader that leaves takes no more from a node that holds; one that begins does not take from
it yet. Who listens to the same subjects on a leader's node gets messages the usual way, and the
leader would take them a second time.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from headwater.edge.jetstream.node.node import NodeJetStream
from headwater.edge.jetstream.publish.ingest import IngestSink, LastIngest
from headwater.edge.jetstream.stream.stream import Stream
from headwater.hub.cluster.transport import Transport
from headwater.hub.routes.holding_sink import HoldingSink, hand_to
from headwater.hub.routes.route_conn import RouteConn
from headwater.hub.streams.held_pulls import PULL_SUBJECT, pull_body, waited
from headwater.hub.streams.late_deliveries import LateDeliveries
from headwater.hub.streams.notice import Notice
from headwater.hub.streams.passed_message import PassedMessage

HOLD_SECONDS = 2.5
"""That messages wait for a leader; then whoever waits for an answer hears that nobody listens."""
LOOK_SECONDS = 0.25
"""Between looks at who leads."""
QUIET_SECONDS = 1.0
"""After which a leader of whom others have told is believed, though it said nothing itself."""
HELD_MAX = 20_000
"""Messages that one node holds."""
HELD_BYTES_MAX = 16 << 20
"""And their bytes."""
OVERHEAD = 200
"""Bytes that a held message takes besides its text."""
MESSAGE_BYTES_MAX = 4 << 20
"""A larger message is not held."""
LED_MAX = 1000
"""Groups whose leaders are remembered before it is asked which of them are there."""
SHUT_SECONDS = 5.0
"""After which a node that said it holds messages is thought to hold none."""

log = logging.getLogger("headwater.streams")


class Held(PassedMessage, array_like=True, frozen=True):
    """A message that waits for the leader of a stream."""

    term: int = 0
    """In which the node leads that it is given to, as far as the giver knows; 0: it does not."""

    @property
    def size(self) -> int:
        """Bytes of memory, about."""
        texts = (self.subject, self.reply, self.headers, self.payload)
        return OVERHEAD + sum(map(len, texts))

    @property
    def has_order(self) -> bool:
        """Whether it has a place among its client's messages: pulls and acks have none."""
        return not self.subject.startswith((PULL_SUBJECT, b"$JS.ACK."))

    def after(self, seconds: float) -> "Held":
        """The same when it has waited so long: a pull request has less time left."""
        if not self.subject.startswith(PULL_SUBJECT):
            return self
        body = waited(self.payload, int(seconds * 1e9))
        return msgspec.structs.replace(self, payload=body)


class Guest(Held, array_like=True, frozen=True):
    """A message that another node held, and gave to this one to lead the stream."""


class Absence:
    """One stream that nobody leads, on one node."""

    def __init__(self, notice: Notice, since: float) -> None:
        self.notice = notice
        self.since = since
        """Seconds of the loop's clock."""
        self.sinks: list[HoldingSink] = []
        self.held: deque[tuple[Held, float]] = deque()
        """Each with the seconds of the loop's clock at which it came."""
        self.timer: Any = None


class Absences:
    """Of one node. `known(account, name)` is what the cluster says of a stream, an assignment or
    None; `leader_of(assignment)` the number of its leader as far as is known here, 0 for none."""

    def __init__(
        self,
        jetstream: NodeJetStream,
        transport: Transport,
        known: Callable[[str, str], Any],
        all_known: Callable[[], Iterator[Any]],
        leader_of: Callable[[Any], int],
    ) -> None:
        self.jetstream = jetstream
        self.transport = transport
        self.known = known
        self.all_known = all_known
        self.leader_of = leader_of
        self.absent: dict[int, Absence] = {}
        """By number of the group."""
        self.bytes = 0
        self.count = 0
        self._led: dict[int, tuple[int, int]] = {}
        """By group: in which term a node said that it leads, and its number."""
        self._led_max = LED_MAX
        self._holders: dict[int, set[Any]] = {}
        """By group: routes of nodes that hold messages for its leader. A leader shares the set
        with its sinks."""
        self._shut: dict[tuple[int, Any], Any] = {}
        """Timers by group and route of a node that holds: they end it when the node does not."""
        self._stopped = False
        self.late = LateDeliveries(
            jetstream, transport, lambda group: self._led.get(group, (0, 0))[1], known
        )
        transport.watchers.append(self._peer_changed)
        transport.route_watchers.append(self._route_up)
        handlers = {
            b"leaves": self._leaves,
            b"led": self._led_by,
            b"leads": self._leads,
            b"holds": self._holds,
            b"released": self._released,
        }
        for kind, handler in handlers.items():
            transport.handlers[kind] = self._noticing(handler)
        transport.handlers[b"held"] = self._arrived

    def _now(self) -> float:
        now: float = self.jetstream.kernel.loop.time()
        return now

    # -- what this node leads -----------------------------------------------------

    def leaving(self, assignment: Any, term: int) -> set[Any]:
        """This node leads a stream no more, or is about to. To be called before it takes its
        interest back. Returns the routes on which something may be on its way to it."""
        notice = Notice(assignment.account, assignment.name, assignment.group, term)
        routes: set[RouteConn] = set(self.transport.all_routes())
        self.late.leaves(notice)
        if not self._is_past(notice) and self._is_known(notice):
            self._announce(b"leaves", notice)
            if not self._stopped:
                self._begin(notice, routes - self._holders.get(notice.group, set()))
        return routes

    def ending(self, assignment: Any, term: int) -> None:
        """The stream of this node, which led it, is about to end."""
        self.late.ends(assignment.group)
        self.leaving(assignment, term)
        self._hold_pulls(Notice(assignment.account, assignment.name, assignment.group, term))

    def _hold_pulls(self, notice: Notice) -> None:
        """Let the pull requests that wait here wait for the next leader, unless a client is pinned:
        a consumer that stops would end them."""
        stream, absence = self._stream(notice), self.absent.get(notice.group)
        if stream is None or absence is None:
            return
        now = self.jetstream.kernel.monotonic_ns()
        named = (notice.account, notice.stream, notice.group)
        for consumer in stream.consumers.values():
            requests = consumer.queue.requests() if consumer.queue is not None else []
            if not requests or consumer.pin or any(one.pin for one in requests):
                continue
            subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream.name}.{consumer.name}".encode()
            bodies = [(one.reply, pull_body(one, now)) for one in requests]
            if self._hold_all(absence, [Held(*named, subject, r, b"", b) for r, b in bodies]):
                consumer.queue.clear()

    def leads(self, assignment: Any, stream: Stream, term: int) -> None:
        """This node leads a stream now, and has told of its interest."""
        notice = Notice(assignment.account, assignment.name, assignment.group, term)
        self.late.begins(notice, stream)
        self._record(notice, self.transport.number)
        holders = self._holders.get(notice.group)
        if holders:
            for sink in stream.sinks:
                if isinstance(sink, IngestSink):
                    sink.shut = holders
        absence = self.absent.get(notice.group)
        if absence is not None:
            self._release(absence, self.transport.number)
        self._announce(b"leads", notice)

    # -- what others say ------------------------------------------------------------

    def _noticing(
        self, handler: Callable[[int, Notice], None]
    ) -> Callable[[int, memoryview], None]:
        def handle(number: int, body: memoryview) -> None:
            try:
                notice = msgspec.msgpack.decode(body, type=Notice)
            except msgspec.DecodeError as error:
                raise ValueError(str(error)) from error
            handler(number, notice)

        return handle

    def _leaves(self, number: int, notice: Notice) -> None:
        self.late.leaves(notice)
        if not self._is_past(notice) and self._is_known(notice):
            self._begin(notice, set())

    def _led_by(self, number: int, notice: Notice) -> None:
        """A node leads a stream; of its interest it may be still telling."""
        if not self._is_past(notice):
            self._record(notice, number)

    def _leads(self, number: int, notice: Notice) -> None:
        """A node leads a stream, and has told of its interest."""
        if self._is_past(notice):
            return
        self._record(notice, number)
        absence = self.absent.get(notice.group)
        if absence is not None:
            self._release(absence, number)

    def _holds(self, number: int, notice: Notice) -> None:
        conn = self.transport.arriving
        holders = self._holders.setdefault(notice.group, set())
        holders.add(conn)
        loop, key = self.jetstream.kernel.loop, (notice.group, conn)
        if (timer := self._shut.get(key)) is not None:
            timer.cancel()
        self._shut[key] = loop.call_later(SHUT_SECONDS, self._open, notice, conn)
        stream = self._stream(notice)
        for sink in stream.sinks if stream is not None else ():
            if isinstance(sink, LastIngest):
                sink.senders.discard(conn)
            elif isinstance(sink, IngestSink):
                # It may lead already: what the other node said waited on a route that stalled.
                sink.shut = holders
        absence = self.absent.get(notice.group)
        if absence is not None:
            for holding in absence.sinks:
                holding.senders.discard(conn)

    def _released(self, number: int, notice: Notice) -> None:
        self._open(notice, self.transport.arriving)

    def _open(self, notice: Notice, conn: Any) -> None:
        """Take from a node again what it publishes."""
        if (timer := self._shut.pop((notice.group, conn), None)) is not None:
            timer.cancel()
        holders = self._holders.get(notice.group)
        if holders is None:
            return
        holders.discard(conn)
        if holders:
            return
        del self._holders[notice.group]
        stream = self._stream(notice)
        for sink in stream.sinks if stream is not None else ():
            if isinstance(sink, IngestSink) and sink.shut is holders:
                sink.shut = None

    def _arrived(self, number: int, body: memoryview) -> None:
        """Another node held a message for the stream's leader."""
        try:
            held = msgspec.msgpack.decode(body, type=Guest)
        except msgspec.DecodeError as error:
            raise ValueError(str(error)) from error
        self._hand_in(held, self.transport.arriving)

    def _peer_changed(self, number: int, there: bool) -> None:
        if there:
            for js in list(self.jetstream.accounts.values()):
                for stream in list(js.streams.values()):
                    led = self._led.get(stream.group)
                    if stream.group and led is not None and led[1] == self.transport.number:
                        told = Notice(js.name, stream.name, stream.group, led[0])
                        self.transport.send(number, b"led", msgspec.msgpack.encode(told))
            return
        for holders in list(self._holders.values()):
            for conn in [each for each in holders if each.closed]:
                holders.discard(conn)
        for assignment in list(self.all_known()):
            group = assignment.group
            term, leader = self._led.get(group, (0, 0))
            leader = leader or self.leader_of(assignment)
            if group and leader == number and len(assignment.peers) > 1:
                notice = Notice(assignment.account, assignment.name, group, term)
                self._begin(notice, set())

    def _route_up(self, number: int, conn: RouteConn) -> None:
        """A route has come up: let the other node know what is held here, before it draws
        messages by its interest."""
        for absence in self.absent.values():
            notice = absence.notice
            if self.transport.beside(number, notice.account) is conn:
                self._announce_to(number, b"holds", notice)

    # -- holding ----------------------------------------------------------------------

    def _record(self, notice: Notice, number: int) -> None:
        self.late.changed(notice, number, self._led.get(notice.group, (0, 0)))
        self._led[notice.group] = (notice.term, number)
        if len(self._led) > self._led_max:
            groups = {assignment.group for assignment in self.all_known()}
            self._led = {group: led for group, led in self._led.items() if group in groups}
            self._led_max = max(LED_MAX, 2 * len(self._led))

    def _is_past(self, notice: Notice) -> bool:
        """Whether a node is known to lead in a later term."""
        return self._led.get(notice.group, (0, 0))[0] > notice.term

    def _is_known(self, notice: Notice) -> bool:
        known = self.known(notice.account, notice.stream)
        if known is None or (known.group and len(known.peers) < 2):
            return False
        return _is_of(notice, known)

    def _begin(self, notice: Notice, senders: set[Any]) -> None:
        """Hold what clients of this node say to a stream, and pull requests and acks that come by
        the routes `senders`. Publishes that do may be followed by others on another way."""
        js = self.jetstream.accounts.get(notice.account)
        known = self.known(notice.account, notice.stream)
        if js is None or known is None:
            return
        absence = self.absent.get(notice.group)
        subjects: list[tuple[bytes, set[Any]]] = []
        if absence is None:
            absence = self.absent[notice.group] = Absence(notice, self._now())
            absence.timer = self.jetstream.kernel.loop.call_later(LOOK_SECONDS, self._look, absence)
            subjects += [(each.encode(), set()) for each in known.stream_config.subjects]
            name = notice.stream.encode()
            ends = (b"$JS.API.CONSUMER.MSG.NEXT.%b.*", b"$JS.ACK.%b.>", b"$JS.ACK.*.*.%b.>")
            subjects += [(each % name, set(senders)) for each in ends]
        for subject, routes in subjects:
            sink = HoldingSink(subject, self._acceptor(absence), routes)
            js.account.insert(sink)
            absence.sinks.append(sink)
        self._announce(b"holds", notice)

    def _acceptor(self, absence: Absence) -> Callable[[bytes, bytes, bytes, bytes, Any], bool]:
        notice = absence.notice
        named = (notice.account, notice.stream, notice.group)

        def accept(
            subject: bytes, reply: bytes, headers: bytes, payload: bytes, sender: Any
        ) -> bool:
            held = Held(*named, subject, reply, headers, payload)
            if self._hold(absence, held):
                return True
            if isinstance(sender, RouteConn):
                # The node that it came from has given it away.
                self._refuse(held)
            return False

        return accept

    def _hold(self, absence: Absence, held: Held) -> bool:
        size = held.size
        full = self.count >= HELD_MAX or self.bytes + size > HELD_BYTES_MAX
        if full or size > MESSAGE_BYTES_MAX:
            return False
        absence.held.append((held, self._now()))
        self.count += 1
        self.bytes += size
        return True

    def _hold_all(self, absence: Absence, messages: list[Held]) -> bool:
        """Hold several messages; without room for all of them none is held, and it is False."""
        size = sum(message.size for message in messages)
        if self.count + len(messages) > HELD_MAX or self.bytes + size > HELD_BYTES_MAX:
            return False
        for message in messages:
            self._hold(absence, message)
        return True

    def _look(self, absence: Absence) -> None:
        """Give up waiting, or believe who is said to lead."""
        notice, waited = absence.notice, self._now() - absence.since
        if self.absent.get(notice.group) is not absence:
            return
        known = self.known(notice.account, notice.stream)
        there_still = known is not None and _is_of(notice, known)
        leader = self.leader_of(known) if there_still else 0
        there = leader in self.transport.conns or self._stream(notice) is not None
        if waited >= HOLD_SECONDS or not there_still:
            self._release(absence, leader if there else 0)
        elif waited >= QUIET_SECONDS and leader and there:
            self._release(absence, leader)
        else:
            absence.timer = self.jetstream.kernel.loop.call_later(LOOK_SECONDS, self._look, absence)

    def _release(self, absence: Absence, to: int) -> None:
        """Give what is held to node `to`, 0 for nobody, and hold no more. What a client of another
        node published does not go on to a third: its node gives that one newer messages itself."""
        notice = absence.notice
        self.absent.pop(notice.group, None)
        absence.timer.cancel()
        js = self.jetstream.accounts.get(notice.account)
        for sink in absence.sinks:
            if js is not None:
                js.account.remove(sink)
        if absence.held:
            log.debug("stream '%s': %d held messages go on", notice.stream, len(absence.held))
        now = self._now()
        for held, since in absence.held:
            self.count -= 1
            self.bytes -= held.size
            held = held.after(now - since)
            overtaken = isinstance(held, Guest) and held.has_order
            if to == self.transport.number:
                self._hand_in(held)
            elif overtaken or not (to and self._send(to, held)):
                self._refuse(held)
        absence.held.clear()
        self._announce(b"released", notice)

    def _send(self, to: int, held: Held) -> bool:
        term, leader = self._led.get(held.group, (0, 0))
        known = msgspec.structs.replace(held, term=term if leader == to else 0)
        body = msgspec.msgpack.encode(known)
        return self.transport.send_beside(to, held.account, b"held", body)

    def _hand_in(self, held: Held, conn: RouteConn | None = None) -> None:
        """Give a message to the stream that it is for, or let it wait on when nobody leads that.
        `conn` is the route that it came on: a leader that is about to leave takes what is on its
        way there, or this message would be behind what follows."""
        if self._is_late(held):
            self._refuse(held)
            return
        stream = self._stream(held)
        if stream is not None:
            for sink in stream.account.sinks(held.subject):
                owner = getattr(getattr(sink, "consumer", None), "stream", None)
                mine = isinstance(sink, IngestSink) and sink.stream is stream
                if (mine or owner is stream) and self._give(sink, held, conn):
                    return
        absence = self.absent.get(held.group)
        if absence is None or not self._hold(absence, held):
            self._refuse(held)

    def _is_late(self, held: Held) -> bool:
        """Whether a message was given to this node for an earlier time as the leader: what its
        client said later may be in the stream."""
        now = self._led.get(held.group, (0, 0))[0]
        return 0 < held.term < now and held.has_order

    def _give(self, sink: Any, held: Held, conn: RouteConn | None) -> bool:
        """Give a message to a sink; whether it took it."""
        message = (held.subject, held.reply, held.headers, held.payload)
        if not isinstance(sink, LastIngest):
            return hand_to(sink, *message)
        # A node that holds is heard no more but for what it held: that is not taken twice.
        shut, sink.shut = sink.shut, None
        try:
            return hand_to(sink, *message, conn)
        finally:
            sink.shut = shut

    def _refuse(self, held: Held) -> None:
        """Let whoever waits for an answer hear that nobody listens (status 503)."""
        js = self.jetstream.accounts.get(held.account)
        if held.reply and js is not None:
            block = b"NATS/1.0 503\r\nNats-Subject: " + held.subject + b"\r\n\r\n"
            if held.subject.startswith(PULL_SUBJECT):
                block = b"NATS/1.0 409 Leadership Change\r\n\r\n"
            js.account.send(held.reply, b"", b"", block)

    # -- others -------------------------------------------------------------------------

    def _stream(self, named: Notice | Held) -> Stream | None:
        """The stream when it lives here."""
        js = self.jetstream.accounts.get(named.account)
        stream = js.streams.get(named.stream) if js is not None else None
        return stream if stream is not None and stream.group == named.group else None

    def _announce(self, kind: bytes, notice: Notice) -> None:
        for number in list(self.transport.conns):
            self._announce_to(number, kind, notice)

    def _announce_to(self, number: int, kind: bytes, notice: Notice) -> None:
        body = msgspec.msgpack.encode(notice)
        self.transport.send_beside(number, notice.account, kind, body)

    def stop(self) -> None:
        """The node stops: hold nothing, and let who waits for an answer hear so."""
        self._stopped = True
        self.late.stop()
        for absence in list(self.absent.values()):
            self._release(absence, 0)


def _is_of(notice: Notice, known: Any) -> bool:
    """Whether a notice is about the stream that is known here. Its one node may have heard before
    this one that it gets a group, which nobody has led."""
    return bool(known.group == notice.group or (not known.group and not notice.term))
