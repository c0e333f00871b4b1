"""What the log's states say about streams, as a start finds it before anything is replayed."""

from typing import Any

from headwater.edge.storage.format.record import STATE_DELETE, STATE_PUT
from headwater.edge.storage.segments.manifest import MANIFESTS_OWNER


def collect_own_states(
    item: Any, manifests: dict[bytes, bytes], metas: dict[bytes, tuple[bytes, bool]]
) -> None:
    """Enter what one segment of the log, a Survey, has of manifests and metas, by incarnation. A
    meta is its value, and whether its file was written."""
    for at, owner, key, kind, value in item.own:
        if at > item.end:
            break
        if owner == MANIFESTS_OWNER and kind == STATE_PUT:
            manifests[key] = value
        elif owner == MANIFESTS_OWNER:
            manifests.pop(key, None)
        elif kind == STATE_PUT:
            metas[key] = value, False
        elif kind == STATE_DELETE:
            metas.pop(key, None)
        elif key in metas:
            metas[key] = metas[key][0], True
