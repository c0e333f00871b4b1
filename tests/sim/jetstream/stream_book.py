"""What clients know of one stream, and what must therefore hold of it at every moment.

The book is written by what clients sent and were answered alone. A message may be missing only for
a reason that is in the book: a delete, a purge, a limit, an ack of a work queue.
"""

from dataclasses import dataclass, field
from typing import Any

from tests.sim.jetstream.world import SECOND_NS, World

AGE_SLACK_NS = SECOND_NS // 10


@dataclass
class Message:
    """One message that was published."""

    name: bytes
    """Its payload, which no other message has."""
    subject: str
    id: bytes = b""
    expected: int = -1
    """The last sequence that the stream must have; -1 is any."""
    sent_ns: int = 0
    """When it was sent first."""
    again_ns: int = 0
    """When it was sent last."""
    above: int = 0
    """The greatest sequence that was acknowledged when it was sent first."""
    sequence: int = 0
    """0 until it is acknowledged."""
    acked_ns: int = 0
    unanswered: bool = False
    """It is sent, and not yet acknowledged: the stream may have it, or have it once more."""
    forgotten: bool = False
    """It was removed before a start: the node knows the ids of stored messages alone then."""


@dataclass
class Purge:
    """One purge that was asked for."""

    subject: str
    """"" for all."""
    below: int
    """Sequences from here on stay; 0: none by that."""
    keep: int
    """So many of the newest stay."""
    sent_ns: int
    top: int
    """The greatest sequence that was known to be acknowledged then."""
    end_ns: int = 0
    """When it was answered, or could be answered no more; 0: still under way."""
    confirmed: bool = False

    def covers(self, sequence: int, message: Message) -> bool:
        """Whether it may have removed a message."""
        late = self.end_ns and message.sent_ns > self.end_ns
        other = self.subject and self.subject != message.subject
        return not late and not other and not (self.below and sequence >= self.below)


@dataclass
class Limits:
    """What the stream was allowed to hold, at its tightest."""

    max_msgs: int = 0
    max_per_subject: int = 0
    max_age_ns: int = 0

    def tighten(self, config: dict[str, Any]) -> None:
        """Another configuration was asked for."""
        self.max_msgs = least(self.max_msgs, config.get("max_msgs", 0))
        self.max_per_subject = least(self.max_per_subject, config.get("max_msgs_per_subject", 0))
        self.max_age_ns = least(self.max_age_ns, config.get("max_age", 0))


def least(a: int, b: int) -> int:
    """The lesser of two limits, of which 0 and less is none."""
    return min((n for n in (a, b) if n > 0), default=0)


def short(name: bytes) -> str:
    """A message without what fills it up."""
    return name.split(b" ")[0].decode()


@dataclass
class StreamBook:
    """All of one stream."""

    world: World
    window_ns: int
    """Of duplicates."""
    limits: Limits = field(default_factory=Limits)
    workqueue: bool = False
    by_name: dict[bytes, Message] = field(default_factory=dict)
    names: dict[int, bytes] = field(default_factory=dict)
    """Which message a sequence stands for, by whoever said so first."""
    times: dict[int, int] = field(default_factory=dict)
    """The stored time of a sequence, by whoever said so first."""
    acked: dict[int, Message] = field(default_factory=dict)
    top: int = 0
    """The greatest sequence that was acknowledged."""
    may_go: set[int] = field(default_factory=set)
    """Deletes and acks were asked for."""
    gone: set[int] = field(default_factory=set)
    """Removals of these were confirmed."""
    purges: list[Purge] = field(default_factory=list)
    checks: int = 0

    # -- what clients hear --------------------------------------------------------

    def published(self, message: Message) -> None:
        """A message is sent, for the first time or again."""
        now = self.world.now_ns
        if not message.sent_ns:
            message.sent_ns, message.above = now, self.top
            self.by_name[message.name] = message
        message.again_ns, message.unanswered = now, True

    def took(self, message: Message, sequence: int, duplicate: bool) -> None:
        """The stream acknowledges a message."""
        world, label = self.world, short(message.name)
        self.is_named(sequence, message.name, "acknowledged")
        if message.expected >= 0 and not duplicate:
            world.check(
                sequence == message.expected + 1,
                f"{label} is stored at {sequence}, it expected {message.expected} to be the last",
            )
        if message.sequence and message.sequence != sequence:
            fresh = message.again_ns - message.sent_ns < self.window_ns
            world.check(
                not message.id or not fresh or message.forgotten,
                f"{label} is stored at {message.sequence} and, within the window, at {sequence}",
            )
        world.check(
            sequence > message.above,
            f"{label} is stored at {sequence}, but {message.above} was taken before it was sent",
        )
        if message.sequence != sequence:
            message.forgotten = False
        message.sequence, message.acked_ns = sequence, world.now_ns
        message.unanswered = False
        self.acked[sequence] = message
        self.top = max(self.top, sequence)

    def loads_ids(self, store: Any) -> None:
        """The node is about to learn from what it has stored which ids it knows."""
        for sequence, message in self.acked.items():
            if store.get(sequence) is None:
                message.forgotten = True

    def is_named(self, sequence: int, name: bytes, how: str) -> None:
        """Somebody saw this message under this sequence."""
        known = self.names.setdefault(sequence, name)
        self.world.check(
            known == name,
            f"{sequence} stands for {short(known)}, and {short(name)} is {how} under it",
        )

    def is_timed(self, sequence: int, timestamp: int) -> None:
        """Somebody saw a message with this time."""
        known = self.times.setdefault(sequence, timestamp)
        self.world.check(known == timestamp, f"{sequence} has the times {known} and {timestamp}")

    def seen(self, sequence: int, name: bytes, timestamp: int) -> None:
        """A consumer got a message."""
        self.is_named(sequence, name, "delivered")
        self.is_timed(sequence, timestamp)
        self.world.check(sequence not in self.gone, f"{sequence} is delivered, it was removed")

    def purged(self, purge: Purge) -> None:
        """A purge was confirmed."""
        purge.end_ns, purge.confirmed = self.world.now_ns, True
        if purge.keep:
            return
        for sequence, message in self.acked.items():
            if message.acked_ns < purge.sent_ns and purge.covers(sequence, message):
                self.gone.add(sequence)

    def interrupted(self) -> None:
        """The node went down: what was not answered by now is not going on."""
        for purge in self.purges:
            purge.end_ns = purge.end_ns or self.world.now_ns

    # -- what must hold -----------------------------------------------------------

    def excused(self, sequence: int, message: Message, last: int) -> bool:
        """Whether a message may be missing from a stream that ends at `last`."""
        if sequence in self.may_go or sequence in self.gone:
            return True
        if any(purge.covers(sequence, message) for purge in self.purges):
            return True
        limits = self.limits
        if limits.max_msgs and last - sequence >= limits.max_msgs:
            return True
        age = self.world.now_ns - message.sent_ns
        if limits.max_age_ns and age >= limits.max_age_ns - AGE_SLACK_NS:
            return True
        if limits.max_per_subject:
            same = {one.name for one in self.by_name.values() if one.subject == message.subject}
            later = [n for n, name in self.names.items() if n > sequence and name in same]
            later += [0 for name in same if self.by_name[name].unanswered]
            return len(later) >= limits.max_per_subject
        return False

    def compare(self, store: Any, where: str) -> dict[int, Any]:
        """A whole store against the book; returns its messages."""
        self.checks += 1
        held: dict[int, Any] = {}
        newest = 0
        for sequence in range(store.first_seq, store.committed + 1):
            message = store.get(sequence)
            if message is None:
                continue
            held[sequence] = message
            self.is_named(sequence, message.payload, f"stored {where}")
            self.is_timed(sequence, message.timestamp)
            self.world.check(message.timestamp >= newest, f"the times of {where} go back")
            newest = message.timestamp
        self.world.check(not store.lost, f"{where} has lost {dict(store.lost)}")
        self.world.check(
            store.last_seq >= self.top,
            f"{where} ends at {store.last_seq}, and {self.top} was acknowledged",
        )
        for sequence, acked in self.acked.items():
            if sequence not in held:
                self.world.check(
                    self.excused(sequence, acked, store.last_seq),
                    f"{sequence} ({short(acked.name)}) was acknowledged and is not in {where}",
                )
        back = self.gone & set(held)
        self.world.check(not back, f"{sorted(back)} were removed and are in {where} again")
        for sequence, message in held.items():
            known = self.by_name.get(message.payload)
            self.world.check(
                known is not None and known.subject == message.subject.decode(),
                f"{where} has {short(message.payload)} on {message.subject!r} at {sequence}",
            )
        return held
