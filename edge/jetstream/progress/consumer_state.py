"""Where consumers live between starts: their states in the commit log.

A state is the consumer's configuration and progress; its key is `consumer/<name>`, its owner the
store's incarnation. `direct` consumers have none, and without replicas neither have consumers of
memory streams (`kept_configs`), nor those with `mem_storage` of a node alone.
"""

import logging
import struct
from typing import Any

import msgspec

from headwater.edge.jetstream.model.models import ConsumerConfig
from headwater.edge.jetstream.stream.stream_states import log_of
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


def save(consumer: Any) -> int:
    """Write a consumer's whole state; returns the log sequence number, 0 when it has none."""
    if not consumer.key:
        return 0
    commit_log = log_of(consumer.stream)
    lsn = commit_log.put_state(consumer.owner, consumer.key, encode(consumer))
    commit_log.encode_with(consumer.owner, consumer.key, consumer.save_whole)
    return int(lsn)


def forget(consumer: Any) -> int:
    """Delete a consumer's state; returns the log sequence number, 0 when it had none."""
    key, consumer.key = consumer.key, b""
    return int(log_of(consumer.stream).delete_state(consumer.owner, key)) if key else 0


def flush(consumer: Any) -> None:
    """Write what the end of the turn would have written: the consumer is about to stop."""
    if consumer.stream.replicator is not None:
        consumer.key = b""  # what is not proposed yet is no longer this node's to say
    if not consumer.key:
        return
    try:
        save(consumer)
    except StoreError as error:
        log.warning(
            "the last progress of consumer %s of stream %s is not saved (%s): it may deliver "
            "messages again after the next start",
            consumer.name,
            consumer.stream.name,
            error,
        )
