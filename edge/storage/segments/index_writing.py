"""Index files as a clean stop writes them."""

from collections.abc import Iterable

from headwater.edge.storage.index.store import MessageStore
from headwater.edge.storage.segments.file_store import FileStore
from headwater.edge.storage.segments.index_bytes import index_bytes
from headwater.edge.storage.segments.index_rows import index_of
from headwater.edge.storage.segments.segment_jobs import write_index


def write_indexes(stores: Iterable[MessageStore], number: int) -> None:
    """Index every segment of `stores` that has none; the log ended in segment `number`. Raises
    OSError."""
    for store in stores:
        if not isinstance(store, FileStore) or store.closed or store.copying:
            continue
        for segment in store.segments:
            if not segment.indexed:
                index = index_of(store, segment, number)
                write_index(segment.path, index_bytes(store, index))
