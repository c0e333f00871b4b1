"""Keeps streams' manifests true: which segments each stream has, and how far they go."""

from collections.abc import Container, Iterable, Iterator
from typing import Any

from headwater.edge.storage.format.errors import invariant
from headwater.edge.storage.log.commit_log import CommitLog
from headwater.edge.storage.segments.file_store import FileStore
from headwater.edge.storage.segments.manifest import (
    MANIFESTS_OWNER,
    Manifest,
    decode_manifest,
    number_runs,
)


class Manifests:
    """One manifest per stream. `identities` are the node's: incarnation -> account and name."""

    def __init__(self, log: CommitLog, identities: dict[str, dict[str, Any]]) -> None:
        self._log = log
        self._identities = identities

    def begin(self, incarnation: str, manifest: Manifest) -> None:
        """There is a new stream. Raises StoreError."""
        self._log.put_state(MANIFESTS_OWNER, incarnation.encode(), manifest.encode())

    def drop(self, incarnation: str) -> None:
        """The stream is removed. Raises StoreError."""
        self._log.delete_state(MANIFESTS_OWNER, incarnation.encode())

    def put(self, stores: Iterable[FileStore]) -> None:
        """Write down what segments these streams have now. Raises StoreError, and then some of
        them may be written."""
        for store in stores:
            identity = self._identities.get(store.incarnation)
            durable = [segment for segment in store.segments if segment.durable_end]
            if store.closed or identity is None or not durable:
                continue
            oldest, newest = durable[0], durable[-1]
            invariant(oldest.number <= newest.number, f"{store.directory}: segments out of order")
            invariant(
                newest.durable_end <= newest.end and store.durable_last <= store.last_seq,
                f"{store.directory}: the manifest would list {newest.durable_end} bytes of "
                f"{newest.path.name} and sequence {store.durable_last}; there are {newest.end} and "
                f"{store.last_seq}",
            )
            store.gone_numbers = {n for n in store.gone_numbers if n > oldest.number}
            manifest = Manifest(
                str(identity["account"]),
                str(identity["name"]),
                newest.number,
                newest.generation,
                newest.durable_end,
                store.durable_last,
                oldest.number,
                oldest.last,
                store.first_log_segment,
                number_runs(store.gone_numbers),
            )
            self.begin(store.incarnation, manifest)

    def others(self, known: Container[str]) -> Iterator[tuple[str, Manifest]]:
        """(incarnation, manifest) of streams that are not among the known ones."""
        for key in self._log.table.keys(MANIFESTS_OWNER):
            if key.decode() not in known:
                value = self._log.states(MANIFESTS_OWNER)[key][0]
                yield key.decode(), decode_manifest(value or Manifest("", "").encode())
