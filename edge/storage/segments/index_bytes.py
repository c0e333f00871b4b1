"""Index files as they lie on disk: sealed as a whole when their stream is."""

from typing import Any

from headwater.edge.storage.segments.segment_files import IndexFile, decode_index

PURPOSE = b"index"


def index_bytes(store: Any, index: IndexFile) -> bytes:
    """Content of an index file of a store's segment. On the loop only: sealing counts nonces."""
    return bytes(store.packer.seal_blob(index.encode(store.seed), PURPOSE))


def read_index(store: Any, data: bytes) -> IndexFile | None:
    """What an index file says; None when it is not whole and right."""
    opened = store.packer.open_blob(data, PURPOSE)
    return None if opened is None else decode_index(opened, store.seed)
