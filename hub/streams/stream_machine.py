"""What the entries of a stream's group do on one node.

The stream of a replica does not live: it has no subjects, consumers or timers. It is there to apply
what is committed with the code that a living one applies it with. On the leader's node it lives.
"""

import logging
from collections.abc import Callable
from typing import Any

import msgspec

from headwater.edge.jetstream.account import stream_lifecycle
from headwater.edge.jetstream.account.account_js import AccountJetStream
from headwater.edge.jetstream.model.errors import JetStreamError
from headwater.edge.jetstream.node.node import NodeJetStream
from headwater.edge.jetstream.publish import replay
from headwater.edge.jetstream.replication.read_gate import ReadGate
from headwater.edge.jetstream.replication.replicator import Proposals, Replicator
from headwater.edge.jetstream.stream.carried_ids import keep_ids, pack_ids
from headwater.edge.jetstream.stream.stream import Stream
from headwater.edge.jetstream.stream.stream_states import CONSUMER_PREFIX
from headwater.edge.storage.format.errors import StoreError
from headwater.edge.storage.segments.file_store import FileStore
from headwater.hub.raft.model.entry import Entry

SAID_AGAIN_NS = 10_000_000_000
"""Between two lines of a log that tell of the same: under load an entry may wait ten times a
second for a moment."""

log = logging.getLogger("headwater.streams")


class StreamMachine:
    """As of `hub.stored.replica.Machine`. Its state is the stream and the stream's states in the
    log, so that there is nothing to remember besides."""

    def __init__(self, jetstream: NodeJetStream) -> None:
        self.jetstream = jetstream
        self.stream: Stream | None = None
        self.reads = ReadGate(jetstream.kernel)
        """What is asked of this replica, and waits until it may be answered."""
        self._near = False
        """The replica answers in the place of a mirror's origin."""
        self._ids = b""
        self._ids_came = 0.0
        self.stuck = ""
        """Why the last entry could not be applied; "" when it was."""
        self._said = ("", 0)
        """What the log was told of that last, and when, in monotonic ns."""

    # -- as a machine ---------------------------------------------------------

    def apply(self, store: FileStore, entry: Entry) -> None:
        """Apply an entry of the leader. Raises StoreError; it is tried again then."""
        stream = self.follow(store)
        try:
            replay.apply(stream, entry.data, self.jetstream.store().log, self._configure)
        except StoreError as error:
            self.stuck = str(error)
            now = self.jetstream.kernel.monotonic_ns()
            if self._said[0] != self.stuck or now - self._said[1] > SAID_AGAIN_NS:
                self._said = (self.stuck, now)
                log.error(
                    "stream '%s' cannot apply entry %d: %s; it waits there, and tries again",
                    stream.name,
                    entry.index,
                    error,
                )
            raise
        self.stuck = ""
        if stream.replicator is not None:
            stream.replicator.entry_applied()

    def state(self) -> bytes:
        """Nothing."""
        return b""

    def carried(self) -> bytes:
        """The ids of messages that are gone, so that who leads next knows them."""
        return b"" if self.stream is None else pack_ids(self.stream)

    def restore(self, state: bytes) -> None:
        """Another store may have come in the place of this one."""
        self.quiet()
        self.forget()
        if state:
            self.expect_ids(state)

    def expect_ids(self, carried: bytes) -> None:
        """The next stream that is followed knows these ids of messages that are gone."""
        self._ids, self._ids_came = carried, self.jetstream.kernel.loop.time()

    # -- the stream -----------------------------------------------------------

    def account(self, store: FileStore) -> AccountJetStream:
        """JetStream of the account that the stream is of."""
        return self.jetstream.account_js(self.jetstream.store().account_of(store))

    def follow(self, store: FileStore) -> Stream:
        """The stream in `store`, made when it is first asked for. Raises StoreError."""
        if self.stream is not None and self.stream.store is store:
            return self.stream
        self.forget()
        try:
            meta = self.jetstream.store().meta_of(store) or b""
            self.stream = stream_lifecycle.follow(self.account(store), meta, store)
        except msgspec.DecodeError as error:
            raise StoreError(f"a replica's description cannot be read: {error}") from error
        self.stream.reads = self.reads
        self.reads.stream = self.stream
        self.jetstream.set_durability(self.stream)
        self.jetstream.set_compression(self.stream)
        self._keep_ids(self.stream)
        return self.stream

    def _keep_ids(self, stream: Stream) -> None:
        """Give a stream the ids that came for it. Without them it only knows fewer."""
        carried, self._ids = self._ids, b""
        try:
            keep_ids(stream, carried, self.jetstream.kernel.loop.time() - self._ids_came)
        except StoreError as error:
            log.warning(
                "stream '%s': %s; messages that are gone and sent again count as new: let all "
                "nodes run the same version",
                stream.name,
                error,
            )

    def adopt(self, stream: Stream) -> dict[bytes, bytes]:
        """Let a stream of this node alone, in files, live no more, as the first state of a group.
        Returns what its consumers are, for `keep_adopted`, which comes next."""
        store: Any = stream.store
        self.expect_ids(pack_ids(stream))
        kept = {
            CONSUMER_PREFIX + one.name_bytes: one.save_whole()
            for one in stream.consumers.values()
            if not one.config.direct
        }
        stream_lifecycle.detach(self.account(store), stream)
        return kept

    def keep_adopted(self, store: FileStore, kept: dict[bytes, bytes], meta: bytes) -> None:
        """Store what `adopt` gave, and `meta` as the stream's description. Raises StoreError; it is
        to be called again then."""
        storage, owner = self.jetstream.store(), store.incarnation.encode()
        for key, value in kept.items():
            storage.log.encode_with(owner, key, None)
            storage.log.put_state(owner, key, value)
        storage.update_meta(store, meta)

    def serve_reads(self, store: FileStore, near: bool) -> None:
        """Answer direct gets, though another node leads; `near`: those of a mirror's origin, too,
        if the stream is one that may."""
        served = self.stream is not None and self.stream.store is store and self.stream.sinks
        if served and self._near == near:
            return
        try:
            stream = self.follow(store)
            stream_lifecycle.serve_reads(self.account(store), stream, near)
            self._near = near
        except StoreError as error:
            log.debug("direct gets are for other replicas: %s", error)

    def withdraw(self) -> None:
        """Leave direct gets to other replicas; what waits is still answered."""
        if self.stream is not None and self.stream.sinks and not self.lives:
            self.stream.listen([])

    def forget(self) -> None:
        """Let go of a stream that does not live."""
        if self.stream is not None:
            self.stream.stop(True)
            self.stream = self.reads.stream = None

    def _configure(self, meta: bytes) -> None:
        stream = self.stream
        assert stream is not None
        store: Any = stream.store
        try:
            stream_lifecycle.change(self.account(store), stream, meta)
            self._near = False
        except (JetStreamError, msgspec.DecodeError) as error:
            raise StoreError(f"a new configuration cannot be kept: {error}") from error

    # -- leading --------------------------------------------------------------

    @property
    def lives(self) -> bool:
        """Whether the stream lives here."""
        return self.stream is not None and self.stream.replicator is not None

    def live(
        self, store: FileStore, proposals: Proposals, propose: Callable[[bytes], bool]
    ) -> Stream:
        """This node leads: let the stream live with exactly what is committed."""
        stream = self.follow(store)
        commit_log = self.jetstream.store().log
        counts = stream.config.allow_msg_counter
        stream.replicator = Replicator(
            self.jetstream.kernel, store, commit_log, proposals, propose, counts
        )
        stream_lifecycle.lead(self.account(store), stream)
        if not store.last_seq and stream.config.first_seq:
            # Its first leader decides where it begins, as everything else.
            stream.replicator.skip(stream.config.first_seq - 1)
        return stream

    def quiet(self, reason: str = stream_lifecycle.REPLACED) -> None:
        """This node leads no more: end the stream, and go on with what is committed. `reason` is
        for who waits for messages."""
        stream = self.stream
        if stream is None or stream.replicator is None:
            return
        store: Any = stream.store
        stream.replicator.close()
        stream_lifecycle.detach(self.account(store), stream, reason)
        stream.replicator = None  # type: ignore[assignment]  # None without a group's leadership
        self.stream = self.reads.stream = None
        if not store.closed:
            self.follow(store).inherit_ids(stream)
