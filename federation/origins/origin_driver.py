"""Mirrors and sources of a node: the driver of each stream, and what all of them share."""

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from headwater.edge.broker.account import Account
from headwater.edge.jetstream.account import stream_lifecycle
from headwater.edge.jetstream.model.errors import JetStreamError
from headwater.edge.jetstream.model.models import SourceInfo, StreamSource
from headwater.edge.jetstream.stream.stream import Stream
from headwater.edge.jetstream.stream.stream_states import log_of
from headwater.edge.kernel.turn_order import NewsStage, TurnStage
from headwater.edge.storage.format.errors import StoreError, invariant
from headwater.edge.wire.json_objects import BAD_JSON
from headwater.federation.origins.origin_cursor import Cursor
from headwater.federation.origins.origin_follower import OriginFollower
from headwater.federation.origins.origin_request import parse_source_header, source_parts
from headwater.federation.origins.origin_sink import (
    SOURCE_HEADER,
    Confirmations,
    Cursors,
    OriginSink,
)

if TYPE_CHECKING:
    from headwater.edge.view.node_view import NodeView
    from headwater.federation.leaf.leaf_links import LeafLinks

log = logging.getLogger("headwater.origin")

SETUPS_MAX = 32
"""Consumers that are asked for at the same time, over all streams."""

STARTED_AT_ONCE = 200
"""Followers of one stream that start in one round of the loop, so that none takes long."""

SETTLED_S = 5.0
"""Age of a link from which what its peer asks for is all that it asks for: interest follows the
link, on a slow line by seconds."""

SCAN_MAX = 100_000
"""Messages looked at for a source's cursor when none was kept."""

STATE_PREFIX = b"upstream/"
"""Of keys of states in the log: a part of the format, see docs/STORAGE.md."""


class OriginDrivers:
    """Makes the drivers of a node's streams; `make` is JetStream's driver factory."""

    def __init__(self, node: "NodeView") -> None:
        self.node = node
        self.domain: str = node.options.jetstream.domain
        self.setups = asyncio.Semaphore(SETUPS_MAX)
        self.scan_max = SCAN_MAX
        self.drivers: list[OriginDriver] = []
        self.links: LeafLinks | None = None
        """The node's leaf links, by which origins of other domains are reached."""
        self._cursors: Cursors | None = None
        self._remembered: dict[Stream, dict[str, Cursor]] = {}
        """Of streams that live here, by name: for the next driver, which may start before a turn
        has ended. What other nodes took later, or took back, is in the stream's states alone."""

    def start(self) -> None:
        """Plug into JetStream; streams that were recovered before get their drivers now."""
        jetstream = self.node.jetstream
        jetstream.origin_driver_factory = self.make
        for account in self.node.accounts.values():
            if account.jetstream is None:
                continue
            for stream in account.jetstream.streams.values():
                if stream.origin_driver is None and (stream.config.mirror or stream.config.sources):
                    stream.origin_driver = self.make(stream)

    def make(self, stream: Stream) -> "OriginDriver":
        """The driver of one stream, at work."""
        made = OriginDriver(self, stream)
        self.drivers.append(made)
        made.start()
        return made

    def forget(self, driver: "OriginDriver") -> None:
        """A driver has ended."""
        self.drivers = [each for each in self.drivers if each is not driver]

    def forget_cursors(self, stream: Stream) -> None:
        """A stream lives here no more: the next one with its data begins with what was kept."""
        self._remembered.pop(stream, None)

    def link_up(self, account: Account) -> None:
        """A leaf link of an account came up: what waits for its origin tries at once."""
        for driver in self.drivers:
            if driver.stream.account is account:
                driver.kick()

    def link_down(self, account: Account) -> None:
        """A leaf link of an account has ended: what its origin said last may hold no more."""
        for driver in self.drivers:
            if driver.stream.account is account:
                for follower in driver.followers:
                    if follower.phase == "waiting":
                        follower.kick()

    def arriving(self, account: Account) -> int:
        """Bytes that came over links of an account which are in the midst of a message; it grows
        while a large one is on its way."""
        links = [] if self.links is None else self.links.of_account(account.name)
        return sum(conn.read_bytes for conn in links if conn.midway)

    def doubt(self, account: Account) -> None:
        """An origin is silent: the links of an account have to show that they live."""
        if self.links is not None:
            self.links.doubt(account.name)

    def barrier(self, account: Account, subject: str, api: str) -> str:
        """Why nobody can be asked on an API subject although there is a link; "" without one."""
        if self.links is None:
            return ""
        domain = api.split(".")[1] if api.startswith("$JS.") and api.count(".") > 1 else ""
        for conn in self.links.of_account(account.name):
            if not conn.principal.may_receive(subject.encode()):
                return f"the rules of the link to {conn.session.peer.name!r} do not let it pass"
            settled = self.links.age_s(conn) > SETTLED_S
            if domain and conn.session.peer.domain == domain and settled:
                return (
                    f"domain {domain!r} is linked, but asks for no such requests: its JetStream "
                    "is off in that account, or rules of the link are in the way"
                )
        return ""

    def why_apart(self, account: Account) -> str:
        """Why links that the node dials for an account are not there; "" when nothing failed."""
        return "" if self.links is None else self.links.why_apart(account.name)

    def kept_out(self, account: Account, via: Any, subject: str) -> str:
        """Why deliveries on a subject, or below one that ends with a dot, would not come in by the
        connection by which the origin answers; "" when they would."""
        links = [] if self.links is None else self.links.of_account(account.name)
        sample = f"{subject}x" if subject.endswith(".") else subject
        for conn in links:
            if conn is via and not conn.principal.may_publish(sample.encode()):
                return f"the rules of the link to {conn.session.peer.name!r} do not let them pass"
        return ""

    def answers_kept_out(self, account: Account, subject: str, reply: bytes) -> str:
        """Why no answer to a request comes in, by whichever link it left; "" when one may."""
        links = [] if self.links is None else self.links.of_account(account.name)
        asked = [conn for conn in links if conn.principal.may_receive(subject.encode())]
        if not asked or any(conn.principal.may_publish(reply) for conn in asked):
            return ""
        return f"the rules of the link to {asked[0].session.peer.name!r} do not let them pass"

    def stop(self) -> None:
        """End all drivers."""
        for driver in list(self.drivers):
            driver.stop()

    def unplug(self) -> None:
        """Others take the place of this one, whose storage is closed."""
        if self.links is not None:
            self.links.on_link_up.remove(self.link_up)
            self.links.on_link_down.remove(self.link_down)
        if self._cursors is not None:
            self.node.kernel.remove_turn_hook(self._cursors)

    def status(self) -> list[dict[str, Any]]:
        """Facts of every mirror and source."""
        return [follower.status() for driver in self.drivers for follower in driver.followers]

    # --- cursors ----------------------------------------------------

    def cursor(self, stream: Stream, name: str, mirror: bool) -> Cursor:
        """The cursor that was kept for a mirror or source of a stream."""
        remembered = self._remembered.get(stream, {}).get(name)
        if remembered is not None:
            return remembered
        kept = log_of(stream)
        if kept is None:
            return Cursor()
        states = kept.states(stream.store.incarnation.encode())
        value = states.get(STATE_PREFIX + name.encode(), (None, []))[0]
        if value is None:
            return Cursor()
        try:
            return msgspec.json.decode(value, type=Cursor)
        except BAD_JSON as error:
            log.error(
                "the cursor of %r in stream %s is unreadable (%s): the newest messages from it "
                "tell where to go on",
                name,
                stream.name,
                error,
            )
            return Cursor()

    def bind(self, sink: OriginSink, name: str) -> None:
        """Have the cursor of a sink kept with its data."""
        kept = log_of(sink.stream)
        if kept is None:
            return
        if self._cursors is None:
            self._cursors = Cursors(sink.stream.node.storage.log)
            sink.stream.kernel.add_turn_hook(self._cursors, TurnStage.STATES)
        sink.cursors = self._cursors
        sink.owner = sink.stream.store.incarnation.encode()
        sink.key = STATE_PREFIX + name.encode()

    def remember_cursor(self, stream: Stream, name: str, cursor: Cursor) -> None:
        """Remember a cursor for as long as the stream lives here."""
        self._remembered.setdefault(stream, {})[name] = cursor

    def keep_cursor(self, stream: Stream, name: str, mirror: bool, cursor: Cursor) -> None:
        """Keep a cursor that moved without a message. Raises StoreError."""
        invariant(
            not mirror or cursor.seq <= stream.store.last_seq,
            f"the cursor of mirror '{stream.name}' would be {cursor.seq}, with data up to "
            f"{stream.store.last_seq}",
        )
        self.remember_cursor(stream, name, cursor)
        kept = log_of(stream)
        if kept is not None:
            kept.put_state(
                stream.store.incarnation.encode(),
                STATE_PREFIX + name.encode(),
                msgspec.json.encode(cursor),
                stream.store.sync_delay_ns,
            )
            stream.kernel.kick()


class OriginDriver:
    """The mirror or the sources of one stream."""

    def __init__(self, manager: OriginDrivers, stream: Stream) -> None:
        self.manager = manager
        self.stream = stream
        config = stream.config
        self._sources = [*config.sources] if config.mirror is None else [config.mirror]
        self.followers: list[OriginFollower] = []
        """Of the first sources, in their order. `start` makes the others in later rounds."""
        self._by_name: dict[str, OriginFollower] = {}
        self._origins = Counter(source.name for source in self._sources)
        self._follow_up_to(STARTED_AT_ONCE)
        self.near = False
        """A mirror has had nearly all that its origin has: it may answer in the origin's place."""
        self._stopped = False
        self._confirmations = Confirmations(stream.store)
        self._renewing: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin."""
        self._stopped = False
        self.stream.store.listen(self._confirmations, NewsStage.ORIGINS)
        self._start_from(0)

    def _follow_up_to(self, count: int) -> None:
        """Make followers of sources until there are so many, or one of each."""
        mirror = self.stream.config.mirror is not None
        for source in self._sources[len(self.followers) : count]:
            follower = OriginFollower(self, source, mirror=mirror)
            self.followers.append(follower)
            self._by_name[follower.name] = follower

    def _start_from(self, first: int) -> None:
        """Start followers from that place on, some in each round of the loop."""
        if self._stopped:
            return
        self._follow_up_to(first + STARTED_AT_ONCE)
        for follower in self.followers[first : first + STARTED_AT_ONCE]:
            follower.start()
        if first + STARTED_AT_ONCE < len(self._sources):
            self.stream.kernel.loop.call_soon(self._start_from, first + STARTED_AT_ONCE)

    def stop(self) -> None:
        """End; the stream's data and cursors stay."""
        self._stopped = True
        for follower in self.followers:
            follower.stop()
        self.stream.store.unlisten(self._confirmations)
        self.manager.forget(self)

    def end(self) -> None:
        """End with the stream, which lives here no more: its states alone tell where to go on."""
        self.stop()
        self.manager.forget_cursors(self.stream)

    def leave(self, kept: Sequence[StreamSource]) -> None:
        """Have all origins but those that are kept end their consumers, as far as they are reached
        now: some would hold messages for this stream for ever."""
        for follower in self.followers:
            if follower.source not in kept:
                follower.leave()

    def begin_again(self) -> None:
        """Have an empty stream take the place of this one, which is stopped by that."""
        self._renewing = self.stream.kernel.loop.create_task(self.renew())

    async def renew(self) -> None:
        """Put an empty stream with a driver of its own in the place of this one."""
        stream = self.stream
        try:
            await stream_lifecycle.renew(stream.account.jetstream, stream)
        except (JetStreamError, StoreError, OSError) as error:
            log.error(
                "stream %s cannot begin again: %s; it goes on as it is: mend that, and purge it "
                "again",
                stream.name,
                error,
            )
            if not stream.deleted:
                self.start()

    def is_near(self) -> None:
        """The mirror has nearly all that its origin has."""
        if not self.near:
            self.near = True
            stream_lifecycle.serve_mirrored(self.stream.account.jetstream, self.stream)

    def purged(self) -> None:
        """Messages of the stream were purged."""
        for follower in self.followers:
            follower.purged()

    def kick(self) -> None:
        """A way to the origins may be there again."""
        for follower in self.followers:
            follower.kick()

    def info(self, source: StreamSource) -> tuple[SourceInfo, dict[str, Any]] | None:
        """How far the mirror or a source is, and its report; None for one that is not driven
        here."""
        follower = self._by_name.get(" ".join(source_parts(source)))
        return follower.info() if follower is not None and follower.source == source else None

    def has_twins(self, source: StreamSource) -> bool:
        """Whether several sources have the same origin."""
        return self._origins[source.name] > 1

    def source_of(self, headers: bytes) -> tuple[str, int, str]:
        """Which source a stored message came from: (name, sequence there, identity)."""
        for line in headers.split(b"\r\n"):
            if line.startswith(SOURCE_HEADER):
                return parse_source_header(
                    line[len(SOURCE_HEADER) :].strip(b" ").decode("utf-8", "replace")
                )
        return "", 0, ""

    def add_sink(self, sink: OriginSink) -> None:
        """Send its confirmations when data becomes durable."""
        self._confirmations.sinks.append(sink)

    def drop_sink(self, sink: OriginSink) -> None:
        """Send nothing more for it."""
        self._confirmations.sinks.remove(sink)
