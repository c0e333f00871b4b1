"""A node's store on a disk in memory, in one thread, on a clock that is let go on."""

from headwater.edge.kernel.kernel import Kernel
from headwater.edge.ports.twins.chance import SeededRandom
from headwater.edge.ports.twins.files import TwinFiles
from headwater.edge.ports.twins.loop import TwinLoop
from headwater.edge.storage.directory.store_options import StoreOptions
from headwater.edge.storage.format.errors import Damaged
from headwater.edge.storage.node import node_store
from headwater.edge.storage.node.node_store import NodeStore
from headwater.edge.storage.segments.file_store import FileStore
from headwater.security.sealing import KeyRing, NodeKey

# A few dozen messages fill a segment; nobody wants that but these tests.
node_store.SEGMENT_BYTES_MIN = 4096
SMALL = 8192
GATHERED_SECONDS = 0.005
"""How long messages wait for a sync where they are gathered."""
KEY = NodeKey.of(b"a key for tests")

Row = tuple[bytes, bytes, bytes]


class TwinHarness:
    """One disk, and at most one open store on it."""

    def __init__(
        self,
        disk: TwinFiles | None = None,
        segment_bytes: int = SMALL,
        seed: object = 1,
        sealed: bool = False,
        compressed: bool = False,
        gathered: bool = False,
    ) -> None:
        self.disk = disk or TwinFiles()
        self.loop = TwinLoop()
        self.chance = SeededRandom(seed)
        self.options = StoreOptions(
            self.disk.root / "data",
            segment_bytes,
            clock=self.loop.clock,
            chance=self.chance,
            keys=KeyRing(KEY) if sealed else None,
        )
        if gathered:
            self.options.max_delay, self.options.bundles = GATHERED_SECONDS, True
        self.compressed = compressed
        self.loop.set_exception_handler(self.caught)
        self.errors: list[object] = []
        self.node: NodeStore | None = None
        self.streams: dict[str, FileStore] = {}

    def caught(self, loop: object, context: dict[str, object]) -> None:
        """Nothing that the loop calls may raise. What failed when the loop was dropped is nobody's
        any more."""
        if "never retrieved" not in str(context["message"]):
            self.errors.append(context.get("exception") or context["message"])

    def open(self) -> dict[str, FileStore]:
        """Streams by incarnation."""
        self.kernel = Kernel(self.loop, self.loop.clock)
        self.node = NodeStore(self.kernel, self.options)
        self.streams = {found.incarnation: found.store for found in self.node.open()}
        for store in self.streams.values():
            self.node.set_compression(store, self.compressed)
        return self.streams

    def create(self, name: str = "S") -> FileStore:
        assert self.node is not None
        store = self.node.create_stream("A", name, b'{"name":"S"}')
        self.node.set_compression(store, self.compressed)
        self.streams[store.incarnation] = store
        return store

    def commit(self) -> None:
        """Have everything that was written durable."""
        assert self.node is not None
        log = self.node.log
        lsn = log.hand_over()
        log.hurry(lsn)
        self.loop.run_until(lambda: log.durable_lsn >= lsn)
        assert self.errors == [], self.errors

    def resting(self) -> bool:
        node = self.node
        # States are put again and again, so the log keeps more segments when they take much.
        more = 2 * node.log.table.bytes // node.log.segment_bytes
        return (
            node.checkpointer.step == "idle"
            and node.compactor.idle
            and len(node.log.live) <= node.log.keep + 1 + more
            and (node.metas.idle or node.metas.stopped)
            and not node.background._pool._queue
        )

    def settle(self) -> None:
        """Let checkpointing, compaction and what is written of new streams come to rest."""
        self.commit()
        self.node.metas.flush()
        # The log keeps less when there are fewer states; it sees to that with its next segment.
        self.node.checkpointer.wake()
        self.loop.run_until(self.resting)
        self.commit()

    def close(self) -> None:
        """A clean stop."""
        assert self.node is not None
        self.loop.run_until_complete(self.node.close())
        self.node = None

    def power_cut(self, seed: object = 0, lose: str = "some") -> None:
        """The machine is off; whatever ran is forgotten."""
        self.disk.power_cut(SeededRandom(seed), lose)
        self.loop.drop()
        self.node = None
        self.streams = {}


def contents(store: FileStore) -> dict[int, Row]:
    """Every message that can be read."""
    found = {}
    for sequence in range(store.first_seq, store.last_seq + 1):
        if sequence not in store.lost:
            message = store.get(sequence)
            if message is not None:
                found[sequence] = (message.subject, message.headers, message.payload)
    return found


def readable(store: FileStore) -> dict[int, Row]:
    """Every message that can be read; what cannot is in `store.lost` afterwards."""
    found = {}
    for sequence in range(store.first_seq, store.last_seq + 1):
        try:
            message = store.get(sequence)
        except Damaged:
            continue
        if message is not None:
            found[sequence] = (message.subject, message.headers, message.payload)
    return found
