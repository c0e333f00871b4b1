"""Message ids of a deduplication window on their way to another node, with a stream's state.

Only those travel whose messages are gone: the others are in the stream. As ages they mean the same
by every node's clock.

    u8 1   then, the oldest first:   u64 age in ns   u64 sequence   u16 length   id
"""

import struct
from typing import Any

from headwater.edge.storage.format.errors import StoreError

FORM = b"\x01"
HEAD = struct.Struct("<QQH")
BYTES_MAX = 1 << 20
"""Of all ids together; the oldest stay behind."""
ID_BYTES_MAX = 0xFFFF


def pack_ids(stream: Any) -> bytes:
    """The newest ids of a stream whose messages are gone; b"" without any."""
    store, window, now_ns = stream.store, stream.dedupe, _now_ns(stream)
    whole = store.messages == store.last_seq - store.first_seq + 1
    since_ns = now_ns - window.window_ns
    parts: list[bytes] = []
    size = 0
    for at_ns, msg_id, sequence in window.newest_first():
        if at_ns < since_ns or size > BYTES_MAX:
            break
        gone = sequence < store.first_seq or not whole
        if gone and len(msg_id) <= ID_BYTES_MAX and window.knows(msg_id, sequence):
            parts.append(HEAD.pack(max(now_ns - at_ns, 0), sequence, len(msg_id)) + msg_id)
            size += len(parts[-1])
    return FORM + b"".join(reversed(parts)) if parts else b""


def keep_ids(stream: Any, data: bytes, since_s: float) -> None:
    """Know the ids of `pack_ids`, which came `since_s` seconds ago. Raises StoreError when `data`
    is something else."""
    if not data:
        return
    now_ns = _now_ns(stream) - int(since_s * 1e9)
    at = len(FORM)
    try:
        if data[:at] != FORM:
            raise StoreError(f"ids of form {data[0]} are not known here")
        while at < len(data):
            age_ns, sequence, size = HEAD.unpack_from(data, at)
            at += HEAD.size
            if at + size > len(data):
                raise StoreError("an id of a state is cut off")
            stream.dedupe.remember(data[at : at + size], sequence, now_ns - age_ns)
            at += size
    except struct.error as error:
        raise StoreError(f"the ids of a state cannot be read: {error}") from error


def _now_ns(stream: Any) -> int:
    """The age clock, which a stream that does not live has, too."""
    now_ns: int = stream.kernel.wall_ns() - stream.age_offset
    return now_ns
