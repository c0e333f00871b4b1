"""A hypothesis machine: a node's store on a bad disk, and what must be true of it after every step.

What is acknowledged is there; what is read is what was written; a sequence is given out once; what
is removed for good stays away; states are one of those that were put; the book of allocated bytes
is right. After damage, what is missing is named.
"""

import errno
import os
from dataclasses import dataclass, field

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headwater.edge.storage.format.errors import StoreError
from headwater.edge.storage.segments.file_store import FileStore
from tests.edge.storage.twin_harness import Row, TwinHarness, readable
from tests.edge.storage.whole.crash_history import State

SEGMENT = 8192
SUBJECTS = [b"a", b"a.b", b"orders.1", b"orders.2", b"x.y.z"]
HEADERS = b"NATS/1.0\r\nK: v\r\n\r\n"
STREAMS_MAX = 3
# How long the store gets to come back after a fault, in seconds on its own clock.
PATIENCE_S = 60
PLACES = st.integers(0, 1 << 20)


@dataclass
class Book:
    """One stream: what it holds as far as anybody asked, and what of that is sure."""

    rows: dict[int, Row] = field(default_factory=dict)
    """All that were stored and not known to be gone for good."""
    asked: set[int] = field(default_factory=set)
    """Those of `rows` whose removal was asked for, and is not durable yet."""
    last: int = 0
    """The greatest sequence that was acknowledged."""
    top: int = 0
    """The greatest sequence that the stream had."""
    unsure: set[int] = field(default_factory=set)
    """Those of `asked` of which the store refused the removal."""
    dropped: bool = False
    """Its removal was asked for."""
    states: list[State] = field(default_factory=lambda: [None])
    """Values of its one state; those before the last commit are left out."""

    def wanted(self) -> dict[int, Row]:
        return {n: row for n, row in self.rows.items() if n not in self.asked}


class NodeMachine(RuleBasedStateMachine):
    """Rules are what people, disks and power supplies do to a node."""

    sealed = False
    compressed = False

    def __init__(self) -> None:
        super().__init__()
        self.harness = TwinHarness(
            segment_bytes=SEGMENT, sealed=self.sealed, compressed=self.compressed
        )
        self.books: dict[str, Book] = {}
        self.faults = 0
        self.errno = 0
        self.kinds = ("sync",)
        self.damaged = False
        self.hurt = False
        self.n = 0
        self.harness.disk.watch = self.watch
        self.harness.open()
        self.create()

    # --- the disk ---

    def watch(self, what: str, path: str) -> None:
        if self.faults and any(what.startswith(kind) for kind in self.kinds):
            self.faults -= 1
            raise OSError(self.errno, os.strerror(self.errno), path)

    @property
    def healthy(self) -> bool:
        return not self.faults and not self.harness.disk.capacity

    @property
    def store(self) -> FileStore:
        """The stream that the next step is about."""
        names = [name for name, book in self.books.items() if not book.dropped]
        self.name = names[self.n % len(names)]
        return self.harness.streams[self.name]

    # --- rules: what people do ---

    @precondition(lambda self: not self.hurt and len(self.books) < STREAMS_MAX)
    @rule()
    def create(self) -> None:
        self.books[self.harness.create().incarnation] = Book()
        self.commit(False)

    @precondition(lambda self: not self.hurt and len(self.books) > 1)
    @rule()
    def delete_stream(self) -> None:
        if sum(not book.dropped for book in self.books.values()) > 1:
            store = self.store
            self.books[self.name].dropped = True
            self.harness.node.delete_stream(store)
            del self.harness.streams[self.name]

    @rule(
        subject=st.sampled_from(SUBJECTS),
        headed=st.booleans(),
        size=st.sampled_from([0, 1, 40, 300, 2500]),
        count=st.integers(1, 30),
    )
    def publish(self, subject: bytes, headed: bool, size: int, count: int) -> None:
        for _ in range(count):
            self.n += 1
            store = self.store
            book = self.books[self.name]
            self.breathe()
            payload = (b"%d " % self.n * size)[:size]
            row = (subject, HEADERS if headed else b"", payload)
            before = store.last_seq
            try:
                sequence = store.add_message(subject, payload, row[1])
            except StoreError:
                assert self.hurt
                assert store.last_seq == before
                return
            assert sequence == before + 1
            assert sequence > book.last
            book.rows[sequence] = row
            book.top = sequence

    def breathe(self) -> None:
        """Let the log write when it has much to do, as producers do."""
        log = self.harness.node.log
        log.hand_over()
        if log.congested and self.healthy:
            self.harness.loop.run_until(lambda: not log.congested or log.failure is not None)

    def remove(self, wanted: set[int], act: object) -> None:
        """Ask for a removal; refused ones may have happened or not."""
        book = self.books[self.name]
        before = set(book.asked)
        book.asked |= wanted & book.rows.keys()
        try:
            act()
        except StoreError:
            assert self.hurt
            book.unsure |= book.asked - before

    @rule(place=PLACES, count=st.integers(1, 40), step=st.integers(1, 3), erase=st.booleans())
    def delete(self, place: int, count: int, step: int, erase: bool) -> None:
        store = self.store
        first = store.first_seq + place % (store.last_seq - store.first_seq + 2)
        for sequence in range(first, first + count * step, step):
            if sequence in self.books[self.name].wanted():
                self.remove({sequence}, lambda n=sequence: store.delete(n, erase))

    @rule(subject=st.sampled_from([None, *SUBJECTS]), place=PLACES)
    def purge(self, subject: bytes | None, place: int) -> None:
        store = self.store
        below = store.first_seq + place % (store.last_seq - store.first_seq + 2)
        rows = self.books[self.name].wanted()
        gone = {n for n, row in rows.items() if n < below and subject in (None, row[0])}
        if below > 1:
            self.remove(gone, lambda: store.purge(subject, below))

    @rule(keep=st.integers(0, 60))
    def limit(self, keep: int) -> None:
        """As a limit on the number of messages does: the oldest go."""
        store = self.store
        rows = sorted(self.books[self.name].wanted())
        for sequence in rows[: max(len(rows) - keep, 0)]:
            self.remove({sequence}, lambda n=sequence: store.delete(n))

    @rule(value=st.binary(min_size=1, max_size=40), whole=st.booleans())
    def consumer(self, value: bytes, whole: bool) -> None:
        """A consumer's state is put, or something is added to it."""
        log, owner = self.harness.node.log, self.store.incarnation.encode()
        states = self.books[self.name].states
        whole = whole or states[-1] is None
        try:
            if whole:
                log.put_state(owner, b"c", value)
            else:
                log.add_delta(owner, b"c", value)
        except StoreError:
            assert self.hurt
            if whole:
                states.insert(len(states) - 1, (value, []))
            return
        before = states[-1]
        states.append((value, []) if whole else (before[0], [*before[1], value]))

    # --- rules: what happens ---

    @property
    def recovering(self) -> bool:
        """Whether a fault is over that the store has not noticed to be over."""
        return self.harness.node.log.failure is not None

    def let_time_go_on(self, seconds: float) -> None:
        loop = self.harness.loop
        end = loop.time() + seconds
        loop.call_later(seconds, int)
        loop.run_until(lambda: loop.time() >= end)

    @precondition(lambda self: self.healthy)
    @rule(rest=st.booleans())
    def commit(self, rest: bool) -> None:
        """Everything is durable; with `rest`, checkpointing and compaction have come to an end."""
        for _ in range(PATIENCE_S):
            if not self.recovering:
                break
            self.let_time_go_on(1.0)
        assert not self.recovering, self.harness.node.log.failure
        self.harness.commit()
        self.hurt = False
        if rest:
            self.harness.settle()
        for name, book in list(self.books.items()):
            if book.dropped:
                del self.books[name]
                continue
            assert self.harness.streams[name].committed == self.harness.streams[name].last_seq
            book.asked -= self.take_stock(book.unsure, readable(self.harness.streams[name]))
            for sequence in book.asked:
                del book.rows[sequence]
            book.asked, book.unsure = set(), set()
            book.states = book.states[-1:]

    @staticmethod
    def take_stock(unsure: set[int], rows: dict[int, Row]) -> set[int]:
        """Those that are there after all."""
        return unsure & rows.keys()

    @rule(seconds=st.sampled_from([0.001, 0.1, 3.0]))
    def wait(self, seconds: float) -> None:
        self.let_time_go_on(seconds)

    @precondition(lambda self: self.healthy)
    @rule(
        count=st.sampled_from([1, 3, 1000]),
        number=st.sampled_from([errno.EIO, errno.ENOSPC]),
        kinds=st.sampled_from([("sync",), ("write",), ("rename",), ("sync", "write", "allocate")]),
    )
    def fail(self, count: int, number: int, kinds: tuple[str, ...]) -> None:
        """The next operations of the disk fail."""
        self.faults, self.errno, self.kinds, self.hurt = count, number, kinds, True

    @precondition(lambda self: self.healthy)
    @rule(room=st.sampled_from([0, 4096, 20000]))
    def fill_up(self, room: int) -> None:
        disk = self.harness.disk
        self.hurt = True
        disk.capacity = max(disk.used + room, 1)

    @precondition(lambda self: not self.healthy)
    @rule()
    def mend(self) -> None:
        """The disk works again, and has room."""
        self.faults = self.harness.disk.capacity = 0

    @rule(seed=PLACES, lose=st.sampled_from(["some", "nothing", "everything"]))
    def power_cut(self, seed: int, lose: str) -> None:
        self.mend()
        self.note_acknowledged()
        self.harness.power_cut(seed, lose)
        self.start(set())

    @rule()
    def kill(self) -> None:
        """The process ends at once, the machine goes on."""
        self.mend()
        self.note_acknowledged()
        self.harness.disk.kill()
        self.harness.loop.drop()
        self.start(set())

    @precondition(lambda self: self.healthy)
    @rule()
    def restart(self) -> None:
        self.commit(False)
        self.note_acknowledged()
        self.harness.close()
        self.start(set())

    @precondition(lambda self: self.healthy)
    @rule(clean=st.booleans(), place=PLACES, at=PLACES, bit=st.integers(0, 7))
    def rot(self, clean: bool, place: int, at: int, bit: int) -> None:
        """One bit flips while the node is off."""
        self.commit(False)
        self.note_acknowledged()
        if clean:
            self.harness.close()
        self.harness.power_cut(0, "everything")
        disk = self.harness.disk
        files = [(parts, len(node.content)) for parts, node in disk.walk() if node.content]
        parts, size = files[place % len(files)]
        disk.flip(parts, at % size, bit)
        self.start({"/".join(parts)})

    # --- what must be true ---

    def note_acknowledged(self) -> None:
        """What is acknowledged by now must be there later."""
        self.acknowledged = {name: s.committed for name, s in self.harness.streams.items()}
        for name, last in self.acknowledged.items():
            self.books[name].last = max(self.books[name].last, last)

    def start(self, rotten: set[str]) -> None:
        """Open what the crash, the stop or the rot has left, and go on from that."""
        self.harness.loop.drop()
        self.hurt = False
        found = self.harness.open()
        problems = self.harness.node.problems
        assert rotten or self.damaged or problems == [], problems
        self.damaged = self.damaged or bool(rotten)
        missing = 0
        for name, book in list(self.books.items()):
            if name not in found:
                assert book.dropped, (name, problems)
                del self.books[name]
                continue
            book.dropped = False
            missing += self.compare(found[name], book, rotten)
        assert found.keys() <= self.books.keys()
        assert missing <= len(rotten), (missing, problems)

    def compare(self, store: FileStore, book: Book, rotten: set[str]) -> int:
        """Take over what a start found; returns how many messages are missing."""
        got = readable(store)
        told = bool(self.harness.node.problems) or bool(store.lost)
        acknowledged = self.acknowledged.get(store.incarnation, 0)
        assert store.last_seq >= book.last, (store.last_seq, book.last)
        # After damage a start may leave more sequences out, to be sure.
        assert store.last_seq <= book.top or self.damaged, (store.last_seq, book.top)
        book.top = store.last_seq
        for sequence, row in got.items():
            if sequence in book.rows:
                assert row == book.rows[sequence], sequence
            else:
                assert rotten and told, f"{sequence} is back"
        must = {n for n in book.wanted() if n <= acknowledged}
        missing = must - got.keys()
        assert all(sequence in store.lost for sequence in missing), missing - store.lost.keys()
        state = self.harness.node.log.states(store.incarnation.encode()).get(b"c")
        assert state in book.states or (rotten and told), (state, book.states)
        book.rows, book.asked, book.unsure, book.states = got, set(), set(), [state]
        book.last = max(book.last, store.committed)
        return len(missing)

    @invariant()
    def nothing_is_wrong(self) -> None:
        assert self.harness.errors == []
        taken = sum(file.blocks() for _, file in self.harness.disk.walk())
        assert self.harness.node.disk.allocation.used == taken
        for name, book in self.books.items():
            if book.dropped:
                continue
            store = self.harness.streams[name]
            got = readable(store)
            want = book.wanted()
            for sequence in book.unsure:
                got.pop(sequence, None)
            assert got == want, (got.keys() ^ want.keys(), book.unsure)
            state = self.harness.node.log.states(name.encode()).get(b"c")
            assert state == book.states[-1], (state, book.states)
            book.last = max(book.last, store.committed)

    def teardown(self) -> None:
        """Whatever happened, it comes back."""
        self.mend()
        self.commit(True)
        self.power_cut(1, "everything")
        self.restart()
        self.nothing_is_wrong()
        self.harness.power_cut(2, "everything")
