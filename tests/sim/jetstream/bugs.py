"""Planted bugs of streams, consumers and mirrors on one or two nodes; see `planted/bug.py`.

Each is one way in which a promise was broken somewhere.
"""

from dataclasses import replace
from typing import Any

from headwater.edge.jetstream.api import api_consumer, api_stream
from headwater.edge.jetstream.config import consumer_config
from headwater.edge.jetstream.consumer import consumer_recovery, consumers
from headwater.edge.jetstream.model.models import Success
from headwater.edge.jetstream.node.age_watch import AgeWatch
from headwater.edge.jetstream.node.node import NodeJetStream
from headwater.edge.jetstream.progress import consumer_setup, consumer_state
from headwater.edge.jetstream.stream import stream_states, stream_wire
from headwater.edge.jetstream.stream.age_clock import AgeClock
from headwater.edge.storage.format.durability import Durability
from headwater.federation.origins.health import LIVE, Health
from headwater.federation.origins.origin_driver import OriginDrivers
from headwater.federation.origins.origin_follower import OriginFollower
from headwater.federation.origins.origin_place import OriginPlace
from headwater.federation.origins.origin_request import StartPoint
from tests.sim.planted.bug import Bug


def _lazily_synced(original: Any) -> Any:
    def set_durability(self: Any, stream: Any) -> None:
        original(self, stream)
        self.store().set_durability(stream.store, Durability(True, 5.0))

    return set_durability


def _nothing(original: Any) -> Any:
    return lambda *arguments: None


def _no_number(original: Any) -> Any:
    return lambda *arguments: 0


def _first_part(original: Any) -> Any:
    return lambda stream, meta, parts: original(stream, meta, parts[:1])


def _revived(change: Any) -> Any:
    """A bug that changes a consumer when it was brought back; `change(positions, consumer)`."""

    def make(original: Any) -> Any:
        def revive(stream: Any, meta: Any, parts: list[bytes]) -> None:
            original(stream, meta, parts)
            consumer = stream.consumers[meta.name]
            change(consumer, consumer.numbers())

        return revive

    return make


def _forget_pending(consumer: Any, at: dict[str, int]) -> None:
    consumer.reset(at["delivered_seq"] + 1)


def _run_ahead(consumer: Any, at: dict[str, int]) -> None:
    end = (at["delivered_seq"] + 1, at["next_cseq"])
    floor = (at["floor_seq"], at["floor_cseq"])
    consumer.go_on(end, floor, consumer.waiting_entries(), {})


def _count_anew(consumer: Any, at: dict[str, int]) -> None:
    rows = [(sequence, cseq, since, 1) for sequence, cseq, since, _ in consumer.waiting_entries()]
    end = (at["delivered_seq"], at["next_cseq"] - 1)
    consumer.go_on(end, (at["floor_seq"], at["floor_cseq"]), rows, {})


def _config(name: str, change: Any) -> Any:
    """A bug that misreads one field of a consumer's configuration."""

    def make(original: Any) -> Any:
        def fill(config: Any, *arguments: Any) -> None:
            original(config, *arguments)
            value = getattr(config, name)
            if value > 0:
                setattr(config, name, change(value))

        return fill

    return make


def _answered_early(original: Any) -> Any:
    async def done(durable: Any, answer: Any) -> Any:
        if hasattr(durable, "close"):
            durable.close()
        return answer

    return done


def _left_early(original: Any) -> Any:
    async def left(gone: Any) -> Any:
        return Success(success=True)

    return left


def _wall_ages(original: Any) -> Any:
    def look(self: AgeClock) -> int:
        self._read()
        return 0

    return look


def _next_but_one(original: Any) -> Any:
    def start(self: OriginPlace) -> StartPoint:
        point: StartPoint = original(self)
        if self.mirror and point.sequence > 1:
            return StartPoint(sequence=point.sequence + 1)
        return point

    return start


def _cursor_without_data(original: Any) -> Any:
    sinks: dict[str, Any] = {}

    def start(self: OriginPlace) -> StartPoint:
        point: StartPoint = original(self)
        last = sinks.get(self.stream.incarnation)
        if last is not None and last.sseq >= point.sequence:
            return StartPoint(sequence=last.sseq + 1)
        return point

    def listen(self: OriginFollower, *arguments: Any) -> None:
        original_listen(self, *arguments)
        sinks[self.stream.incarnation] = self.sink

    original_listen = OriginFollower._listen
    start.listen = listen  # type: ignore[attr-defined]
    return start


def _later_alone(original: Any) -> Any:
    def start(self: OriginPlace) -> StartPoint:
        if self.mirror and self.stream.store.last_seq > 0:
            # What comes from now on: what was published while the link was cut is left out.
            return StartPoint(time="2099-01-01T00:00:00Z")
        return original(self)

    return start


def _always_live(original: Any) -> Any:
    return property(lambda self: LIVE)


def _careless(original: Any) -> Any:
    def add(consumer: Any) -> None:
        consumer.copies = False
        original(consumer)

    return add


def _short_window(original: Any) -> Any:
    def load(stream: Any) -> None:
        original(stream)
        stream.dedupe.resize(stream.dedupe.window_ns // 20)

    return load


def _spans_from_now(original: Any) -> Any:
    return lambda kept, incarnation: []


SEEDS = 40
"""Each is found within so many seeds of `STEPS` steps, most in a few."""
_BUGS = (
    Bug(
        "acks-before-sync",
        "a publish is acknowledged when it is written, and synced later",
        ((NodeJetStream, "set_durability", _lazily_synced),),
    ),
    Bug(
        "ids-forgotten",
        "a start forgets the ids of the duplicate window",
        ((stream_wire, "load_ids", _nothing),),
    ),
    Bug(
        "window-shrinks",
        "the duplicate window is shorter after a start",
        ((stream_wire, "load_ids", _short_window),),
    ),
    Bug(
        "progress-of-yesterday",
        "a start takes up a consumer as it was written whole, without what came after",
        ((consumer_recovery, "_revive", _first_part),),
    ),
    Bug(
        "redeliveries-lost",
        "a start forgets what waits for its ack",
        ((consumer_recovery, "_revive", _revived(_forget_pending)),),
    ),
    Bug(
        "progress-ahead",
        "a start takes a consumer for one message further than it is",
        ((consumer_recovery, "_revive", _revived(_run_ahead)),),
    ),
    Bug(
        "deliveries-counted-anew",
        "a start forgets how often messages were delivered",
        ((consumer_recovery, "_revive", _revived(_count_anew)),),
    ),
    Bug(
        "one-too-many-pending",
        "max_ack_pending is off by one",
        ((consumer_config, "fill", _config("max_ack_pending", lambda n: n + 1)),),
    ),
    Bug(
        "one-delivery-too-many",
        "max_deliver is off by one",
        ((consumer_config, "fill", _config("max_deliver", lambda n: n + 1)),),
    ),
    Bug(
        "impatient",
        "a message is delivered again after half of ack_wait",
        ((consumer_config, "fill", _config("ack_wait", lambda n: n // 2)),),
    ),
    Bug(
        "filter-ignored",
        "a consumer delivers what its filter excludes",
        ((consumer_setup, "patterns", lambda original: lambda config: []),),
    ),
    Bug(
        "consumer-comes-back",
        "the deletion of a consumer is not written",
        ((consumer_state, "forget", _no_number),),
    ),
    Bug(
        "consumer-answered-early",
        "a consumer is said to be deleted before that is durable",
        ((api_consumer, "_left", _left_early),),
    ),
    Bug(
        "removed-before-durable",
        "purges and deletes are answered before they are durable",
        ((api_stream, "done", _answered_early),),
    ),
    Bug(
        "update-not-kept",
        "a new configuration holds until the next start",
        ((NodeJetStream, "update_meta", _nothing),),
    ),
    Bug(
        "ages-by-the-wall",
        "messages age by the wall clock, whoever sets it",
        ((AgeClock, "look", _wall_ages),),
    ),
    Bug(
        "age-clock-not-kept",
        "a start does not know that the wall clock is wrong",
        ((AgeWatch, "_keep", _nothing),),
    ),
    Bug(
        "spans-not-kept",
        "a start does not know by which clock messages were stored",
        ((stream_states, "load_spans", _spans_from_now),),
    ),
    Bug(
        "mirror-skips-one",
        "a mirror leaves one message out whenever it goes on",
        ((OriginPlace, "start", _next_but_one),),
    ),
    Bug(
        "mirror-takes-what-comes",
        "a mirror leaves out what was published while its link was cut",
        ((OriginPlace, "start", _later_alone),),
    ),
    Bug(
        "mirror-cursor-first",
        "a mirror goes on behind what it took, which a power cut may have lost",
        (
            (OriginPlace, "start", _cursor_without_data),
            (OriginFollower, "_listen", lambda original: OriginPlace.start.listen),  # type: ignore[attr-defined]
        ),
    ),
    Bug(
        "mirror-passes-over-too-early",
        "a mirror passes over what was removed before that is durable at its origin",
        ((consumers, "add", _careless),),
    ),
    Bug(
        "mirror-always-live",
        "a mirror says that it is live while its link is cut",
        ((Health, "state", _always_live),),
    ),
    Bug(
        "links-not-noticed",
        "a mirror does not try again when the link comes back",
        (
            (OriginDrivers, "link_up", _nothing),
            (OriginFollower, "_tick", _nothing),
        ),
    ),
)
BUGS = tuple(replace(bug, seeds=SEEDS) for bug in _BUGS)
