"""The scripted history on a disk of which operations fail: what is promised holds all the same, and
the store comes back by itself."""

import os
from collections.abc import Callable

from headwater.edge.storage.format.errors import StoreError
from headwater.edge.storage.segments.file_store import FileStore
from tests.edge.storage.twin_harness import Row, TwinHarness
from tests.edge.storage.whole.crash_history import History, StreamBook, check_promises


class FaultyHistory(History):
    """From operation `begin` on, `count` operations fail with `number`; what they stand for is
    tried again or left, as a caller would."""

    ROUNDS_MAX = 60
    """Seconds on the store's clock in which it comes back."""

    def __init__(self, begin: int, count: int, number: int) -> None:
        super().__init__()
        self.begin = begin
        self.count = count
        self.errno = number
        self.failures = 0
        self.met: list[str] = []

    def watch(self, what: str, path: str) -> None:
        if what in ("read", "list") or self.failures >= self.count:
            return
        if self.harness.disk.operations >= self.begin:
            self.failures += 1
            self.met.append(f"{what} {path}")
            raise OSError(self.errno, os.strerror(self.errno), path)

    def again(self, work: Callable[[], object]) -> None:
        """Until it is done, or until the store had time enough to come back."""
        for _ in range(self.ROUNDS_MAX):
            try:
                work()
                return
            except (StoreError, OSError) as error:
                if isinstance(error, OSError) and error.errno != self.errno:
                    raise
                self.let_time_go_on()
        raise AssertionError(f"it does not come back from {self.met}")

    def let_time_go_on(self) -> None:
        loop = self.harness.loop
        end = loop.time() + 1.0
        loop.call_later(1.0, int)
        loop.run_until(lambda: loop.time() >= end)

    def open(self) -> None:
        self.again(self.open_once)

    def open_once(self) -> None:
        try:
            super().open()
        except (StoreError, OSError):
            self.harness.disk.kill()
            self.harness.loop.drop()
            raise

    def create(self, name: str) -> str:
        found: list[str] = []
        self.again(lambda: found.append(super(FaultyHistory, self).create(name)))
        return found[0]

    def append(self, store: FileStore, book: StreamBook, row: Row) -> None:
        def once() -> None:
            sequence = store.add_message(row[0], row[2], row[1])
            book.rows[sequence] = row

        self.again(once)

    def put(self, owner: bytes, key: bytes, value: bytes) -> None:
        self.again(lambda: super(FaultyHistory, self).put(owner, key, value))

    def add(self, owner: bytes, key: bytes, value: bytes) -> None:
        self.again(lambda: super(FaultyHistory, self).add(owner, key, value))

    def forget(self, owner: bytes, key: bytes) -> None:
        self.again(lambda: super(FaultyHistory, self).forget(owner, key))

    def update_meta(self, incarnation: str, meta: bytes) -> None:
        self.again(lambda: super(FaultyHistory, self).update_meta(incarnation, meta))

    def delete_stream(self, incarnation: str) -> None:
        self.again(lambda: super(FaultyHistory, self).delete_stream(incarnation))

    def skip(self, incarnation: str, count: int) -> None:
        self.again(lambda: super(FaultyHistory, self).skip(incarnation, count))


def check(history: FaultyHistory) -> None:
    """After the script the power is cut: everything promised is there."""
    where = (history.begin, history.count, history.errno, history.met)
    moment = history.moment("the end", history.harness.disk)
    history.harness.disk.watch = None
    history.harness.power_cut(0, "everything")
    after = TwinHarness(history.harness.disk, seed="after")
    check_promises(after, moment, history, where)
