"""A node's store for tests: opened in a directory, turned by hand, without sockets."""

import asyncio
import contextlib
import time
from collections.abc import Callable
from pathlib import Path

from headwater.edge.kernel.kernel import Kernel
from headwater.edge.storage.directory.store_options import StoreOptions
from headwater.edge.storage.node.node_store import NodeStore
from headwater.edge.storage.segments.file_store import FileStore
from headwater.security.sealing import KeyRing, NodeKey

SMALL = 64 << 10
GATHERED_SECONDS = 0.005
"""How long messages wait for a sync where they are gathered."""
KEY = NodeKey.of(b"a key for tests")


class Harness:
    """Owns an event loop and one open NodeStore at a time."""

    def __init__(
        self,
        directory: Path,
        segment_bytes: int = SMALL,
        interval: float = 0.0,
        sealed: bool = False,
        compressed: bool = False,
        gathered: bool = False,
    ) -> None:
        self.directory = directory
        self.options = StoreOptions(directory, segment_bytes, interval)
        self.options.keys = KeyRing(KEY) if sealed else None
        if gathered:
            self.options.max_delay, self.options.bundles = GATHERED_SECONDS, True
        self.compressed = compressed
        self.loop = asyncio.new_event_loop()
        self.node: NodeStore | None = None

    def open(self) -> list[FileStore]:
        self.kernel = Kernel(self.loop)
        self.node = NodeStore(self.kernel, self.options)
        stores = [stream.store for stream in self.node.open()]
        for store in stores:
            self.node.set_compression(store, self.compressed)
        return stores

    def create(self, name: str = "S", first_seq: int = 1) -> FileStore:
        """A stream whose meta file is there."""
        assert self.node is not None
        store = self.node.create_stream("A", name, b'{"name":"S"}', first_seq=first_seq)
        self.node.set_compression(store, self.compressed)
        self.node.metas.flush()
        self.until(lambda: self.node.metas.idle)
        return store

    def turn(self) -> None:
        """One turn, then whatever the loop has ready."""
        self.kernel.turn()
        self.loop.run_until_complete(asyncio.sleep(0))

    def breathe(self) -> None:
        """A turn, and a wait while producers should wait."""
        self.turn()
        if self.node.log.congested:
            self.until(lambda: not self.node.log.congested)

    def until(self, condition: Callable[[], bool], seconds: float = 20.0) -> None:
        """Turn until something is true."""
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, "it did not happen in time"
            self.kernel.turn()
            self.loop.run_until_complete(asyncio.sleep(0.0005))

    def commit(self) -> None:
        """Have everything that was written durable."""
        assert self.node is not None
        lsn = self.node.log.hand_over()
        self.node.log.hurry(lsn)
        self.until(lambda: self.node.log.durable_lsn >= lsn)

    def settle(self) -> None:
        """Let checkpointing and compaction come to rest."""
        self.until(
            lambda: (
                self.node.checkpointer.step == "idle"
                and self.node.compactor.idle
                and len(self.node.log.live) <= self.node.log.keep + 1
            )
        )

    def close(self) -> None:
        """A clean stop."""
        if self.node is not None:
            self.loop.run_until_complete(self.node.close())
            self.node = None

    def crash(self) -> None:
        """Stop without a clean-stop record."""
        if self.node is not None:
            self.node.stop_now()
            self.node = None

    def end(self) -> None:
        self.crash()
        self.loop.run_until_complete(asyncio.sleep(0))
        self.loop.close()


def segment_bytes(store: FileStore) -> int:
    """Bytes of the files of a stream's segments; what a thread removes meanwhile has none."""
    total = 0
    for path in store.directory.glob("*.seg"):
        with contextlib.suppress(FileNotFoundError):
            total += path.stat().st_size
    return total


def contents(store: FileStore) -> dict[int, tuple[bytes, bytes, bytes]]:
    """Every message of a store."""
    found = {}
    for sequence in range(store.first_seq, store.last_seq + 1):
        message = store.get(sequence)
        if message is not None:
            found[sequence] = (message.subject, message.headers, message.payload)
    return found
