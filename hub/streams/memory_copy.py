"""A stream in one node's memory becomes the first state of a group, whose stores are files.

Messages are copied in slices while the stream goes on; the last slice, what was removed meanwhile,
and consumers follow in one turn, in which the stream ends. A crash before the group is durable
leaves nothing, as it does of any stream in memory.
"""

from collections.abc import Callable
from typing import Any

from headwater.edge.jetstream.account import stream_lifecycle
from headwater.edge.jetstream.node.node import NodeJetStream
from headwater.edge.jetstream.stream.carried_ids import pack_ids
from headwater.edge.jetstream.stream.stream import Stream
from headwater.edge.jetstream.stream.stream_states import CONSUMER_PREFIX
from headwater.edge.storage.format.errors import StoreError
from headwater.edge.storage.index.memory import MemoryStore
from headwater.edge.storage.index.message_rows import add_rows, alive_runs, pack_rows
from headwater.edge.storage.segments.file_store import FileStore
from headwater.hub.stored.state_end import StateEnd, bring_to
from headwater.hub.streams.adoption import Adoption

SLICE_BYTES = 1 << 20
"""Of messages copied in one turn: some milliseconds."""


class MemoryCopy:
    """Of one stream. `done` gets the store, which does not count yet, and the ids of messages that
    are gone. `failed` is told why there is none, and the stream goes on as it was."""

    def __init__(
        self,
        jetstream: NodeJetStream,
        stream: Stream,
        make: Callable[[], FileStore],
        adoption: Adoption,
        done: Callable[[FileStore, bytes], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self.jetstream = jetstream  # of the node
        self.stream = stream  # the one to be copied
        self.make = make  # gives an empty store that does not count yet
        self.adoption = adoption  # keeps clients from the stream when it has little left to copy
        self.done = done  # see the class
        self.failed = failed  # see the class
        self._store: FileStore | None = None
        self._reached = 0
        self._quiet = False

    def step(self) -> None:
        """Copy a slice; the next one follows when the loop has done other work."""
        try:
            if not self.adoption.wanted() or self.stream.deleted:
                self._give_up()
                return
            if not self._copy():
                self.jetstream.kernel.loop.call_soon(self.step)
                return
            if not self._quiet:
                self.adoption.begin(self._end_soon)
                return
            ids = pack_ids(self.stream)
            store = self._end()
        except (StoreError, OSError) as error:
            self._give_up()
            self.failed(error)
            return
        self.done(store, ids)

    def _end_soon(self) -> None:
        self._quiet = True
        self.step()

    def _copy(self) -> bool:
        """Whether everything that is there now is copied."""
        source: Any = self.stream.store
        assert isinstance(source, MemoryStore)
        if self._store is None:
            self._store = self.make()
        rows, self._reached = pack_rows(source, self._reached, source.last_seq, SLICE_BYTES)
        add_rows(self._store, rows)
        return self._reached >= source.last_seq

    def _end(self) -> FileStore:
        """End the stream, and bring over what is no message."""
        stream, storage = self.stream, self.jetstream.store()
        source: Any = stream.store
        store = self._store
        assert store is not None
        numbers = (source.first_seq, source.last_seq, source.messages)
        bring_to(storage.log, store, StateEnd(*numbers, b"", b"", b"", alive_runs(source)))
        owner = store.incarnation.encode()
        for one in stream.consumers.values():
            if not one.config.direct:
                storage.log.put_state(owner, CONSUMER_PREFIX + one.name_bytes, one.save_whole())
        self.adoption.ends()
        stream_lifecycle.detach(self.jetstream.account_js(stream.account.name), stream)
        storage.delete_stream(source)
        return store

    def _give_up(self) -> None:
        store, self._store, self._reached, self._quiet = self._store, None, 0, False
        if store is not None and not store.closed:
            self.jetstream.store().delete_stream(store)
