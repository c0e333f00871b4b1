"""A history of everything that a store does, what was promised at each moment of it, and the check
that a store which was cut off at that moment kept the promises."""

from dataclasses import dataclass, field

from headwater.edge.ports.twins.files import TwinFiles
from headwater.edge.storage.segments.file_store import FileStore
from tests.edge.storage.twin_harness import Row, TwinHarness, contents


@dataclass
class StreamBook:
    """What was asked of a stream, ever."""

    name: str
    rows: dict[int, Row] = field(default_factory=dict)
    asked: set[int] = field(default_factory=set)
    """Sequences whose removal was asked for."""
    removed: set[int] = field(default_factory=set)
    """Those of them that were told to be removed for good."""
    metas: list[tuple[int, bytes]] = field(default_factory=list)
    """Each with the place in the log with which it is durable; the first is that of its making."""
    delete_asked: bool = False
    deleted: bool = False
    skipped: int = 0


@dataclass
class StreamPromise:
    """What holds of a stream at one moment."""

    submitted: int
    committed: int
    asked: frozenset[int]
    removed: frozenset[int]
    created: bool
    metas: list[bytes]
    delete_asked: bool
    deleted: bool


@dataclass
class Moment:
    """Just before one operation of the disk."""

    number: int
    what: str
    disk: TwinFiles
    streams: dict[str, StreamPromise]
    states: dict[tuple[bytes, bytes], tuple[int, int]]
    """Versions that are sure, and all that were asked for."""


State = tuple[bytes | None, list[bytes]] | None


class History:
    """Plays the script on a harness; keeps the moments whose numbers are wanted."""

    def __init__(self, wanted: range | None = None, gathered: bool = False) -> None:
        self.harness = TwinHarness(gathered=gathered)
        self.books: dict[str, StreamBook] = {}
        self.states: dict[tuple[bytes, bytes], list[State]] = {}
        self.sure: dict[tuple[bytes, bytes], int] = {}
        self.moments: list[Moment] = []
        self.wanted = wanted or range(0)
        self.harness.disk.watch = self.watch
        self.committed: dict[str, int] = {}
        self.rewritten = self.retired = self.n = self.durable = 0

    # -- promises -------------------------------------------------------------

    def watch(self, what: str, path: str) -> None:
        disk = self.harness.disk
        if what in ("read", "list") or disk.operations not in self.wanted:
            return
        self.moments.append(self.moment(f"{what} {path}", disk.copy()))

    def moment(self, what: str, disk: TwinFiles) -> Moment:
        return Moment(
            self.harness.disk.operations,
            what,
            disk,
            {name: self.promise(name, book) for name, book in self.books.items()},
            {key: (self.sure[key], len(found)) for key, found in self.states.items()},
        )

    def promise(self, incarnation: str, book: StreamBook) -> StreamPromise:
        store = self.harness.streams.get(incarnation)
        committed = self.committed.get(incarnation, 0)
        if store is not None and not book.deleted:
            committed = max(committed, store.committed)
        self.committed[incarnation] = committed
        log = getattr(self.harness.node, "log", None)
        self.durable = max(self.durable, log.durable_lsn if log is not None else 0)
        return StreamPromise(
            max(max(book.rows, default=0), book.skipped),
            committed,
            frozenset(book.asked),
            frozenset(book.removed),
            book.metas[0][0] <= self.durable,
            self.metas(book),
            book.delete_asked,
            book.deleted,
        )

    def metas(self, book: StreamBook) -> list[bytes]:
        """The newest one that is promised, and those asked for since."""
        sure = sum(lsn <= self.durable for lsn, _ in book.metas)
        return [meta for _, meta in book.metas[max(sure - 1, 0) :]]

    # -- what the script does -------------------------------------------------

    def open(self) -> None:
        self.harness.streams = {}
        self.harness.open()
        assert self.harness.node.problems == []
        for incarnation, book in self.books.items():
            assert book.deleted or incarnation in self.harness.streams

    def create(self, name: str) -> str:
        store = self.harness.create(name)
        made = self.harness.node.log.hand_over(), b'{"name":"S"}'
        self.books[store.incarnation] = StreamBook(name, metas=[made])
        return store.incarnation

    def store(self, incarnation: str) -> FileStore:
        return self.harness.streams[incarnation]

    def publish(self, incarnation: str, count: int, every: int = 4) -> None:
        """`count` messages, committed in batches of `every`."""
        store, book = self.store(incarnation), self.books[incarnation]
        for i in range(count):
            self.n += 1
            row = (
                b"site.%d" % (self.n % 5),
                b"NATS/1.0\r\nN: %d\r\n\r\n" % self.n if self.n % 3 == 0 else b"",
                b"payload %d " % self.n * (self.n % 7),
            )
            self.append(store, book, row)
            if i % every == every - 1:
                self.harness.commit()

    def append(self, store: FileStore, book: StreamBook, row: Row) -> None:
        book.rows[store.last_seq + 1] = row
        store.add_message(row[0], row[2], row[1])

    def remove(self, incarnation: str, sequences: range, erase: bool = False) -> None:
        book = self.books[incarnation]
        for sequence in sequences:
            book.asked.add(sequence)
            self.store(incarnation).delete(sequence, erase)

    def purge(self, incarnation: str, subject: bytes | None = None, below: int = 0) -> None:
        store, book = self.store(incarnation), self.books[incarnation]
        for sequence in range(store.first_seq, min(below or store.last_seq + 1, 1 << 30)):
            if subject is None or store.subject_at(sequence) == subject:
                book.asked.add(sequence)
        store.purge(subject, below or None)

    def put(self, owner: bytes, key: bytes, value: bytes) -> None:
        self.harness.node.log.put_state(owner, key, value)
        self.versions(owner, key).append((value, []))

    def add(self, owner: bytes, key: bytes, value: bytes) -> None:
        self.harness.node.log.add_delta(owner, key, value)
        versions = self.versions(owner, key)
        before = versions[-1] or (None, [])
        versions.append((before[0], [*before[1], value]))

    def forget(self, owner: bytes, key: bytes) -> None:
        self.harness.node.log.delete_state(owner, key)
        self.versions(owner, key).append(None)

    def versions(self, owner: bytes, key: bytes) -> list[State]:
        self.sure.setdefault((owner, key), 0)
        return self.states.setdefault((owner, key), [None])

    def update_meta(self, incarnation: str, meta: bytes) -> None:
        book = self.books[incarnation]
        book.metas.append((1 << 62, meta))
        self.harness.node.update_meta(self.store(incarnation), meta)
        book.metas[-1] = self.harness.node.log.hand_over(), meta

    def delete_stream(self, incarnation: str) -> None:
        book = self.books[incarnation]
        book.delete_asked = True
        self.harness.node.delete_stream(self.store(incarnation))

    def skip(self, incarnation: str, count: int) -> None:
        store = self.store(incarnation)
        self.books[incarnation].skipped = store.last_seq + count
        store.skip(store.last_seq + count)

    def commit(self) -> None:
        """Everything asked for so far is promised now."""
        self.harness.commit()
        for book in self.books.values():
            book.removed |= book.asked
            book.deleted = book.delete_asked
        for key, found in self.states.items():
            self.sure[key] = len(found) - 1

    def settle(self) -> None:
        self.commit()
        self.harness.settle()

    def run(self) -> None:
        """The script."""
        self.open()
        a, b, c = self.create("A"), self.create("B"), self.create("C")
        self.publish(a, 12)
        self.publish(b, 6, 1)
        self.put(b"consumers", b"one", b"start")
        self.put(b"consumers", b"two", b"x" * 60)
        self.remove(a, range(3, 6))
        self.commit()
        for round_ in range(6):
            self.publish(a, 30, 10)
            self.publish(b, 12, 3)
            self.publish(c, 7, 7)
            self.add(b"consumers", b"one", b"%d," % round_)
            self.remove(a, range(round_ * 30 + 8, round_ * 30 + 12))
            self.commit()
        self.settle()
        self.purge(b, below=20)
        self.purge(c, b"site.2")
        self.update_meta(a, b'{"name":"S","v":2}')
        self.publish(b, 20)
        self.commit()
        self.delete_stream(c)
        d = self.create("D")
        self.publish(d, 15, 5)
        self.forget(b"consumers", b"two")
        self.commit()
        self.restart_after_power_cut()
        self.remove(a, range(14, 110))
        self.remove(d, range(2, 4), erase=True)
        self.skip(d, 10)
        self.publish(d, 10)
        self.settle()
        self.publish(a, 60, 12)
        self.settle()
        self.publish(a, 200, 20)
        self.settle()
        self.remove(a, range(225, 400))
        self.remove(a, range(402, 430, 2), erase=True)
        self.settle()
        self.commit()
        self.stop()
        self.open()
        self.publish(a, 10)
        self.purge(d)
        self.publish(d, 5)
        self.put(b"consumers", b"two", b"again")
        self.settle()
        self.stop()
        self.open()
        self.publish(b, 3, 1)
        self.commit()

    def stop(self) -> None:
        self.rewritten += self.harness.node.compactor.rewritten
        self.retired += self.harness.node.checkpointer.done
        self.harness.close()

    def restart_after_power_cut(self) -> None:
        self.harness.power_cut(7)
        self.open()


def check(moment: Moment, history: History, seed: object, lose: str) -> None:
    """Cut the power at a moment, start again, and see whether every promise was kept."""
    harness = TwinHarness(moment.disk.copy(), seed=f"{seed}/after")
    harness.power_cut(seed, lose)
    where = (moment.number, moment.what, seed, lose)
    check_promises(harness, moment, history, where)


def check_promises(
    harness: TwinHarness, moment: Moment, history: History, where: object
) -> None:
    """Start, and compare what is there with what was promised."""
    found = harness.open()
    assert harness.node.problems == [], (where, harness.node.problems)
    for incarnation, promise in moment.streams.items():
        if promise.deleted:
            assert incarnation not in found, where
        elif promise.created and not promise.delete_asked:
            assert incarnation in found, where
        if incarnation in found:
            book = history.books[incarnation]
            check_stream(harness, found[incarnation], promise, book.rows, where)
    owners = {key[0] for key in moment.states}
    states = {owner: harness.node.log.states(owner) for owner in owners}
    for key, (sure, count) in moment.states.items():
        allowed = history.states[key][sure : count + 1]
        assert states[key[0]].get(key[1]) in allowed, (where, key, states, allowed)
    go_on(harness, where)


def check_stream(
    harness: TwinHarness,
    store: FileStore,
    promise: StreamPromise,
    rows: dict[int, Row],
    where: object,
) -> None:
    got = contents(store)
    assert store.lost == {}, where
    assert promise.committed <= store.last_seq <= promise.submitted + 1, where
    for sequence, row in got.items():
        assert row == rows[sequence], (where, sequence)
        assert sequence not in promise.removed, (where, sequence)
    for sequence in rows:
        if sequence <= promise.committed and sequence not in promise.asked:
            assert sequence in got, (where, sequence)
    meta = harness.node.meta_of(store)
    assert meta in promise.metas, (where, meta)


def go_on(harness: TwinHarness, where: object) -> None:
    """The store works: another message takes the next sequence, and is there at the next start."""
    want = {}
    for incarnation, store in harness.streams.items():
        last = store.last_seq
        assert store.add_message(b"next", b"x") == last + 1, where
        want[incarnation] = {**contents(store)}
    harness.commit()
    harness.power_cut(repr(where), "everything")
    found = harness.open()
    assert harness.node.problems == [], where
    assert {name: contents(store) for name, store in found.items()} == want, where
    # Descriptors of a disk in memory keep it in memory.
    harness.power_cut(0, "everything")
