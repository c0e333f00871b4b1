"""Planted bugs of links, mirrors and sources; see `planted/bug.py`.

Each loses, repeats or mixes messages, or has a node say of a link what is not so.
"""

from dataclasses import replace
from typing import Any

from headwater.federation.leaf.leaf_remote import LeafRemote
from headwater.federation.origins.health import LIVE, Health
from headwater.federation.origins.origin_driver import OriginDrivers
from headwater.federation.origins.origin_errors import Recreated
from headwater.federation.origins.origin_follower import OriginFollower
from headwater.federation.origins.origin_place import OriginPlace
from headwater.federation.origins.origin_request import Answer, OriginRequest, StartPoint
from tests.sim.planted.bug import Bug


def _nothing(original: Any) -> Any:
    return lambda *arguments, **named: None


def _moved_start(mirror: bool, by: int) -> Any:
    """A bug that asks for messages from elsewhere than where a copy ends."""

    def make(original: Any) -> Any:
        def start(self: OriginPlace) -> StartPoint:
            point: StartPoint = original(self)
            if self.mirror is mirror and point.sequence > 1:
                return StartPoint(sequence=point.sequence + by)
            return point

        return start

    return make


def _from_now(original: Any) -> Any:
    def start(self: OriginPlace) -> StartPoint:
        if self.stream.store.last_seq > 0:
            return StartPoint(time="2099-01-01T00:00:00Z")
        point: StartPoint = original(self)
        return point

    return start


_TAKEN: dict[tuple[str, str], int] = {}
"""How far the followers of this planting came: by incarnation, and name."""


def _ahead_of_data(original: Any) -> Any:
    """The start of a follower that trusts what was taken before the power was cut."""
    _TAKEN.clear()

    def start(self: OriginPlace) -> StartPoint:
        point: StartPoint = original(self)
        known = _TAKEN.get((self.stream.incarnation, self.name), 0)
        return StartPoint(sequence=max(known + 1, point.sequence)) if known else point

    return start


def _remembers_taken(original: Any) -> Any:
    def drop(self: OriginFollower) -> None:
        if self.sink is not None:
            _TAKEN[self.stream.incarnation, self.name] = int(self.sink.sseq)
        original(self)

    return drop


def _unnoticed(original: Any) -> Any:
    """Whoever the origin is, the copy goes on."""

    def meet(self: OriginPlace, identity: str) -> None:
        if identity:
            self.identity = identity

    return meet


def _begun_anew(original: Any) -> Any:
    """A mirror takes the messages of an origin that was made again behind those that it has."""

    def meet(self: OriginPlace, identity: str) -> None:
        try:
            original(self, identity)
        except Recreated:
            self.identity = identity
            driver: Any = self.driver
            driver.begin_again()

    return meet


def _all_again(original: Any) -> Any:
    def restore(self: OriginPlace) -> None:
        original(self)
        if not self.mirror:
            self.seq = 0

    return restore


def _unfiltered(original: Any) -> Any:
    return lambda self: []


def _no_transforms(original: Any) -> Any:
    def listen(self: OriginFollower, request: OriginRequest, answer: Answer) -> None:
        original(self, request, answer)
        assert self.sink is not None
        self.sink.transforms = []

    return listen


def _takes_three_again(original: Any) -> Any:
    def listen(self: OriginFollower, request: OriginRequest, answer: Answer) -> None:
        if not self.mirror:
            self.place.seq, answer.delivered = max(0, self.place.seq - 3), 0
        original(self, request, answer)

    return listen


def _zero(original: Any) -> Any:
    return lambda self: self.sink and original(self) or 0


def _always_live(original: Any) -> Any:
    return property(lambda self: LIVE)


def _as_before(original: Any) -> Any:
    """An origin that was made again is said to be away."""

    def failed(self: OriginFollower, error: Any) -> float:
        if isinstance(error, Recreated):
            error.state = "offline"
        pause: float = original(self, error)
        return pause

    return failed


def _never_empty(original: Any) -> Any:
    async def emptied(self: OriginFollower, pause: float) -> bool:
        return False

    return emptied


def _old_end(original: Any) -> Any:
    """What came since a consumer was asked for is forgotten when it is given up."""

    def drop(self: OriginFollower) -> None:
        before = self.place.seq
        original(self)
        if not self.mirror:
            self.place.seq = before

    return drop


def _skipped_when_full(original: Any) -> Any:
    """What could not be stored is passed over."""

    def failed(self: OriginFollower, sink: Any, text: str) -> None:
        sink.sseq += 1
        sink.closed = True
        self._restart(text)

    return failed


SEEDS = 40
"""Each is found within so many seeds of `STEPS` steps, most in a few."""
_F, _P, _D = OriginFollower, OriginPlace, OriginDrivers
_BUGS = (
    Bug(
        "mirror-skips-one",
        "a mirror leaves one message out whenever it goes on",
        ((_P, "start", _moved_start(True, 1)),),
    ),
    Bug(
        "source-skips-one",
        "a source leaves one message out whenever it goes on",
        ((_P, "start", _moved_start(False, 1)),),
    ),
    Bug(
        "takes-what-comes",
        "a copy leaves out what was published while its link was cut",
        ((_P, "start", _from_now),),
    ),
    Bug(
        "cursor-before-data",
        "a copy goes on behind what it took, which a power cut may have lost",
        ((_P, "start", _ahead_of_data), (_F, "_drop_sink", _remembers_taken)),
    ),
    Bug(
        "another-unnoticed",
        "messages of an origin that was made again are put behind those of the former one",
        ((_P, "meet", _unnoticed),),
    ),
    Bug(
        "another-wipes",
        "a mirror throws away what it has when its origin was made again",
        ((_P, "meet", _begun_anew),),
    ),
    Bug(
        "another-said-away",
        "an origin that was made again is said to be offline",
        ((_F, "_failed", _as_before),),
    ),
    Bug(
        "purge-of-no-use",
        "a mirror that was purged does not begin again with the origin as it is",
        ((_F, "_emptied", _never_empty),),
    ),
    Bug(
        "source-from-the-start",
        "a start takes everything of a source again",
        ((_P, "restore", _all_again),),
    ),
    Bug(
        "source-forgets-its-end",
        "a source takes again what came since it asked last",
        ((_F, "_drop_sink", _old_end),),
    ),
    Bug(
        "source-back-three",
        "a source takes three messages again whenever it goes on",
        ((_F, "_listen", _takes_three_again), (_P, "start", _moved_start(False, -3))),
    ),
    Bug(
        "filter-left-out",
        "a source asks for all subjects",
        ((OriginRequest, "_filters", _unfiltered),),
    ),
    Bug(
        "not-renamed",
        "a source keeps the subjects of its origin",
        ((_F, "_listen", _no_transforms),),
    ),
    Bug(
        "always-live",
        "a copy says that it is live while its link is cut",
        ((Health, "state", _always_live),),
    ),
    Bug(
        "unknown-is-zero",
        "a copy that hears nothing says that nothing is to come",
        ((Health, "lag", _zero),),
    ),
    Bug(
        "silence-not-noticed",
        "a copy does not try again when nothing is heard any more",
        ((_D, "link_up", _nothing), (_F, "_tick", _nothing)),
    ),
    Bug(
        "refused-and-skipped",
        "a copy passes over what it could not store",
        ((_F, "failed", _skipped_when_full),),
    ),
    Bug(
        "dialled-once",
        "a link that ended is not dialled again",
        ((LeafRemote, "_delay", lambda original: lambda self: 1e6),),
    ),
)
BUGS = tuple(replace(bug, seeds=SEEDS) for bug in _BUGS)
