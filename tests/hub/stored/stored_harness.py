"""Groups of one node in a store on a disk in memory."""

from headwater.edge.kernel.kernel import Kernel
from headwater.edge.ports.twins.chance import SeededRandom
from headwater.edge.ports.twins.files import TwinFiles
from headwater.edge.ports.twins.loop import TwinLoop
from headwater.edge.storage.directory.store_options import StoreOptions
from headwater.edge.storage.node import node_store
from headwater.edge.storage.node.node_store import NodeStore
from headwater.edge.storage.segments.file_store import FileStore
from headwater.hub.raft.model.config import Config
from headwater.hub.raft.model.entry import Entry
from headwater.hub.raft.model.ready import Restored, bootstrap
from headwater.hub.raft.model.snapshot import Snapshot
from headwater.hub.raft.multi_raft import MultiRaft, WriteSet
from headwater.hub.raft.raft import Raft
from headwater.hub.stored.group_store import GroupStore, Naming
from headwater.security.sealing import KeyRing

# A few batches fill a segment.
node_store.SEGMENT_BYTES_MIN = 4096
SEGMENT_BYTES = 32768
ALONE = Config({1: 1})
Row = tuple[int, bytes, bytes]


class Adder:
    """Appends each entry's data as a message, and counts."""

    def __init__(self) -> None:
        self.count = 0

    def apply(self, store: FileStore, entry: Entry) -> int:
        sequence = store.add_message(b"s.%d" % (entry.index % 3), entry.data, b"", entry.index)
        self.count += 1
        if self.count % 50 == 0:
            store.purge_head(sequence - 30)
        return int(sequence)

    def state(self) -> bytes:
        return b"%d" % self.count

    def carried(self) -> bytes:
        return self.state()

    def restore(self, state: bytes) -> None:
        self.count = int(state or b"0")


class StoredNode:
    """One disk, and at most one start of a node on it."""

    def __init__(self, number: int = 1, config: Config = ALONE) -> None:
        self.number = number
        self.config = config
        self.disk = TwinFiles()
        self.loop = TwinLoop()
        self.errors: list[object] = []
        self.loop.set_exception_handler(lambda loop, context: self.errors.append(context))
        self.chance = SeededRandom(number)
        self.told: list[tuple[Entry, object]] = []
        self.keys: KeyRing | None = None

    def open(self, first: bool = False, groups: tuple[int, ...] = (1,)) -> "StoredNode":
        kernel = Kernel(self.loop, self.loop.clock)
        options = StoreOptions(
            self.disk.root / "data",
            SEGMENT_BYTES,
            numbered_elsewhere=lambda meta: True,
            clock=self.loop.clock,
            keys=self.keys,
            chance=self.chance,
        )
        self.node = NodeStore(kernel, options)
        self.node.open()
        self.store = GroupStore(self.node, int, self.naming, lambda _: Adder())
        self.multi_raft = MultiRaft(self.number, self.store.boot, self.chance.below)
        self.outbox: list = []
        self.store.on_synced = self.synced
        for group in groups:
            restored = self.store.start.groups.get(group)
            if restored is None and first:
                self.create(group)
                restored = bootstrap(self.config, self.number)
            self.multi_raft.add(
                group, restored or Restored(Snapshot(0, 0, Config()), seeds=(1, 2, 3))
            )
            self.store.attach(self.multi_raft.groups[group])
        return self

    def naming(self, group: int) -> Naming:
        """Account, name and meta of a group's stream."""
        return Naming("A", f"S{group}", b"%d" % group, f"stream 'A > S{group}'")

    def create(self, group: int) -> None:
        done: list[bool] = []
        first = bootstrap(self.config, self.number)
        self.store.create(group, first, lambda: done.append(True))
        self.loop.run_until(lambda: bool(done))

    def raft(self, group: int = 1) -> Raft:
        return self.multi_raft.groups[group]

    def synced(self, number: int) -> None:
        self.outbox += self.multi_raft.synced(number)

    def step(self) -> None:
        """Everything that can be done now."""
        for _ in range(10_000):
            self.store.pump()
            while self.multi_raft.has_ready() and self.multi_raft.can_write():
                self.take(self.multi_raft.ready())
            if self.store.idle and not self.multi_raft.has_ready():
                break
            self.loop.run_ready()
        assert self.errors == [], self.errors

    def take(self, write_set: WriteSet) -> None:
        self.outbox += write_set.packets
        self.store.write(write_set)
        for raft, ready in write_set.groups:
            self.store.carry(raft, ready)
            self.told += self.store.replicas[raft.group].apply(ready.committed)

    def settle(self) -> None:
        """What was applied is durable, too."""
        log = self.node.log
        lsn = log.hand_over()
        self.loop.run_until(lambda: log.durable_lsn >= lsn)

    def lead(self, group: int = 1) -> Raft:
        raft = self.raft(group)
        for _ in range(100):
            if raft.is_leader:
                return raft
            self.multi_raft.touch(raft)
            self.multi_raft.tick(0)
            self.step()
        raise AssertionError("nobody leads")

    def propose(self, count: int, group: int = 1) -> None:
        raft = self.raft(group)
        last = raft.log.last
        raft.propose([b"entry %d" % (last + 1 + i) for i in range(count)])
        self.multi_raft.touch(raft)
        self.step()

    def rows(self, group: int = 1) -> list[Row]:
        store = self.store.replicas[group].store
        assert store is not None
        found = [store.get(n) for n in range(store.first_seq, store.last_seq + 1)]
        return [(m.sequence, m.subject, m.payload) for m in found if m is not None]

    def stop(self) -> None:
        """An orderly stop."""
        self.step()
        self.store.record_clean_stop()
        self.loop.run_until_complete(self.node.close())
        self.store.close()

    def cut(self, seed: int = 0, lose: str = "some") -> None:
        """The power is cut."""
        self.disk.power_cut(SeededRandom(seed), lose)
        self.loop.drop()
