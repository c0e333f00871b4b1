"""JetStream over a store that no node runs on: for backups and restores by hand.

Nothing listens, nothing expires, no mirror asks its origin. For a backup the store is opened on a
shadow of its directory and stays as it is.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import msgspec

from headwater.edge.broker.account import Account
from headwater.edge.conf.options import Options
from headwater.edge.jetstream.account import stream_lifecycle
from headwater.edge.jetstream.backup.backup import BackupSender, Restore
from headwater.edge.jetstream.backup.backup_file import BackedUp, BackupError, BackupWriter
from headwater.edge.jetstream.config import stream_config
from headwater.edge.jetstream.model import s2
from headwater.edge.jetstream.model.models import SnapshotRequest, StreamConfig
from headwater.edge.jetstream.node.node import NodeJetStream
from headwater.edge.jetstream.stream.stream import Stream
from headwater.edge.kernel.kernel import Kernel
from headwater.edge.ports.twins.shadow import shadow_of
from headwater.edge.storage.directory.store_lock import StoreLock

# Bytes of a restore between two waits for the disk.
RESTORE_BYTES = 4 << 20

OnProgress = Callable[[int, int], None]


class OfflineJetStream(NodeJetStream):
    """All streams of a store. `directory` is `<store_dir>/jetstream`, or the shadow of one."""

    def __init__(self, options: Options, directory: Path) -> None:
        self._accounts: dict[str, Account] = {}
        super().__init__(Kernel(asyncio.get_running_loop()), options, self._account)
        self.directory = directory
        self.origin_driver_factory = lambda stream: None
        self.replicas: list[Any] = []
        """Stored streams that have replicas on other nodes; they are no streams of this one."""

    def _account(self, name: str) -> Account:
        if name not in self._accounts:
            self._accounts[name] = Account(name, self.kernel)
        return self._accounts[name]

    def open(self) -> None:
        """Recover everything, and let nothing expire. Raises StoreError."""
        super().open()
        self.store().repacker.stopped = True
        for stream in self.all_streams():
            stream.timers.stop()
        if self.age_watch is not None:
            self.age_watch.stop()

    def _on_replica(self, found: Any) -> None:
        if found.account != stream_lifecycle.CLUSTERS_OWN:
            self.replicas.append(found)

    def revive_replicas(self) -> None:
        """Make the replicas streams of this node. Only for a shadow: the others of their groups
        know nothing of what such a stream does. Raises msgspec.DecodeError."""
        for found in self.replicas:
            js = self.account_js(found.account)
            stream_lifecycle.recover(js, found.meta, found.store).timers.stop()
        self.replicas = []

    def all_streams(self) -> list[Stream]:
        """Of every account."""
        return [stream for js in self.accounts.values() for stream in js.streams.values()]


async def backup(
    options: Options, store_dir: Path, output: Path, wanted: set[str], progress: OnProgress
) -> list[dict[str, Any]]:
    """Write the streams named in `wanted` (empty: all that are stored in files) of a stopped store
    to `output`; returns account, stream, messages and lost of each. Raises BackupError,
    StoreError, OSError."""
    with StoreLock(store_dir) as lock, BackupWriter(output) as writer:
        js = OfflineJetStream(options, cast(Path, shadow_of(lock.root)))
        js.open()
        try:
            js.revive_replicas()
            streams = [one for one in js.all_streams() if not wanted or one.name in wanted]
            missing = wanted - {one.name for one in streams}
            if missing:
                raise BackupError(f"there is no stream {', '.join(sorted(missing))}")
            total = sum(one.store.messages for one in streams)
            rows: list[dict[str, Any]] = []
            done = 0
            for stream in streams:
                done = await _write(writer, stream, lambda at: progress(at, total), done)
                rows.append(_row(stream))
            writer.finish()
        finally:
            js.close()
    return rows


def _row(stream: Stream) -> dict[str, Any]:
    return {
        "account": stream.account.name,
        "stream": stream.name,
        "messages": stream.store.messages,
        "lost": len(stream.store.lost),
    }


async def _write(
    writer: BackupWriter, stream: Stream, progress: Callable[[int], None], done: int
) -> int:
    sender = BackupSender(stream, SnapshotRequest())
    writer.begin(
        stream.account.name,
        msgspec.to_builtins(stream_config.shown(stream.config)),
        msgspec.to_builtins(sender.state),
    )
    lead = s2.IDENTIFIER
    before = done
    for piece in sender.pieces():
        writer.data(lead + s2.frames(piece))
        lead = b""
        progress(done)
        done = before + writer.counted
        await asyncio.sleep(0)
    return before + writer.end()


class OfflineRestore(Restore):
    """Takes entries from a file; there is nobody to answer."""

    def end(self, failed: bool) -> None:
        """Nothing listens that would have to stop."""

    def make(self) -> Stream:
        stream = super().make()
        stream.timers.stop()
        return stream


class Restorer:
    """Puts streams of a backup into a stopped store; leave its context to close the store."""

    def __init__(self, options: Options, store_dir: Path) -> None:
        self.js = OfflineJetStream(options, store_dir / "jetstream")
        self.js.open()

    @property
    def storage(self) -> Any:
        return self.js.storage

    async def restore(
        self, found: BackedUp, account: str, config: StreamConfig, progress: Callable[[], None]
    ) -> int:
        """Restore one stream, with one replica; returns its messages. All of it is there, or
        nothing. Raises BackupError, JetStreamError, StoreError, OSError."""
        js = self.js.account_js(account)
        if config.storage != "file":
            raise BackupError(f"stream '{config.name}' lives in memory; restore it into a server")
        replicas = {(found.account, found.name) for found in self.js.replicas}
        if config.name in js.streams or (account, config.name) in replicas:
            raise BackupError(f"a stream '{account} > {config.name}' is there already")
        taking = OfflineRestore(js, msgspec.structs.replace(config, num_replicas=1))
        self.storage.making = True
        try:
            count = await self._restore_stream(taking, found, progress)
            await taking.fill()
            taking.finish()
            for waiting in taking.waits:
                await waiting
            stream = taking.stream
            assert stream is not None
            stream.timers.stop()
            await self._sync_batch()
            self.storage.making = False
            self.storage.finish_stream(stream.store)
        except BaseException:
            if taking.stream is not None:
                js.delete(taking.stream)
                await self._sync_batch()
            raise
        finally:
            self.storage.making = False
        return count

    async def _restore_stream(
        self, taking: Restore, found: BackedUp, progress: Callable[[], None]
    ) -> int:
        room = RESTORE_BYTES
        for _, entries in found.chunks():
            progress()
            for entry in entries:
                taking.restore_entry(entry)
                room -= len(entry.payload) + len(entry.headers) + 128
                if room <= 0:
                    await self._sync_batch()
                    room = RESTORE_BYTES
        return found.messages

    async def _sync_batch(self) -> None:
        await self.storage.keep_up()

    async def close(self) -> None:
        """Stop the store cleanly."""
        await self.js.shutdown()
