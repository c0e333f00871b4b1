"""What the streams of a store are: identity and meta of each, in memory and as it is stored."""

from typing import Any

from headwater.edge.storage.directory.metas import Metas, encode_meta
from headwater.edge.storage.directory.packers import sealed_meta
from headwater.edge.storage.format.errors import StoreError
from headwater.edge.storage.index.store import MessageStore
from headwater.edge.storage.segments.file_store import FileStore


class Descriptions:
    """Of the file-backed streams that a node has open; `metas` is where they are stored."""

    def __init__(self, metas: Metas) -> None:
        self.identities: dict[str, dict[str, Any]] = {}
        """By incarnation: what the first line of a meta says, see STORAGE.md."""
        self._metas = metas
        self._own: dict[str, bytes] = {}
        """By incarnation: what the stream layer keeps with a stream."""

    def add(self, incarnation: str, identity: dict[str, Any], meta: bytes) -> None:
        """A stream is open from now on."""
        self.identities[incarnation] = identity
        self._own[incarnation] = meta

    def forget(self, incarnation: str) -> None:
        """A stream is open no more."""
        self.identities.pop(incarnation, None)
        self._own.pop(incarnation, None)

    def content(self, store: FileStore, meta: bytes | None = None) -> bytes:
        """What the stream's meta file has to say, with another meta or with the one there is."""
        own = self._own[store.incarnation] if meta is None else meta
        return encode_meta(self.identities[store.incarnation], sealed_meta(store.packer, own))

    def update(self, store: FileStore, meta: bytes) -> None:
        """Replace a stream's meta; durable when what the log has now is. Raises StoreError."""
        self._metas.put(store.incarnation, self.content(store, meta))
        self._own[store.incarnation] = meta

    def finish(self, store: FileStore, replaced: FileStore | None) -> None:
        """An unfinished stream counts from now on, in the place of `replaced`. Raises OSError, and
        then nothing has changed."""
        before = self._finished(store)
        if replaced is not None:
            self.identities[store.incarnation]["replaces"] = replaced.incarnation
        try:
            self._metas.write(store.directory, self.content(store))
        except OSError:
            self.identities[store.incarnation] = before
            raise

    def finish_in_log(self, store: FileStore) -> None:
        """The same of one that replaces none, durable when what the log has now is. Raises
        StoreError, and then nothing has changed."""
        before = self._finished(store)
        try:
            self._metas.put(store.incarnation, self.content(store))
        except StoreError:
            self.identities[store.incarnation] = before
            raise

    def _finished(self, store: FileStore) -> dict[str, Any]:
        """Have a stream's identity say that it is whole; returns what it was."""
        before = self.identities[store.incarnation]
        identity = {key: value for key, value in before.items() if key != "unfinished"}
        self.identities[store.incarnation] = identity
        return before

    def rewrite(self, store: FileStore, always: bool) -> bool:
        """Write a stream's meta again; if not `always`, when a copy is damaged or missing."""
        if store.closed or store.incarnation not in self._own:
            return False
        if not always and self._metas.is_whole(store.directory):
            return False
        self._metas.write(store.directory, self.content(store))
        return True

    def meta_of(self, store: MessageStore) -> bytes | None:
        """The meta stored last; None for memory streams."""
        return self._own.get(store.incarnation)

    def account_of(self, store: MessageStore) -> str:
        """The account of a file-backed stream."""
        return str(self.identities[store.incarnation]["account"])

    def label(self, store: MessageStore) -> str:
        """Account and name of a stream, for people."""
        identity = self.identities.get(store.incarnation, {})
        return f"{identity.get('account', '?')} > {identity.get('name', store.incarnation)}"
