"""What must hold of a mirror and of a stream with sources, whatever their origins went through.

Nothing is lost, repeated or mixed: a mirror is one making of its origin, later; a stream with
sources has what each of them got, once and in order. And each says of itself what is so.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from headwater.edge.storage.format.errors import Damaged
from headwater.federation.origins.health import RECREATED, WELL
from tests.sim.jetstream.mirror import CALM_NS, CUT_NS
from tests.sim.jetstream.stream_book import Message, StreamBook, short
from tests.sim.jetstream.world import World


@dataclass
class Making:
    """One making of an origin."""

    book: StreamBook
    subjects: dict[bytes, str] = field(default_factory=dict)
    """Of every message that was sent to it."""
    confirmed: bool = False
    """Somebody was told that it is there."""
    ended: bool = False
    """Its deletion was asked for: what nobody has taken by then may be gone."""

    def may_lack(self, sequence: int, message: Message) -> bool:
        """Whether a copy may have passed a message over. What was sent and not acknowledged counts
        for the limits of the origin, too."""
        unanswered = sum(one.unanswered for one in self.book.by_name.values())
        last = self.book.top + unanswered
        return self.ended or self.book.excused(sequence, message, last)


@dataclass
class Origin:
    """One stream that is followed, through all its makings."""

    name: str
    makings: dict[str, Making] = field(default_factory=dict)
    """By the incarnation of the stream, in their order."""

    def newest(self) -> Making:
        """The making that is there, or was there last."""
        return list(self.makings.values())[-1]

    def of(self, payload: bytes) -> Making | None:
        """The making that a message was sent to."""
        return next((one for one in self.makings.values() if payload in one.subjects), None)


def messages(world: World, store: Any, what: str) -> list[tuple[int, Any]]:
    """All that is committed, in order."""
    found = []
    for sequence in range(store.first_seq, store.committed + 1):
        try:
            message = store.get(sequence)
        except Damaged:
            world.wrong(f"{sequence} of {what} is damaged")
            continue
        if message is not None:
            found.append((sequence, message))
    return found


class Kept:
    """What of a copy was seen committed must stay."""

    def __init__(self, world: World, what: str) -> None:
        self.world = world
        self.what = what
        self.seen: dict[int, bytes] = {}

    def look(self, held: list[tuple[int, Any]]) -> None:
        """Compare with what was seen before."""
        now = {sequence: message.payload for sequence, message in held}
        for sequence, payload in self.seen.items():
            self.world.check(
                now.get(sequence) == payload,
                f"{self.what} had {short(payload)} at {sequence}, and has "
                f"{short(now.get(sequence, b'nothing'))}",
            )
        self.seen = now


class MirrorCopy:
    """The mirror M of S across the link."""

    def __init__(self, world: World, origin: Origin) -> None:
        self.world = world
        self.origin = origin
        self.kept = Kept(world, "the mirror")

    def making(self, held: list[tuple[int, Any]]) -> Making | None:
        """Of which making it has messages; None: of none."""
        found: Making | None = None
        for sequence, message in held:
            of = self.origin.of(message.payload)
            self.world.check(of is not None, f"the mirror has what nobody sent, at {sequence}")
            self.world.check(
                found is None or of is found,
                f"the mirror has messages of two makings of its origin, at {sequence}",
            )
            found = of
        return found

    def compare(self, store: Any) -> None:
        """The whole mirror against what is known of its origin."""
        held = messages(self.world, store, "the mirror")
        self.kept.look(held)
        making = self.making(held)
        if making is None:
            return
        book = making.book
        for sequence, message in held:
            book.is_named(sequence, message.payload, "mirrored")
            book.is_timed(sequence, message.timestamp)
            self.world.check(
                making.subjects.get(message.payload) == message.subject.decode(),
                f"the mirror has {short(message.payload)} on {message.subject!r}",
            )
        there = {sequence for sequence, _ in held}
        for sequence, acked in book.acked.items():
            if sequence <= store.committed and sequence not in there:
                self.world.check(
                    making.may_lack(sequence, acked),
                    f"the mirror has passed {sequence} over, and nothing had removed it",
                )


class SourcedCopy:
    """The stream A with the sources S, across the link, and L."""

    def __init__(
        self, world: World, origins: list[Origin], wants: Callable[[str], bool],
        stored_as: Callable[[str], str],
    ) -> None:
        self.world = world
        self.origins = origins
        self.wants = wants
        self.stored_as = stored_as
        self.kept = Kept(world, "the stream with sources")

    def compare(self, store: Any) -> dict[str, set[int]]:
        """The whole stream against what is known of its sources; returns which sequences of each
        incarnation are in it."""
        world = self.world
        held = messages(world, store, "the stream with sources")
        self.kept.look(held)
        taken: dict[str, set[int]] = {}
        order: dict[str, list[str]] = {}
        at: dict[str, int] = {}
        for sequence, message in held:
            label = short(message.payload)
            found = [
                (origin, incarnation, making)
                for origin in self.origins
                for incarnation, making in origin.makings.items()
                if message.payload in making.subjects
            ]
            if not found:
                world.wrong(f"the stream with sources has what nobody sent, at {sequence}")
                return taken
            origin, incarnation, making = found[0]
            subject = making.subjects[message.payload]
            far = origin.name == "S"
            fits = not far or self.wants(subject)
            world.check(fits, f"{label} is sourced, the filter excludes it")
            wanted = self.stored_as(subject) if far else subject
            world.check(
                message.subject.decode() == wanted,
                f"{label} is on {message.subject.decode()}, not {wanted}",
            )
            number = origin_sequence(message.headers)
            making.book.is_named(number, message.payload, "sourced")
            world.check(
                number > at.get(incarnation, 0),
                f"{label} is sourced after {at.get(incarnation, 0)} of its origin, it is {number}",
            )
            at[incarnation] = number
            taken.setdefault(incarnation, set()).add(number)
            makings = order.setdefault(origin.name, [])
            if incarnation not in makings:
                makings.append(incarnation)
            world.check(
                makings[-1] == incarnation, f"{label} is sourced after what was sent to a later one"
            )
        for origin in self.origins:
            self._complete(origin, taken)
        return taken

    def _complete(self, origin: Origin, taken: dict[str, set[int]]) -> None:
        """Nothing was passed over."""
        for incarnation, making in origin.makings.items():
            there = taken.get(incarnation, set())
            last = max(there, default=0)
            for sequence, acked in making.book.acked.items():
                wanted = origin.name != "S" or self.wants(acked.subject)
                if wanted and sequence < last and sequence not in there:
                    self.world.check(
                        making.may_lack(sequence, acked),
                        f"the stream with sources has passed {sequence} of {origin.name} over",
                    )


def origin_sequence(headers: bytes) -> int:
    """The sequence that a message had at its origin, as it says."""
    for line in headers.split(b"\r\n"):
        if line.startswith(b"Nats-Stream-Source:"):
            return int(line.split(b":", 1)[1].split()[1])
    return 0


class Said:
    """What a mirror or source says of itself, against what is so."""

    def __init__(self, world: World, row: dict[str, Any], far: bool) -> None:
        self.world = world
        self.row = row
        self.far = far
        self.who = f"{row['kind']} of {row['origin']}"

    def cut_off(self, calm_ns: int) -> None:
        """The link is cut."""
        if self.far and calm_ns > CUT_NS:
            self.world.check(
                self.row["state"] not in WELL,
                f"the link is cut, and the {self.who} says {self.row}",
            )
            self.world.check(
                self.row["pending_messages"] is None,
                f"the link is cut, and the {self.who} knows what is to come: {self.row}",
            )

    def at_rest(self, calm_ns: int, lacks: list[int]) -> None:
        """Nothing was wrong for so long."""
        if calm_ns < CALM_NS:
            return
        self.world.check(not lacks, f"nothing is wrong, and the {self.who} lacks {lacks[:9]}")
        self.world.check(
            self.row["pending_messages"] == 0, f"the {self.who} has all, and says {self.row}"
        )

    def of_another(self, calm_ns: int) -> None:
        """The origin is not the one whose messages the mirror has."""
        if calm_ns > CALM_NS:
            self.world.check(
                self.row["state"] == RECREATED, f"its origin is another, and it says {self.row}"
            )
