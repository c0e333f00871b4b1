"""Where consumers live between starts: their states in the commit log, and recovery from there.

A state is the consumer's configuration and progress; its key is `consumer/<name>`, its owner the
store's incarnation. Consumers of memory streams, `mem_storage` and `direct` ones have none.
"""

import logging
import struct
from typing import Any

import msgspec

from headwater.edge.jetstream.models import ConsumerConfig
from headwater.edge.jetstream.stream_states import CONSUMER_PREFIX, log_of
from headwater.edge.storage.format.errors import StoreError

log = logging.getLogger("headwater.jetstream")

# Length of the JSON part that comes first in a whole value.
HEAD = struct.Struct("<I")


class Meta(msgspec.Struct):
    """The JSON part of a whole value."""

    name: str
    created_ns: int
    config: ConsumerConfig


_META = msgspec.json.Decoder(Meta)


def encode(consumer: Any) -> bytes:
    """The whole value of a consumer's state."""
    meta = msgspec.json.encode(Meta(consumer.name, consumer.created_ns, consumer.config))
    snapshot: bytes = consumer.snapshot()
    return HEAD.pack(len(meta)) + meta + snapshot


def decode(value: bytes) -> tuple[Meta, bytes]:
    """Configuration and progress of a whole value. Raises ValueError."""
    if len(value) < HEAD.size:
        raise ValueError("consumer state is too short")
    (length,) = HEAD.unpack_from(value)
    end = HEAD.size + length
    return _META.decode(value[HEAD.size : end]), value[end:]


def _saver(node: Any) -> Any:
    """The node's saver, made with its first consumer; it runs before the log's own end of turn."""
    if node.saver is None:
        from headwater.edge.jetstream.saver import Saver

        node.saver = Saver(node.storage.log)
        node.kernel.turn_hooks.insert(0, node.saver)
    return node.saver


def attach(consumer: Any) -> bool:
    """Have a consumer's progress saved from now on; False when it lives in memory only."""
    commit_log = log_of(consumer.stream)
    if commit_log is None or consumer.config.mem_storage or consumer.config.direct:
        return False
    consumer.owner = consumer.stream.store.incarnation.encode()
    consumer.key = CONSUMER_PREFIX + consumer.name_bytes
    consumer.use_saver(_saver(consumer.stream.node).use())
    return True


def save(consumer: Any) -> int:
    """Write a consumer's whole state; returns the log sequence number, 0 when it has none."""
    if not consumer.key:
        return 0
    commit_log = log_of(consumer.stream)
    lsn = commit_log.put_state(consumer.owner, consumer.key, encode(consumer))
    commit_log.snapshotter(consumer.owner, consumer.key, consumer.save_whole)
    return int(lsn)


def forget(consumer: Any) -> int:
    """Delete a consumer's state; returns the log sequence number, 0 when it had none."""
    key, consumer.key = consumer.key, b""
    return int(log_of(consumer.stream).delete_state(consumer.owner, key)) if key else 0


def flush(consumer: Any) -> None:
    """Write what the end of the turn would have written: the consumer is about to stop."""
    if not consumer.key:
        return
    try:
        save(consumer)
    except StoreError as error:
        log.warning("the last progress of consumer %s is not saved: %s", consumer.name, error)


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
            log.error("state %r of stream %s has no beginning; it is kept", key, stream.name)
            continue
        try:
            meta, snapshot = decode(value)
        except ValueError as error:
            log.error("state %r of stream %s is unreadable: %s", key, stream.name, error)
            continue
        _revive(stream, meta, [snapshot, *deltas])


def _revive(stream: Any, meta: Meta, parts: list[bytes]) -> None:
    """Make one consumer from its state and let it run."""
    from headwater.edge.jetstream.consumers import add
    from headwater.edge.jetstream.delivery import Delivery

    consumer = Delivery(stream, meta.config, meta.name, meta.created_ns)
    try:
        consumer.restore(parts)
    except ValueError as error:
        log.error(
            "consumer %s of stream %s goes on where its progress is readable: %s",
            meta.name,
            stream.name,
            error,
        )
    if consumer.skip_resume:
        from headwater.edge.jetstream.consumer_start import resume_last_per_subject

        resume_last_per_subject(consumer)
    attach(consumer)
    commit_log = log_of(stream)
    commit_log.snapshotter(consumer.owner, consumer.key, consumer.save_whole)
    add(consumer)
