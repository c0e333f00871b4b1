"""A crash between any two file operations of new streams, checkpointing, compaction and
trimming."""

import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import pytest

from headwater.edge.storage.directory import metas
from headwater.edge.storage.node import node_store
from headwater.edge.storage.segments import removals, segment_jobs
from headwater.edge.storage.upkeep import checkpoint, compact
from tests.edge.storage.recovery.test_recovery import fast_directory, message
from tests.edge.storage.store_harness import Harness, contents


class StepPool(Executor):
    """Runs background work when told, on the caller's thread."""

    def __init__(self) -> None:
        self.queue: list[tuple[Future[Any], Callable[[], Any]]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.queue.append((future, fn))
        return future

    def step(self) -> bool:
        if not self.queue:
            return False
        future, work = self.queue.pop(0)
        try:
            future.set_result(work())
        except OSError as error:
            future.set_exception(error)
        return True


class Crashes:
    """Copies the store's directory again and again, with what it must hold then."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.harness = Harness(root / "live")
        self.harness.open()
        self.pool = StepPool()
        self.harness.node.background._pool.shutdown()
        self.harness.node.background._pool = self.pool
        self.stores = [self.harness.node.create_stream("A", name, b"") for name in ("S0", "S1")]
        self.harness.commit()
        self.harness.node.metas.flush()
        self.seen: list[dict[str, tuple[int, dict[int, Any]]]] = []

    def snapshot(self) -> None:
        shutil.copytree(self.root / "live", self.root / f"copy-{len(self.seen)}")
        self.seen.append(
            {
                store.incarnation: (store.last_seq, contents(store))
                for store in self.stores
                if not store.closed
            }
        )

    def rest(self) -> None:
        """Commit, then let background work go on step by step until there is none."""
        self.harness.commit()
        for _ in range(2000):
            worked = self.pool.step()
            self.harness.commit()
            self.harness.turn()
            idle = (
                self.harness.node.checkpointer.step == "idle"
                and self.harness.node.compactor.idle
                and len(self.harness.node.log.live) <= self.harness.node.log.keep + 1
            )
            if worked:
                self.snapshot()
            elif idle and not self.pool.queue:
                return
        raise AssertionError("background work does not end")

    def check(self) -> None:
        for n, want in enumerate(self.seen):
            harness = Harness(self.root / f"copy-{n}")
            found = {store.incarnation: store for store in harness.open()}
            assert harness.node.problems == [], n
            for incarnation, (last, rows) in want.items():
                store = found[incarnation]
                assert store.last_seq == last, n
                assert contents(store) == rows, n
                assert store.lost == {}
            harness.end()


@pytest.fixture
def crashes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Crashes]:
    path = fast_directory()
    made = Crashes(path)

    def watched(module: Any, name: str) -> None:
        original = getattr(module, name)

        def run(*args: Any) -> None:
            original(*args)
            made.snapshot()

        monkeypatch.setattr(module, name, run)

    watched(metas, "start_writing")
    watched(metas, "sync_directory")
    watched(segment_jobs, "start_writing")
    watched(checkpoint, "write_segments")
    watched(removals, "write_index")
    watched(node_store, "remove_segments")
    watched(compact, "write_file")
    watched(compact, "remove_segments")
    watched(compact, "sync_directory")
    yield made
    made.harness.end()
    shutil.rmtree(path)


def test_every_point(crashes: Crashes) -> None:
    first, second = crashes.stores
    n = 0
    for part in range(6):
        for _ in range(500):
            n += 1
            first.add_message(*fields(n))
            if n % 3 == 0:
                second.add_message(b"other", b"%d" % n)
            if n % 4 == 0:
                first.delete(n - 2)
            if n % 100 == 0:
                crashes.harness.commit()
        if part == 3:
            for m in range(400, 1500):
                if m % 10:
                    first.delete(m)
        if part == 4:
            second.purge(None, 500)
            first.purge(None, 400)
        crashes.rest()
    second.purge()
    crashes.rest()
    assert len(crashes.seen) > 30
    assert crashes.harness.node.compactor.rewritten
    crashes.check()


def test_nothing_is_written_behind_a_header_that_a_power_cut_tore(crashes: Crashes) -> None:
    """The log has what a new segment holds. What is left of the file may verify."""
    first, _ = crashes.stores
    name = first.directory.relative_to(crashes.root / "live") / "000001.seg"
    for n in range(1, 1001):
        first.add_message(*fields(n))
        if n % 100 == 0:
            crashes.harness.commit()
    crashes.rest()
    copies = [crashes.root / f"copy-{n}" / name for n in range(len(crashes.seen))]
    n = next(n for n, path in enumerate(copies) if path.exists())
    data = copies[n].read_bytes()
    assert len(data) > 2048
    copies[n].write_bytes(bytes(512) + data[512:])
    (last, rows) = crashes.seen[n][first.incarnation]
    harness = Harness(crashes.root / f"copy-{n}")
    for _ in range(3):
        (store,) = (one for one in harness.open() if one.incarnation == first.incarnation)
        assert harness.node.problems == []
        assert (store.last_seq, contents(store)) == (last, rows)
        last += 1
        store.add_message(*fields(last))
        rows = contents(store)
        harness.close()
    harness.end()


def fields(n: int) -> tuple[bytes, bytes, bytes]:
    subject, headers, payload = message(n)
    return subject, payload + b"x" * 60, headers
