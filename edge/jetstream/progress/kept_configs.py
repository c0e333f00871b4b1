"""What a node in a cluster keeps of the consumers of memory streams with one replica.

In the reference the cluster's metadata has them: when their node starts they are made again, and
begin again, as their stream is empty. So it is their configuration without progress. The key is
`made/<name>`, the owner the stream's incarnation.
"""

import logging
from collections.abc import Container
from typing import Any

import msgspec

from headwater.edge.jetstream.progress.consumer_state import Meta
from headwater.edge.storage.format.errors import StoreError

log = logging.getLogger("headwater.jetstream")

PREFIX = b"made/"


def _owner(stream: Any) -> bytes:
    """Of a stream's rows. What a store with keys has of them is sealed as its entries are."""
    storage, owner = stream.node.storage, stream.store.incarnation.encode()
    packer = storage.entry_keys.packer
    if packer is not None:
        storage.log.table.packers[owner] = packer
    return bytes(owner)


def _concerns(consumer: Any) -> bool:
    stream = consumer.stream
    in_memory = stream.replicator is None and stream.config.storage == "memory"
    return bool(stream.node.clustered and in_memory and not consumer.config.direct)


def keep(consumer: Any) -> int:
    """Keep a consumer's configuration; returns the log sequence number, 0 when there is nothing
    to wait for. What the log does not take is no reason to refuse a consumer in memory."""
    if not _concerns(consumer):
        return 0
    value = msgspec.json.encode(Meta(consumer.name, consumer.created_ns, consumer.config))
    kept = consumer.stream.node.storage.log
    try:
        return int(kept.put_state(_owner(consumer.stream), PREFIX + consumer.name_bytes, value))
    except StoreError as error:
        log.warning(
            "consumer %s of stream %s, which is in memory, is not kept (%s): after a restart of "
            "this node it has to be made again",
            consumer.name,
            consumer.stream.name,
            error,
        )
    return 0


def forget(consumer: Any) -> int:
    """Forget a consumer that is deleted; returns the log sequence number, 0 for nothing."""
    if not _concerns(consumer):
        return 0
    kept = consumer.stream.node.storage.log
    owner, key = consumer.stream.store.incarnation.encode(), PREFIX + consumer.name_bytes
    if key not in kept.table.keys(owner):
        return 0
    try:
        return int(kept.delete_state(owner, key))
    except StoreError as error:
        log.warning(
            "the removal of consumer %s of stream %s is not written (%s): after a restart of this "
            "node it may be there again",
            consumer.name,
            consumer.stream.name,
            error,
        )
    return 0


def found(stream: Any) -> list[Meta]:
    """The consumers that a new memory stream had before its node's start."""
    metas = []
    for key, (value, _) in sorted(stream.node.storage.log.states(_owner(stream)).items()):
        if not key.startswith(PREFIX) or value is None:
            continue
        try:
            metas.append(msgspec.json.decode(value, type=Meta))
        except msgspec.DecodeError as error:
            log.error(
                "consumer %r of stream %s is unusable: %s; make it again", key, stream.name, error
            )
    return metas


def sweep(commit_log: Any, gone: Container[str]) -> None:
    """Forget those of streams that were deleted while this node was away. Raises StoreError."""
    for owner in commit_log.table.owners():
        incarnation = owner.decode("ascii", "replace")
        if not owner.startswith(b"\0") and incarnation in gone:
            forget_stream(commit_log, incarnation)


def forget_stream(commit_log: Any, incarnation: str) -> None:
    """Forget those of a stream that is not here any more. Raises StoreError."""
    owner = incarnation.encode()
    for key in commit_log.table.keys(owner):
        if key.startswith(PREFIX):
            commit_log.delete_state(owner, key)
