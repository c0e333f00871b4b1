"""Making, changing and deleting the consumers of a stream."""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from headwater.edge.jetstream.config import consumer_config
from headwater.edge.jetstream.consumer.consumer_saving import attach
from headwater.edge.jetstream.consumer.consumer_wiring import Wiring
from headwater.edge.jetstream.consumer.delivery import Delivery
from headwater.edge.jetstream.model import errors
from headwater.edge.jetstream.model.models import ConsumerConfig
from headwater.edge.jetstream.model.names import NAME_MAX, valid_name
from headwater.edge.jetstream.progress import (
    consumer_events,
    consumer_start,
    consumer_state,
    kept_configs,
)
from headwater.edge.jetstream.progress.consumer_setup import EPHEMERAL_NS
from headwater.edge.jetstream.stream.stream_states import log_of
from headwater.edge.kernel.later import Later
from headwater.edge.ports.draws import draw_text

GENERATED_LENGTH = 8


def limitable(stream: Any) -> list[Delivery]:
    """Consumers that count against limits: all but those of mirrors and sources."""
    return [found for found in stream.consumers.values() if not found.config.direct]


def workers(stream: Any) -> list[Delivery]:
    """Consumers that no mirror or source has made: a work queue gives each message to one."""
    return [found for found in limitable(stream) if not found.config.sourcing]


def durable(stream: Any, lsn: int) -> Awaitable[None] | None:
    """Done when a log sequence number is on disk; None when there is nothing to wait for."""
    if not lsn:
        return None
    return Later((log_of(stream) or stream.node.storage.log).wait_durable, lsn)


def create(
    stream: Any,
    config: ConsumerConfig,
    limits: consumer_config.Limits,
    action: str = "",
    pedantic: bool = False,
) -> tuple[Delivery, Awaitable[None] | None]:
    """Make a consumer, or update the one of that name.

    The awaitable is done when the consumer is durable. Raises JetStreamError, and then nothing has
    changed.
    """
    consumer_config.fill(config, stream.config, limits, pedantic)
    consumer_config.check(config, stream.config, limits)
    name = config.durable_name or config.name
    existing = stream.consumers.get(name) if name else None
    before = existing.config if existing is not None else None
    stream.node.holdings.check_room(config, before, stream.node.accounts.values())
    if existing is not None:
        return existing, _change(stream, existing, config, action)
    if action == "update":
        raise errors.CONSUMER_DOES_NOT_EXIST.error()
    if limits.full:
        raise errors.MAXIMUM_CONSUMERS_LIMIT.error()
    if not config.direct and not config.sourcing:
        _check_count(stream, limits)
        if stream.config.retention == "workqueue":
            _check_work_queue(stream, config)
    name = _name(stream, config, name)
    return create_consumer(stream, config, name)


def create_consumer(
    stream: Any,
    config: ConsumerConfig,
    name: str,
    resume: Callable[[Delivery], None] | None = None,
) -> tuple[Delivery, Awaitable[None] | None]:
    """Make a consumer from a checked configuration and let it run.

    `resume` is called before that and may set how far the consumer is. It is of a backup then, and
    no advisory says that it was made, as with nats-server.
    """
    if not config.durable_name and config.inactive_threshold <= 0:
        config.inactive_threshold = EPHEMERAL_NS
    consumer = Delivery(stream, config, name, stream.kernel.clock(), WIRING)
    consumer_start.set_start(consumer)
    if resume is not None:
        resume(consumer)
    lsn = consumer_state.save(consumer) if attach(consumer) else kept_configs.keep(consumer)
    add(consumer)
    stream.node.on_consumer_made(consumer)
    if resume is None:
        consumer_events.created(consumer)
    return consumer, durable(stream, lsn)


def add(consumer: Delivery) -> None:
    """Enter a consumer into its stream and start it."""
    consumer.stream.consumers.add(consumer)
    consumer.start()


def _check_count(stream: Any, limits: consumer_config.Limits) -> None:
    own = stream.config
    most = own.max_consumers
    if most <= 0 and limits.account_max_consumers <= 0:
        most = limits.default_max_consumers
    bounds = [bound for bound in (most, limits.account_max_consumers) if bound > 0]
    if not bounds or len(stream.consumers) < min(bounds):
        # As for most: whoever has thousands of consumers has none of them counted.
        return
    there = workers(stream)
    tier = [
        each
        for each in there
        if not limits.tier_replicas
        or (each.config.num_replicas or max(1, own.num_replicas)) == limits.tier_replicas
    ]
    if 0 < most <= len(there) or 0 < limits.account_max_consumers <= len(tier):
        raise errors.MAXIMUM_CONSUMERS_LIMIT.error()


def _check_work_queue(stream: Any, config: ConsumerConfig) -> None:
    """Every message of a work queue has one consumer, which acknowledges it."""
    if config.ack_policy not in ("explicit", "flow_control"):
        raise errors.CONSUMER_WQ_REQUIRES_EXPLICIT_ACK.error()
    if config.deliver_policy != "all":
        raise errors.CONSUMER_WQ_CONSUMER_NOT_DELIVER_ALL.error()
    if workers(stream):
        if not consumer_config.filters(config):
            raise errors.CONSUMER_WQ_MULTIPLE_UNFILTERED.error()
        _check_partition(stream, config, "")


def _check_partition(stream: Any, config: ConsumerConfig, own: str) -> None:
    wanted = consumer_config.filters(config)
    if not wanted and stream.replicator is None:
        # As in the reference: an update may take the filters away, whoever works beside it.
        return
    for other in workers(stream):
        if other.name == own:
            continue
        if not wanted:
            raise errors.CONSUMER_WQ_MULTIPLE_UNFILTERED.error()
        if consumer_config.overlaps(wanted, consumer_config.filters(other.config)):
            raise errors.CONSUMER_WQ_CONSUMER_NOT_UNIQUE.error()


def _name(stream: Any, config: ConsumerConfig, name: str) -> str:
    if config.durable_name and len(config.durable_name.encode()) > NAME_MAX:
        raise errors.CONSUMER_NAME_TOO_LONG.error(max=NAME_MAX)
    while not name or (not config.name and not config.durable_name and name in stream.consumers):
        name = draw_text(stream.kernel.chance, GENERATED_LENGTH)
    if config.durable_name or config.name:
        config.name = name
    if not valid_name(name):
        raise errors.CONSUMER_BAD_DURABLE_NAME.error()
    return name


def _change(
    stream: Any, consumer: Delivery, config: ConsumerConfig, action: str
) -> Awaitable[None] | None:
    """Give an existing consumer the configuration that a create request brought."""
    config.name = consumer.config.name
    # Before the default: to nats-server one that will not say its threshold is another consumer.
    if action == "create" and not consumer_config.same_config(consumer.config, config):
        raise errors.CONSUMER_ALREADY_EXISTS.error()
    old = consumer.config
    changed = config.inactive_threshold != old.inactive_threshold
    if changed and config.inactive_threshold <= 0 and not old.durable_name:
        config.inactive_threshold = EPHEMERAL_NS
    if stream.config.retention == "workqueue":
        _check_partition(stream, config, consumer.name)
    bound = consumer.deliver_subject is not None and consumer.active
    consumer_config.check_update(consumer.config, config, bound)
    if consumer_config.same_config(consumer.config, config):
        # Whoever asked first may still wait for the disk.
        return durable(stream, log_of(stream).hand_over()) if consumer.key else None
    return update(consumer, config)


def update(consumer: Delivery, config: ConsumerConfig) -> Awaitable[None] | None:
    """Give a consumer a checked configuration; the awaitable is done when that is durable."""
    old = consumer.config
    consumer.configure(config)
    if old.deliver_subject != config.deliver_subject:
        consumer.redirect()
    if consumer_config.filters(old) != consumer_config.filters(config):
        consumer.stream.consumers.changed()
    lsn = consumer_state.save(consumer) or kept_configs.keep(consumer)
    consumer.wake()
    if old.pause_until != config.pause_until:
        consumer_events.paused(consumer)
    return durable(consumer.stream, lsn)


def pause(consumer: Delivery, until: str | None) -> Awaitable[None] | None:
    """Stop delivery until a time (RFC 3339), or let it go on with None."""
    config = msgspec.structs.replace(
        consumer.config, pause_until=until, metadata=dict(consumer.config.metadata)
    )
    consumer_config.set_level(config)
    return update(consumer, config)


def delete_consumer(consumer: Delivery) -> Awaitable[None] | None:
    """Delete a consumer; what only it held back may leave the stream."""
    stream = consumer.stream
    consumer_events.deleted(consumer)
    lsn = consumer_state.forget(consumer) or kept_configs.forget(consumer)
    consumer.stop()
    stream.consumers.remove(consumer.name)
    return durable(stream, lsn)


def reset(consumer: Delivery, sequence: int) -> tuple[int, Awaitable[None] | None]:
    """Deliver again from `sequence`, 0 for behind the ack floor (ADR-60).

    Returns the first sequence that will be delivered. Raises JetStreamError 10204.
    """
    config = consumer.config
    policy = config.deliver_policy
    if sequence and policy == "by_start_sequence" and sequence < config.opt_start_seq:
        raise errors.CONSUMER_INVALID_RESET.error(err="below start seq")
    floor = consumer_start.first_sequence(consumer) if policy == "by_start_time" else 0
    if sequence and sequence < floor:
        raise errors.CONSUMER_INVALID_RESET.error(err="below start time")
    if sequence and policy not in ("all", "by_start_sequence", "by_start_time"):
        raise errors.CONSUMER_INVALID_RESET.error(err="not allowed")
    first = consumer.reset(sequence)
    lsn = consumer_state.save(consumer)
    consumer.stream.consumers.changed()
    return first, durable(consumer.stream, lsn)


WIRING = Wiring(delete_consumer)
"""Of every consumer."""
