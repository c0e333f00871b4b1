"""What clients of a cluster said and heard, and what must follow from it.

Nobody says anything twice, so nothing may be there twice.
"""

import json
from dataclasses import dataclass
from typing import Any

from tests.sim.jetstream.world import SECOND_NS, World

PATIENCE_NS = 6 * SECOND_NS
"""After which whoever was held must have heard something: `HOLD_SECONDS`, once at each of two
nodes, and what looks and routes take."""
FULL_NS = SECOND_NS // 10
TROUBLE_NS = 4 * SECOND_NS
"""How long before and after a fault messages on their way may be lost."""


@dataclass
class Said:
    """One thing that a client said at a node."""

    name: bytes
    node: str
    life: int
    """Of that node."""
    at_ns: int
    held: bool
    """The node knew that nobody leads."""
    stalled: bool = False
    """A route of the node carried nothing, and it did not know."""
    expires_ns: int = 0
    """How long a pull request waits for messages."""
    sequence: int = 0
    """Under which it was acknowledged; 0: it was not."""
    refused: str = ""
    """Why it was not taken; "" while nothing was heard."""

    @property
    def answered(self) -> bool:
        """Whether the client has heard something."""
        return bool(self.sequence or self.refused)


class SaidBook:
    """Of one run."""

    def __init__(self, world: World, gentle: bool, listened: bool) -> None:
        self.world = world
        self.gentle = gentle
        self.said: dict[bytes, Said] = {}
        self.asked: list[Said] = []
        """Pull requests, and acks whose confirmation is waited for."""
        self.refusals: list[Said] = []
        """Publishes that were refused soon, though no leader left without a handover."""
        self.confirmed: set[int] = set()
        """Sequences whose ack was confirmed."""
        self.delivered: set[int] = set()
        self.troubles: list[int] = []
        """When a node went down or came up, or a route ended or came to be."""
        self.losses: list[int] = []
        """When something may have been lost that was on its way."""
        self.listened = listened
        self.full: dict[str, list[int]] = {}
        """When each node held as much as it may. Who publishes then hears of it unless somebody
        else listens: so it is with a nats-server, too."""
        self.checks = 0

    def is_full(self, node: str) -> None:
        """A node holds as much as it may."""
        self.full.setdefault(node, []).append(self.world.now_ns)

    def trouble(self, loses: bool) -> None:
        """Something is wrong, or came right; `loses`: what is on its way may be lost."""
        self.troubles.append(self.world.now_ns)
        if loses:
            self.losses.append(self.world.now_ns)

    # -- what is heard ----------------------------------------------------------------

    def published(self, said: Said, headers: bytes, payload: bytes) -> None:
        """The answer to a publish."""
        self.world.check(not said.answered, f"{said.name!r} is answered twice")
        if b" 503" in headers:
            said.refused = "503"
        else:
            answer = json.loads(payload)
            said.sequence = answer.get("seq", 0)
            said.refused = str(answer["error"]["err_code"]) if "error" in answer else ""
        if said.refused:
            self.world.note(f"{said.node}: {said.name.decode()} is refused: {said.refused}")
            if self.gentle and self.world.now_ns - said.at_ns < 2 * SECOND_NS:
                self.refusals.append(said)

    def got(self, sequence: int) -> None:
        """A message was delivered."""
        self.world.check(
            sequence not in self.confirmed, f"{sequence} is delivered behind its confirmed ack"
        )
        self.delivered.add(sequence)

    # -- what must hold ---------------------------------------------------------------

    def _is_excused(self, said: Said) -> bool:
        """Whether what was said may have been lost on its way."""
        # What found no room went on a route that may have stalled, as far as the node knew.
        held = said.held and not self._found_full(said)
        begin = said.at_ns if held else said.at_ns - TROUBLE_NS
        end = said.at_ns + said.expires_ns + PATIENCE_NS + TROUBLE_NS
        if any(begin <= at <= end for at in (self.losses if held else self.troubles)):
            return True
        return self.listened and self._found_full(said)

    def _found_full(self, said: Said) -> bool:
        """Whether a node had no room for what was said."""
        times = self.full.get(said.node, [])
        return any(said.at_ns <= at <= said.at_ns + FULL_NS for at in times)

    def look(self) -> None:
        """Nobody waits for ever."""
        self.checks += 1
        for said in self.refusals:
            self.world.check(
                self._is_excused(said) or self._found_full(said),
                f"{said.name!r} is refused with {said.refused}, and the leader was asked to leave",
            )
        self.refusals.clear()
        for said in [*self.said.values(), *self.asked]:
            waited = self.world.now_ns - said.at_ns - said.expires_ns
            old = waited > PATIENCE_NS + TROUBLE_NS
            if old and not said.answered and not self._is_excused(said):
                self.world.wrong(
                    f"{said.name!r} of {said.at_ns / SECOND_NS:.3f} s at {said.node} was"
                    f" {'held' if said.held else 'sent'}, and nobody said what became of it"
                )

    def compare(self, rows: list[tuple[int, bytes]], where: str) -> None:
        """The whole stream, (sequence, payload) each."""
        self.checks += 1
        places: dict[bytes, int] = {}
        newest: dict[tuple[str, int], int] = {}
        for sequence, name in rows:
            said = self.said.get(name)
            if said is None:
                self.world.wrong(f"{where} has {name!r} at {sequence}, which nobody said")
                return
            twice = places.setdefault(name, sequence)
            if said.stalled and not said.held:
                # A route may keep it until the node at its other end leads again.
                continue
            self.world.check(
                twice == sequence, f"{name!r} is at {twice} and at {sequence} of {where}"
            )
            source = (said.node, said.life)
            number = int(name.rsplit(b".", 1)[1])
            self.world.check(
                newest.get(source, -1) < number,
                f"{name!r} is behind {newest.get(source)} of the same client in {where}",
            )
            newest[source] = number
        for said in self.said.values():
            if said.sequence:
                at = places.get(said.name)
                self.world.check(
                    at == said.sequence,
                    f"{said.name!r} was acknowledged at {said.sequence}, {where} has it at {at}",
                )


def rows_of(store: Any) -> list[tuple[int, bytes]]:
    """What a stream's store holds, as far as it is committed."""
    found = (store.get(n) for n in range(store.first_seq, store.committed + 1))
    return [(message.sequence, message.payload) for message in found if message is not None]
