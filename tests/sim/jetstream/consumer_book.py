"""What a client knows of one consumer, and what must therefore hold of every delivery."""

from dataclasses import dataclass, field
from typing import Any

from tests.sim.jetstream.stream_book import StreamBook
from tests.sim.jetstream.world import SECOND_NS, World

EARLY_NS = SECOND_NS // 20
"""By so much a redelivery may come early: loops round their timers."""


@dataclass
class Delivered:
    """One message, as its receiver knows it."""

    count: int
    """How often it was delivered, as the last delivery says."""
    at_ns: int
    life: int
    """Of the node, when it was delivered last."""
    event: int
    """Number of the last delivery among all that happens."""
    answered: str = ""
    """What was answered last: "", "ack", "term", "nak"."""
    answer_event: int = 0
    due_ns: int = 0
    """It may be delivered again from here on."""
    forgotten: bool = False
    """The node went down before anything said that the delivery is on disk."""


@dataclass
class ConsumerBook:
    """One making of one consumer."""

    world: World
    stream: StreamBook
    name: str
    wait_ns: int
    max_deliver: int
    max_pending: int
    filters: tuple[str, ...] = ()
    known: dict[int, Delivered] = field(default_factory=dict)
    firm: dict[int, int] = field(default_factory=dict)
    """How often a message was delivered for certain, as is on disk."""
    confirmed: set[int] = field(default_factory=set)
    """Acks and terms that were answered."""
    deleted: bool = False
    deliveries: int = 0

    def wants(self, subject: str) -> bool:
        """Whether it delivers what is published there."""
        return not self.filters or subject in self.filters

    # -- what the client sees and does ----------------------------------------------

    def got(self, fields: list[bytes], payload: bytes, life: int, event: int, store: Any) -> int:
        """A message came; returns its sequence. `fields` are those of its reply."""
        count, sequence, _, timestamp = (int(fields[n]) for n in (4, 5, 6, 7))
        world, now = self.world, self.world.now_ns
        label = f"{self.name} gets {sequence} ({count})"
        world.note(label)
        self.deliveries += 1
        self.stream.seen(sequence, payload, timestamp)
        world.check(not self.deleted, f"{label} after its deletion was answered")
        world.check(sequence not in self.confirmed, f"{label} behind its confirmed ack")
        message = self.stream.by_name[payload]
        world.check(self.wants(message.subject), f"{label} from {message.subject}")
        limit = self.max_deliver
        world.check(not limit or count <= limit, f"{label}, and {limit} is the limit")
        firm = self.firm.get(sequence, 0)
        world.check(count > firm, f"{label}: it was delivered {firm} times for certain")
        before = self.known.get(sequence)
        if before is not None and before.life == life:
            world.check(count == before.count + 1, f"{label} after delivery {before.count}")
            world.check(
                now >= before.due_ns - EARLY_NS,
                f"{label} {(before.due_ns - now) / SECOND_NS:.2f} s too early",
            )
        self.known[sequence] = Delivered(count, now, life, event, due_ns=now + self.wait_ns)
        waiting = self.outstanding(store)
        limit = self.max_pending
        world.check(
            not limit or len(waiting) <= limit,
            f"{label}, and waits for {len(waiting)} acks: {sorted(waiting)}; the limit is {limit}",
        )
        return sequence

    def outstanding(self, store: Any) -> set[int]:
        """Messages that certainly wait for an ack: delivered, there, and not answered."""
        now = self.world.now_ns
        found = set()
        for sequence, one in self.known.items():
            spent = one.count == self.max_deliver and now >= one.due_ns
            settled = one.answered in ("ack", "term")
            if not settled and not spent and not one.forgotten and store.get(sequence) is not None:
                found.add(sequence)
        return found

    def answers(self, sequence: int, how: str, delay_ns: int, event: int) -> None:
        """The client sends an answer."""
        one = self.known[sequence]
        one.answered, one.answer_event = how, event
        if how == "nak":
            one.due_ns = self.world.now_ns + delay_ns
        elif how == "wpi":
            one.due_ns = self.world.now_ns + self.wait_ns
        elif self.stream.workqueue:
            self.stream.may_go.add(sequence)

    def confirms(self, sequence: int) -> None:
        """An ack or a term was answered."""
        self.confirmed.add(sequence)
        if self.stream.workqueue:
            self.stream.gone.add(sequence)

    # -- what happens to the node -----------------------------------------------------

    def on_disk(self, event: int) -> None:
        """Everything that the node did before this event is on disk."""
        for sequence, one in self.known.items():
            if one.event < event and not one.forgotten:
                self.firm[sequence] = one.count

    def interrupted(self) -> None:
        """The node went down."""
        for sequence, one in self.known.items():
            if self.firm.get(sequence, 0) < one.count:
                one.forgotten = True

    # -- what the node says -------------------------------------------------------------

    def compare(self, numbers: dict[str, int], last: int) -> None:
        """The consumer's own figures, of a stream that ends at `last`."""
        world, name = self.world, self.name
        floor, delivered = numbers["floor_seq"], numbers["delivered_seq"]
        world.check(floor <= delivered, f"{name}: ack floor {floor}, delivered {delivered}")
        world.check(delivered <= last, f"{name}: delivered {delivered}, the stream ends at {last}")
        world.check(
            numbers["next_seq"] <= last + 1,
            f"{name}: goes on at {numbers['next_seq']}, the stream ends at {last}",
        )
        pending = numbers["ack_pending"]
        limit = self.max_pending
        world.check(not limit or pending <= limit, f"{name}: {pending} acks pending, limit {limit}")

    def all_delivered(self, held: dict[int, Any]) -> None:
        """At the end: nothing of what is there was passed over."""
        for sequence, message in held.items():
            if self.wants(message.subject.decode()):
                one = self.known.get(sequence)
                done = one is not None and one.answered in ("ack", "term")
                spent = one is not None and one.count == self.max_deliver
                came = one is not None and (not one.forgotten or done or spent)
                self.world.check(came, f"{self.name} passed over {sequence}")
                self.world.check(
                    done or spent, f"{self.name} did not deliver {sequence} again, nobody acked it"
                )
