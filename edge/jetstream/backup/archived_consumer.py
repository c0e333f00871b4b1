"""A consumer as stream backups have it: its configuration, and how far it is.

Both are JSON in the shape that nats-server writes: positions, `pending` (messages that wait for
their acks, by stream sequence) and `redelivered` (deliveries after the first).
"""

from typing import Annotated, Any

import msgspec

from headwater.edge.jetstream.consumer.consumer_info import consumer_info
from headwater.edge.jetstream.model.models import ConsumerConfig

Sequence = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
Moment = Annotated[int, msgspec.Meta(ge=-(1 << 62), lt=1 << 62)]
Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]


class Position(msgspec.Struct):
    """A pair of sequences."""

    consumer_seq: Sequence = 0
    stream_seq: Sequence = 0


class Waiting(msgspec.Struct, rename="pascal"):
    """A message that was delivered as `sequence` of the consumer, at a wall time in ns."""

    sequence: Sequence = 0
    timestamp: Moment = 0


class ArchivedProgress(msgspec.Struct, omit_defaults=True):
    """How far a consumer is."""

    delivered: Position = msgspec.field(default_factory=lambda: Position())
    ack_floor: Position = msgspec.field(default_factory=lambda: Position())
    pending: dict[Sequence, Waiting] | None = None
    redelivered: dict[Sequence, Count] | None = None

    def resume(self, consumer: Any) -> None:
        """Have a consumer that has not begun go on from here."""
        if not self.delivered.stream_seq and not self.delivered.consumer_seq:
            return
        again = dict(self.redelivered or {})
        waiting = [
            (seq, found.sequence, found.timestamp, again.pop(seq, 0) + 1)
            for seq, found in sorted((self.pending or {}).items())
        ]
        consumer.go_on(
            (self.delivered.stream_seq, self.delivered.consumer_seq),
            (self.ack_floor.stream_seq, self.ack_floor.consumer_seq),
            waiting,
            {seq: count + 1 for seq, count in again.items()},
        )


class ArchivedConsumer(msgspec.Struct):
    """What an archive tells of one consumer."""

    config: ConsumerConfig
    state: ArchivedProgress = msgspec.field(default_factory=ArchivedProgress)


def consumer_entry(consumer: Any, last: int) -> bytes:
    """A consumer as it is written to the backup of a stream that ends at `last`."""
    info = consumer_info(consumer)
    delivered, floor = (
        Position(found.consumer_seq, min(found.stream_seq, last))
        for found in (info.delivered, info.ack_floor)
    )
    waiting = [found for found in consumer.waiting_entries() if found[0] <= last]
    again = {seq: deliveries - 1 for seq, _, _, deliveries in waiting if deliveries > 1}
    again.update({seq: count - 1 for seq, count in consumer.exhausted.items() if seq <= last})
    state = ArchivedProgress(
        delivered=delivered,
        ack_floor=floor,
        pending={seq: Waiting(own, since) for seq, own, since, _ in waiting} or None,
        redelivered=again or None,
    )
    return msgspec.json.encode({"config": consumer.config, "state": state})
