"""Small facts of a stream that must survive a restart, besides messages and consumers."""

from typing import Any

import msgspec

from headwater.edge.jetstream.consumer_state import PREFIX, log_of

AGE_KEY = b"stream/age"
# Spans of messages whose life began anew; older ones are merged into the first.
FLOORS_MAX = 64

Floor = tuple[int, int, int]


def load_floors(stream: Any) -> list[Floor]:
    """(first, last, ns) of messages that count as no older than a moment."""
    kept = log_of(stream)
    if kept is None:
        return []
    value = kept.states(stream.store.incarnation.encode()).get(AGE_KEY, (None, []))[0]
    return msgspec.json.decode(value, type=list[Floor]) if value else []


def save_floors(stream: Any, floors: list[Floor]) -> None:
    """Keep what `load_floors` returns."""
    while len(floors) > FLOORS_MAX:
        first, second = floors[0], floors[1]
        floors[:2] = [(first[0], second[1], max(first[2], second[2]))]
    kept = log_of(stream)
    if kept is not None:
        kept.put_state(stream.store.incarnation.encode(), AGE_KEY, msgspec.json.encode(floors))
        stream.kernel.kick()


def consumer_states(stream: Any) -> int:
    """How many consumers a stream's states tell of, readable or not."""
    kept = log_of(stream)
    if kept is None:
        return 0
    states = kept.states(stream.store.incarnation.encode())
    return sum(1 for key in states if key.startswith(PREFIX))
