"""Consumers as the API shows them."""

from typing import Any

import msgspec

from headwater.edge.facts.version import API_LEVEL, NATS_LEVEL
from headwater.edge.jetstream.model.models import (
    ConsumerConfig,
    ConsumerInfo,
    PriorityGroupState,
    SequenceInfo,
)
from headwater.edge.jetstream.model.times import ZERO_TIME, format_time


def shown(config: ConsumerConfig, listed: bool = False) -> ConsumerConfig:
    """`config` as answers show it, with the server's version and level where it is not `listed`."""
    level = {} if listed else {"_nats.ver": NATS_LEVEL, "_nats.level": str(API_LEVEL)}
    metadata = dict(sorted({**config.metadata, **level}.items()))
    return msgspec.structs.replace(config, metadata=metadata)


def _time(ns: int) -> str | None:
    return format_time(ns) if ns else None


def _groups(consumer: Any) -> list[PriorityGroupState]:
    if not consumer.config.priority_groups:
        return []
    return [
        PriorityGroupState(
            group=consumer.config.priority_groups[0],
            pinned_client_id=consumer.pin,
            pinned_ts=_time(consumer.pinned_ns) or ZERO_TIME,
        )
    ]


def consumer_info(consumer: Any, *, listed: bool = False) -> ConsumerInfo:
    """Answer to CONSUMER.INFO, or one entry of CONSUMER.LIST, which does without the server's
    version."""
    now = consumer.stream.kernel.clock()
    numbers = consumer.numbers()
    config = consumer.config
    left = max(consumer.paused_until - now, 0)
    return ConsumerInfo(
        stream_name=consumer.stream.name,
        name=consumer.name,
        created=format_time(consumer.created_ns),
        config=shown(config, listed),
        delivered=SequenceInfo(
            consumer_seq=numbers["next_cseq"] - 1,
            stream_seq=numbers["delivered_seq"],
            last_active=_time(numbers["delivered_ns"]),
        ),
        ack_floor=SequenceInfo(
            consumer_seq=numbers["floor_cseq"],
            stream_seq=numbers["floor_seq"],
            last_active=_time(numbers["acked_ns"]),
        ),
        num_ack_pending=numbers["ack_pending"],
        num_redelivered=0 if config.max_deliver == 1 else numbers["redelivered"],
        num_waiting=numbers["waiting"],
        num_pending=numbers["unread"],
        push_bound=consumer.deliver_subject is not None and consumer.active,
        paused=left > 0,
        pause_remaining=left,
        ts=format_time(now),
        priority_groups=_groups(consumer),
    )
