"""Small facts of a stream that must survive a restart, besides messages and consumers."""

from typing import Any

import msgspec

# Keys of consumers' states: this and the name.
CONSUMER_PREFIX = b"consumer/"
SPANS_KEY = b"stream/epochs"
# Older spans become one, of which the messages count as younger than they are.
SPANS_MAX = 64

AgeSpan = tuple[int, int]


def log_of(stream: Any) -> Any:
    """What keeps a stream's states: the commit log, or the stream's group; None for a memory
    stream of one replica."""
    if stream.replicator is not None:
        return stream.replicator
    if stream.config.storage != "file":
        return None
    return stream.node.storage.log


def load_spans(kept: Any, incarnation: str) -> list[AgeSpan]:
    """(first sequence, offset): from that sequence on, a message's timestamp less the offset is
    when its life began on the node's age clock. Empty when the clock was never set."""
    if kept is None:
        return []
    value = kept.states(incarnation.encode()).get(SPANS_KEY, (None, []))[0]
    try:
        return msgspec.json.decode(value, type=list[AgeSpan]) if value else []
    except msgspec.DecodeError:
        return []


def save_spans(stream: Any, spans: list[AgeSpan]) -> None:
    """Keep what `load_spans` returns. Raises StoreError."""
    while len(spans) > SPANS_MAX:
        spans[:2] = [(spans[0][0], min(spans[0][1], spans[1][1]))]
    kept = log_of(stream)
    if kept is not None:
        kept.put_state(stream.store.incarnation.encode(), SPANS_KEY, msgspec.json.encode(spans))
        stream.kernel.kick()


def newest_age(kept: Any, found: list[Any]) -> int:
    """Age time of the newest message of the node's streams, 0 for none. Mirrors do not count: their
    messages have the time of another node."""
    ages = [0]
    for stream in found:
        if stream.store.last_ts and b'"mirror":{' not in stream.meta:
            spans = load_spans(kept, stream.store.incarnation)
            ages.append(stream.store.last_ts - (spans[-1][1] if spans else 0))
    return max(ages)


def consumer_states(stream: Any) -> int:
    """How many consumers a stream's states tell of, readable or not."""
    kept = log_of(stream)
    if kept is None:
        return 0
    states = kept.states(stream.store.incarnation.encode())
    return sum(1 for key in states if key.startswith(CONSUMER_PREFIX))
