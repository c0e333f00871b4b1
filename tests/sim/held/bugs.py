"""Planted bugs of what waits while the leader of a stream changes; see `planted/bug.py`.

Each takes a message twice, loses it in silence, turns the order, or holds without bound.
"""

from collections import deque
from dataclasses import replace
from typing import Any

import msgspec

from headwater.edge.jetstream.publish.ingest import IngestSink
from headwater.hub.streams import absences
from headwater.hub.streams.absences import Absences
from headwater.hub.streams.stale_routes import StaleRoutes
from tests.sim.planted.bug import Bug


def _nothing(original: Any) -> Any:
    return lambda *arguments: None


def _twice(original: Any) -> Any:
    def again(*arguments: Any) -> Any:
        original(*arguments)
        return original(*arguments)

    return again


def _untold(*kinds: bytes) -> Any:
    """A bug that does not say something to other nodes."""

    def make(original: Any) -> Any:
        def announce(self: Absences, number: int, kind: bytes, notice: Any) -> None:
            if kind not in kinds:
                original(self, number, kind, notice)

        return announce

    return make


def _late_holds_unheeded(original: Any) -> Any:
    def holds(self: Absences, number: int, notice: Any) -> None:
        stream = self._stream(notice)
        sinks = [each for each in stream.sinks if isinstance(each, IngestSink)] if stream else []
        before = [sink.shut for sink in sinks]
        original(self, number, notice)
        for sink, shut in zip(sinks, before, strict=True):
            sink.shut = shut

    return holds


def _newest_first(original: Any) -> Any:
    def release(self: Absences, absence: Any, to: int) -> None:
        absence.held = deque(reversed(absence.held))
        original(self, absence, to)

    return release


def _one_left_out(original: Any) -> Any:
    def release(self: Absences, absence: Any, to: int) -> None:
        if len(absence.held) > 1:
            lost = absence.held.pop()
            self.count -= 1
            self.bytes -= lost.size
        original(self, absence, to)

    return release


def _kept_in_count(original: Any) -> Any:
    def release(self: Absences, absence: Any, to: int) -> None:
        held = len(absence.held)
        original(self, absence, to)
        self.count += held

    return release


def _still_absent(original: Any) -> Any:
    def release(self: Absences, absence: Any, to: int) -> None:
        original(self, absence, to)
        if not to:
            self.absent[absence.notice.group] = absence

    return release


def _any_route(original: Any) -> Any:
    def send(self: Absences, to: int, held: Any) -> bool:
        return self.transport.send(to, b"held", msgspec.msgpack.encode(held))

    return send


def _without_bound(original: Any) -> Any:
    def hold(self: Absences, absence: Any, held: Any) -> bool:
        absence.held.append(held)
        self.count += 1
        self.bytes += held.size
        return True

    return hold


def _leader_keeps_none(original: Any) -> Any:
    def leaving(self: Absences, assignment: Any, term: int) -> set[Any]:
        self._stopped = True
        routes: set[Any] = original(self, assignment, term)
        self._stopped = False
        return routes

    return leaving


def _constant(value: Any) -> Any:
    return lambda original: value


SEEDS = 40
"""Each is found within so many seeds of `STEPS` steps, most in a few."""
RARE = {"refused-in-silence": 120, "asks-nothing-after-a-stop": 120}
"""But for these: most that is refused is so behind a fault, which would excuse silence, too; nodes
stand still in a tenth of the runs."""
_BUGS = (
    Bug(
        "holding-not-told",
        "a node holds messages, and others do not know",
        ((Absences, "_announce_to", _untold(b"holds")),),
    ),
    Bug(
        "holding-not-told-to-who-comes",
        "a node that holds messages does not say so to one that connects",
        ((Absences, "_route_up", _nothing),),
    ),
    Bug(
        "late-holding-unheeded",
        "a leader that hears late that a node holds messages takes them from it all the same",
        ((Absences, "_holds", _late_holds_unheeded),),
    ),
    Bug(
        "given-twice",
        "what is held is sent to the next leader twice",
        ((Absences, "_send", _twice),),
    ),
    Bug(
        "handed-in-twice",
        "what another node held is taken twice",
        ((Absences, "_hand_in", _twice),),
    ),
    Bug(
        "newest-first",
        "what is held goes on in the wrong order",
        ((Absences, "_release", _newest_first),),
    ),
    Bug(
        "another-route",
        "what is held goes to the next leader on another route than what follows",
        ((Absences, "_send", _any_route),),
    ),
    Bug(
        "last-left-out",
        "the last message that is held is forgotten",
        ((Absences, "_release", _one_left_out),),
    ),
    Bug(
        "refused-in-silence",
        "what cannot go on is dropped, and nobody is told",
        ((Absences, "_refuse", _nothing),),
    ),
    Bug(
        "held-for-ever",
        "nobody gives up waiting for a leader",
        ((absences, "HOLD_SECONDS", _constant(1e9)),),
    ),
    Bug(
        "held-without-bound",
        "a node holds as many messages as come",
        ((Absences, "_hold", _without_bound),),
    ),
    Bug(
        "room-not-given-back",
        "what has gone on counts as held",
        ((Absences, "_release", _kept_in_count),),
    ),
    Bug(
        "given-up-and-kept",
        "who gives up waiting does not look again",
        ((Absences, "_release", _still_absent),),
    ),
    Bug(
        "leader-does-not-hold",
        "the node of a leader that leaves holds nothing itself",
        ((Absences, "leaving", _leader_keeps_none),),
    ),
    Bug(
        "never-taken-again",
        "a leader never takes anything again from a node that held messages",
        ((Absences, "_open", _nothing),),
    ),
    Bug(
        "old-news-believed",
        "what an earlier leader said last is believed",
        ((Absences, "_is_past", _constant(lambda *arguments: False)),),
    ),
    Bug(
        "leaving-not-told",
        "a leader hands over, and other nodes do not know",
        ((Absences, "_announce_to", _untold(b"leaves")),),
    ),
    Bug(
        "leading-not-told",
        "a node leads, and other nodes hear of it by chance",
        ((Absences, "_announce_to", _untold(b"leads")),),
    ),
    Bug(
        "asks-nothing-after-a-stop",
        "deliveries that came while a node stood still go to its clients unasked",
        ((StaleRoutes, "_begin", _nothing),),
    ),
)
BUGS = tuple(replace(bug, seeds=RARE.get(bug.name, SEEDS)) for bug in _BUGS)
