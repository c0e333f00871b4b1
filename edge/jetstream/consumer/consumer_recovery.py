"""Brings consumers back from their states in the commit log."""

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

import msgspec

from headwater.edge.jetstream.consumer.consumer_saving import attach
from headwater.edge.jetstream.consumer.consumers import WIRING, add
from headwater.edge.jetstream.consumer.delivery import Delivery
from headwater.edge.jetstream.model.models import ConsumerConfig
from headwater.edge.jetstream.progress import kept_configs
from headwater.edge.jetstream.progress.consumer_start import resume_last_per_subject, set_start
from headwater.edge.jetstream.progress.consumer_state import Meta, decode
from headwater.edge.jetstream.stream.stream_states import CONSUMER_PREFIX, log_of

log = logging.getLogger("headwater.jetstream")


def recover(stream: Any) -> None:
    """Bring the consumers of a stream back, when the stream itself is recovered."""
    commit_log = log_of(stream)
    if commit_log is None:
        return
    owner = stream.store.incarnation.encode()
    for key, (value, deltas) in sorted(commit_log.states(owner).items()):
        if not key.startswith(CONSUMER_PREFIX):
            continue
        if value is None:
            log.error(
                "consumer state %r of stream %s has no beginning; it is kept, and its consumer is "
                "not served: make it again",
                key,
                stream.name,
            )
            continue
        try:
            meta, snapshot = decode(value)
            _revive(stream, meta, [snapshot, *deltas])
        except Exception as error:
            # It is kept; the stream and its other consumers go on.
            log.error(
                "consumer state %r of stream %s is unusable: %s; it is kept, and the consumer is "
                "not served: make it again",
                key,
                stream.name,
                error,
            )


def _revive(stream: Any, meta: Meta, parts: list[bytes]) -> None:
    """Make one consumer from its state and let it run."""
    consumer = Delivery(stream, meta.config, meta.name, meta.created_ns, WIRING)
    try:
        consumer.restore(parts)
    except ValueError as error:
        log.error(
            "the progress of consumer %s of stream %s is damaged: %s; it goes on where it is "
            "readable, and may deliver messages again",
            meta.name,
            stream.name,
            error,
        )
    if consumer.skip_resume:
        resume_last_per_subject(consumer)
    attach(consumer)
    commit_log = log_of(stream)
    commit_log.encode_with(consumer.owner, consumer.key, consumer.save_whole)
    add(consumer)


def make_again(stream: Any) -> None:
    """Make the consumers again that a memory stream had before the node's start; nothing is
    delivered yet."""
    for meta in kept_configs.found(stream):
        consumer = Delivery(stream, meta.config, meta.name, meta.created_ns, WIRING)
        set_start(consumer)
        add(consumer)


def of_replica(stream: Any) -> list[Delivery]:
    """The consumers of a stream that another node leads, as far as their states tell here. They do
    nothing, and are for showing alone."""
    found = []
    for meta, parts in _kept(stream):
        with contextlib.suppress(ValueError):
            consumer = Delivery(stream, meta.config, meta.name, meta.created_ns, WIRING)
            consumer.restore(parts)
            found.append(consumer)
    return found


def configs_of_replica(stream: Any) -> list[ConsumerConfig]:
    """The configurations of the same consumers, for who only counts."""
    return [meta.config for meta, _ in _kept(stream)]


def _kept(stream: Any) -> Iterator[tuple[Meta, list[bytes]]]:
    """What is kept of the consumers of a replica, in order of their names."""
    # What a replica has of a memory stream's consumers is in the node's log, too.
    states = stream.node.storage.log.states(stream.store.incarnation.encode())
    for key, (value, deltas) in sorted(states.items()):
        if not key.startswith(CONSUMER_PREFIX) or value is None:
            continue
        with contextlib.suppress(ValueError, msgspec.DecodeError):
            meta, snapshot = decode(value)
            yield meta, [snapshot, *deltas]
