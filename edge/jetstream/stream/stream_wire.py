"""What a stream says and reads, away from its hot path: answers, filters, transforms."""

from typing import Any

import msgspec

from headwater.edge.jetstream.model import errors, headers
from headwater.edge.storage.format.errors import Damaged, StoreFull
from headwater.edge.subjects.transform import Transform, transform

# Bytes that a stored message counts besides its subject, headers and payload.
OVERHEAD = {"file": 30, "memory": 16}

_json = msgspec.json.encode


def ack_head(name: str, domain: str) -> bytes:
    """The start of every PubAck, up to the sequence."""
    domain_field = b',"domain":' + _json(domain) if domain else b""
    return b'{"stream":' + _json(name) + domain_field + b',"seq":'


def ack_error(name: str, error: errors.JetStreamError) -> bytes:
    """The PubAck of a refused message."""
    return _json({"error": error.wire(), "stream": name, "seq": 0})


def append_error(failure: Exception) -> errors.JetStreamError:
    """The API error for a StoreError: a full device is a lack of resources."""
    if isinstance(failure, StoreFull):
        return errors.INSUFFICIENT_RESOURCES.error()
    return errors.STREAM_STORE_FAILED.error(err=failure)


def input_transform(config: Any) -> Transform | None:
    """The transform of arriving subjects, None without one."""
    wanted = config.subject_transform
    if wanted is None or not wanted.dest:
        return None
    return transform(wanted.src, wanted.dest)


def republish_transform(config: Any) -> Transform | None:
    """The transform that makes republish subjects, None without republishing."""
    wanted = config.republish
    if wanted is None or not wanted.dest:
        return None
    return transform(wanted.src, wanted.dest)


def last_sequence(stream: Any, pattern: bytes) -> int:
    """The last sequence given out on a subject pattern, 0 when there is none."""
    found: int = 0
    if stream.replicator is not None:
        found = stream.replicator.last_matching(pattern)
    return found or stream.store.filter((pattern,)).newest()


def load_ids(stream: Any) -> None:
    """Fill a stream's deduplication window from the messages stored within it."""
    store, window, timers = stream.store, stream.dedupe, stream.timers
    sequence = max(timers.first_since(timers.now() - window.window_ns), 1)
    while sequence <= store.last_seq:
        at = store.next_matching(store.filter(()), sequence)
        if not at:
            return
        message = stored(store, at)
        msg_id = msg_id_of(message)
        if msg_id and not window.knows(msg_id, at):
            window.remember(msg_id, at, timers.age_start_of(at, message.timestamp))
        sequence = at + 1


def id_of(stream: Any, sequence: int) -> bytes:
    """The id of a stored message; empty when it has none, or is not there."""
    return msg_id_of(stored(stream.store, sequence))


def stored(store: Any, sequence: int) -> Any:
    """A message, None when it is not there or damaged."""
    try:
        return store.get(sequence)
    except Damaged:
        return None


def msg_id_of(message: Any) -> bytes:
    """The id of a message that is there or not."""
    if message is None or not message.headers:
        return b""
    return headers.get(message.headers, b"Nats-Msg-Id") or b""
