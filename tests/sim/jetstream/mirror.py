"""What must hold of a mirror: it is its origin, later; and it says how much later."""

from typing import Any

from headwater.edge.storage.format.errors import Damaged
from headwater.federation.origins.health import WELL
from tests.sim.jetstream.world import SECOND_NS

MIRROR = "M"
CALM_NS = 25 * SECOND_NS
"""When nothing was wrong for so long, a mirror has everything and says so."""
CUT_NS = 12 * SECOND_NS
"""When nothing could come for so long, a mirror says that it is not well."""


def to_come(origin: Any, copy: Any) -> list[int]:
    """What is at the origin, and the mirror has yet to get. What was removed before it came is
    passed over with the next message."""
    return [
        n for n in range(copy.last_seq + 1, origin.last_seq + 1) if origin.get(n) is not None
    ]


class MirrorCheck:
    """The mirror of one run, which may have none."""

    def __init__(self, story: Any) -> None:
        self.story = story
        self.world = story.world
        self.there = story.setting.mirrored
        self.touched_ns = 0
        self.last = 0

    def config(self) -> dict[str, Any]:
        """The stream to make."""
        api = f"$JS.{self.story.origin.name}.API"
        return {"name": MIRROR, "mirror": {"name": "S", "external": {"api": api}}}

    def touched(self) -> None:
        """Something was wrong, or came right, that a mirror notices later."""
        self.touched_ns = self.world.now_ns

    def status(self) -> dict[str, Any] | None:
        """What the node says of the mirror."""
        node = self.story.copy.node
        if node is None or not self.there:
            return None
        rows = [row for service in node.services for row in service.status().get("origins", [])]
        return rows[0] if rows else None

    def _ends(self) -> tuple[Any, Any] | None:
        origin = self.story.origin.stream("S")
        copy = self.story.copy.stream(MIRROR)
        if origin is None or copy is None or self.story.origin.gone or self.story.copy.gone:
            return None
        return origin.store, copy.store

    def look(self) -> None:
        """After each step: a mirror is never ahead, and never goes back while it lives."""
        ends = self._ends()
        if ends is not None:
            origin, copy = ends
            self.world.check(
                copy.last_seq <= origin.last_seq,
                f"the mirror ends at {copy.last_seq}, its origin at {origin.last_seq}",
            )

    def compare(self) -> None:
        """The whole mirror against the book."""
        stream = self.story.copy.stream(MIRROR)
        if not self.there or stream is None:
            return
        store, book = stream.store, self.story.book
        held = {}
        for sequence in range(store.first_seq, store.last_seq + 1):
            try:
                message = store.get(sequence)
            except Damaged:
                self.world.wrong(f"{sequence} of the mirror is damaged")
                return
            if message is not None:
                held[sequence] = message
                book.is_named(sequence, message.payload, "mirrored")
                book.is_timed(sequence, message.timestamp)
        ends = self._ends()
        # What nobody was told of yet may have removed it, too.
        end = max(book.top, store.last_seq, *book.names, ends[0].last_seq if ends else 0)
        for sequence, acked in book.acked.items():
            if sequence <= store.last_seq and sequence not in held:
                self.world.check(
                    book.excused(sequence, acked, end),
                    f"the mirror has passed {sequence} over, and nothing had removed it",
                )
        if ends is not None:
            origin, _ = ends
            missing = [
                n for n in range(origin.first_seq, store.last_seq + 1)
                if n not in held and origin.get(n) is not None
            ]
            self.world.check(not missing, f"the mirror has passed {missing} over, which are there")

    def quiet(self, seconds: int) -> None:
        """Let time go on, and see what the mirror says of itself then."""
        self.world.sleep(seconds)
        status, ends = self.status(), self._ends()
        calm_ns = self.world.now_ns - self.touched_ns
        if status is None or ends is None:
            return
        network = self.story.network
        if not network.up and calm_ns > CUT_NS:
            self.world.check(
                status["state"] not in WELL, f"the link is cut, and the mirror says {status}"
            )
        wrong = any(m.disk.full or m.write_delay_s for m in self.story.machines)
        if network.up and not wrong and calm_ns > CALM_NS:
            lacks = to_come(*ends)
            self.world.check(not lacks, f"nothing is wrong, and the mirror lacks {lacks}")
            said = status["pending_messages"]
            self.world.check(said == 0, f"the mirror has everything, and says {status}")

    def behind(self) -> list[str]:
        """What keeps it from being its origin."""
        if not self.there:
            return []
        ends, status = self._ends(), self.status()
        if ends is None or status is None:
            return ["there is no mirror"]
        if to_come(*ends) or status["pending_messages"] != 0:
            return [f"the mirror ends at {ends[1].last_seq}, not {ends[0].last_seq}: {status}"]
        return [] if status["well"] else [f"the mirror is not well: {status}"]

    def at_end(self, held: dict[int, Any]) -> None:
        """Everything has come right: all of the origin is here."""
        if self.there:
            self.compare()
            ends = self._ends()
            assert ends is not None
            lacks = [
                sequence for sequence in held
                if ends[1].get(sequence) is None
            ]
            self.world.check(not lacks, f"the mirror lacks {lacks}")
