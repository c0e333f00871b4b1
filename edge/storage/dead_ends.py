"""Newest segments of streams of which nothing is left, for when a device is full.

The newest segment stays, since its footer tells how far the stream is. Where many streams have only
one, a purge would give no room back: on a full device such a segment ends early, and goes away as
a whole when the log segment with the removal is retired.
"""

from typing import Any

# Less than this is not worth another file.
DEAD_BYTES_MIN = 8192


def is_dead_end(store: Any) -> bool:
    """Whether the newest segment of a FileStore takes room and all its messages were removed from
    the head."""
    segment = store.segments[-1] if store.segments else None
    return bool(segment and segment.end > DEAD_BYTES_MIN and segment.last < store.first_seq)
