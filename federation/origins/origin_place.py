"""How far one origin has been taken, and which stream that was.

An origin may be deleted and made again, put back from an older image, or restored from a backup.
Each of them gives sequences out again, so that a number alone does not say where to go on.
"""

import logging
from collections.abc import Callable
from typing import Any, Protocol

from headwater.edge.jetstream.model.models import StreamSource
from headwater.edge.jetstream.model.times import format_time, parse_time
from headwater.edge.storage.format.errors import Damaged
from headwater.federation.origins.origin_cursor import Cursor, EarlierOrigin
from headwater.federation.origins.origin_errors import Recreated, Refilling
from headwater.federation.origins.origin_history import TIME_MAX, Mark, OriginHistory
from headwater.federation.origins.origin_questions import OriginQuestions
from headwater.federation.origins.origin_request import StartPoint, source_parts
from headwater.federation.origins.origin_sink import SOURCE_HEADER, OriginSink

log = logging.getLogger("headwater.origin")

EARLIER_MAX = 16
"""Incarnations of an origin that a source remembers besides the one that it takes."""


class PlaceKeeper(Protocol):
    """What keeps the places of one stream's origins, as they see it: an `OriginDriver`."""

    manager: Any
    """Keeps cursors: `origins.Origins`."""

    def source_of(self, headers: bytes) -> tuple[str, int, str]:
        """Which source a stored message came from: its name, sequence there, and identity."""


class OriginPlace:
    """Where one mirror or source stands in its origin."""

    def __init__(
        self,
        driver: PlaceKeeper,
        stream: Any,
        source: StreamSource,
        questions: OriginQuestions,
        *,
        mirror: bool,
    ) -> None:
        self.driver = driver
        self.stream = stream
        self.source = source
        self.mirror = mirror
        self.name = " ".join(source_parts(source))
        self.identity = ""
        """Of the origin; "" while unknown."""
        self.seq = 0
        """Last sequence of the origin that was taken; of a source, a mirror looks at its store."""
        self.mark = Mark()
        """The message of the origin that was taken last, while its time is known."""
        self.stored_ns = 0
        """When this stream stored the last message of the origin; 0 while unknown."""
        self.since_ns = 0
        """Where nothing else tells where to go on: the time from which the origin is taken."""
        self.earlier: list[EarlierOrigin] = []
        """Incarnations that were taken before this one, oldest first; of a source."""
        self.rebuilt = False
        """Whether the origin was made again, so that all of it is new."""
        origin_of: Callable[[bytes], int] | None = None if mirror else self._origin_of
        self.history = OriginHistory(stream, questions, origin_of)

    def label(self) -> str:
        """What log lines call it."""
        kind = "mirror" if self.mirror else "source"
        where = f"{self.stream.account.name} > {self.stream.name}"
        return f"{kind} {self.source.name!r} of stream '{where}'"

    # --- where to go on ----------------------------------------------------

    def restore(self) -> None:
        """Take up the cursor that was kept, and what the last messages know beyond it."""
        kept = self.driver.manager.cursor(self.stream, self.name, self.mirror)
        self.seq, self.identity = kept.seq, kept.identity
        if self.mirror:
            return
        self.earlier = kept.earlier
        if kept.time:
            self.mark = Mark(kept.timed or kept.seq, kept.time)
        store = self.stream.store
        at = store.last_seq
        end = max(store.first_seq, kept.local + 1)
        end = max(end, at - self.driver.manager.scan_max)
        while at >= end:
            at -= 1
            try:
                found = store.get(at + 1)
            except Damaged:
                continue
            if found is None or SOURCE_HEADER not in found.headers:
                continue
            name, sequence, identity = self.driver.source_of(found.headers)
            if name == self.name:
                if identity and identity != self.identity:
                    self._leave()
                    self._returned(identity)
                    self.identity = identity
                self.seq = sequence
                self.mark = Mark()
                return

    def _origin_of(self, headers: bytes) -> int:
        """The origin's sequence of a stored message; 0 for one of another source."""
        if SOURCE_HEADER not in headers:
            return 0
        name, sequence, _ = self.driver.source_of(headers)
        return sequence if name == self.name else 0

    def start(self) -> StartPoint:
        """Where the origin is to begin."""
        source, store = self.source, self.stream.store
        if self.mirror:
            if store.last_seq > 0 and (store.messages or store.last_seq >= store.first_seq):
                return StartPoint(sequence=store.last_seq + 1)
            return self._configured_start()
        if self.since_ns:
            # The origin has no memory of what was taken last; what it got since is new.
            return StartPoint(time=format_time(self.since_ns + 1))
        if self.seq > 0:
            return StartPoint(sequence=self.seq + 1)
        if self.rebuilt or not source.opt_start_time:
            return self._configured_start()
        configured = parse_time(source.opt_start_time)
        if store.messages and store.last_ts > configured:
            return StartPoint(time=format_time(store.last_ts))
        return self._configured_start()

    def _configured_start(self) -> StartPoint:
        source = self.source
        if source.opt_start_seq > 0:
            return StartPoint(sequence=source.opt_start_seq)
        return StartPoint(time=source.opt_start_time or "")

    def had(self) -> int:
        """Last sequence of the origin that is here."""
        return int(self.stream.store.last_seq) if self.mirror else self.seq

    # --- what moves it ----------------------------------------------------

    def came(self, sink: OriginSink) -> None:
        """`sink` has taken what it took, and takes no more."""
        self.seq = sink.sseq
        if sink.messages:
            self.stored_ns = self.stream.store.last_ts
            self.mark = Mark(sink.stored, sink.last_ts)
        self.driver.manager.remember_cursor(self.stream, self.name, self._cursor())

    def meet(self, identity: str) -> None:
        """The origin says who it is. Raises Recreated when a mirror cannot go on with it."""
        if not identity or identity == self.identity:
            return
        if not self.identity:
            self._remember(identity)
            return
        if self.mirror:
            raise Recreated("the origin was deleted and made again")
        self._leave()
        known = self._returned(identity)
        if known is None:
            log.warning("%s: the origin was made again, all of it is taken", self.label())
            self.seq, self.mark = 0, Mark()
        else:
            log.warning(
                "%s: another origin is back that was taken up to %d; what follows is taken",
                self.label(),
                known.seq,
            )
            self.seq, self.mark = known.seq, Mark(known.timed, known.time)
        self.rebuilt = known is None
        self.since_ns = 0
        self._remember(identity)

    def knows(self, identity: str) -> bool:
        """Whether this incarnation is being taken, or was before."""
        return identity == self.identity or any(one.identity == identity for one in self.earlier)

    def _leave(self) -> None:
        """Another incarnation follows: this one may come back."""
        if self.identity and self.seq:
            now = EarlierOrigin(self.identity, self.seq, *self.mark)
            self.earlier = [*self.earlier, now][-EARLIER_MAX:]

    def _returned(self, identity: str) -> EarlierOrigin | None:
        """The incarnation of that identity, if it was taken before; it is no earlier one now."""
        found = next((one for one in self.earlier if one.identity == identity), None)
        self.earlier = [one for one in self.earlier if one is not found]
        return found

    def await_refill(self, identity: str, last: int, behind: int) -> None:
        """The origin of that identity is a mirror, which ends at `last` and lacks `behind` messages
        of its own origin. One that was made again gets what was taken here a second time: only
        then can the two be compared. Raises Refilling."""
        known = not self.identity or self.knows(identity)
        if not self.mirror and not known and last <= self.seq and (behind or not last):
            raise Refilling

    async def meet_restored(
        self, subject: str, span: tuple[int, int], created: int, identity: str
    ) -> None:
        """The origin was made again from a backup: what is older than it is known, as far as it is
        here. `subject` answers STREAM.MSG.GET, `span` is the origin's first and last sequence, and
        `created` its time in ns."""
        low = self.stream.store.last_seq - self.driver.manager.scan_max
        parting = await self.history.parting(subject, span, low, created)
        if parting:
            log.warning(
                "%s: the origin was made again from a backup, what follows %d is taken",
                self.label(),
                parting,
            )
            self._leave()
            self.seq = parting
            self.mark = self.history.known
            self._remember(identity)

    async def compare(self, subject: str, span: tuple[int, int]) -> None:
        """The origin has the sequences `span`. One that ends before what was taken of it, or has
        other messages instead, lost its newest or was put back from a backup; what it gets next
        would be taken for known. Raises Recreated when a mirror cannot go on with it."""
        store, last = self.stream.store, span[1]
        have = self.had()
        if not have:
            return
        if last >= have and await self.history.agrees(subject, self.mark):
            if self.history.known.seq == have:
                self.mark = self.history.known
            return
        if self.mirror:
            raise Recreated(
                f"the origin ends at {last}, this mirror holds messages up to {have}"
                + (" that are not the origin's" if last >= have else "")
            )
        low = store.last_seq - self.driver.manager.scan_max
        # What an origin stores after it went back is newer, by its clock, than what was taken.
        newest = self.mark.time
        before = newest + 1 if newest else TIME_MAX
        self.seq = await self.history.parting(subject, span, low, before)
        self.mark = self.history.known
        # Without a message that both have, what the origin got since the newest here is new.
        self.since_ns = 0 if self.seq else newest or self.stored_ns or store.last_ts
        log.warning(
            "%s: the origin went back and ends at %d, up to %d was taken; it is taken from %s on",
            self.label(),
            last,
            have,
            self.seq + 1 if self.seq else format_time(self.since_ns),
        )

    def _remember(self, identity: str) -> None:
        self.identity = identity
        self.driver.manager.keep_cursor(self.stream, self.name, self.mirror, self._cursor())

    def _cursor(self) -> Cursor:
        """How far the origin has been taken."""
        last, (timed, time) = self.stream.store.last_seq, self.mark
        return Cursor(self.seq, last, self.identity, time, timed, self.earlier)
