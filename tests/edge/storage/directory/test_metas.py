"""What a stream is stands in the log and in its file: the greater generation counts, and stays."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.edge.storage.store_harness import Harness, contents


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    made = Harness(tmp_path)
    yield made
    made.end()


def write_files(harness: Harness) -> None:
    """Have the background do what it is asked to do."""
    done: list[bool] = []
    harness.node.metas.flush()
    harness.node.background.submit(lambda: None, lambda result, error: done.append(True))
    harness.until(lambda: bool(done))


def test_what_the_log_says_of_a_finished_stream_does_not_come_back(harness: Harness) -> None:
    """The log still calls the stream unfinished when the node is killed; its file knows better."""
    harness.open()
    harness.node.making = True
    store = harness.node.create_stream("A", "S", b'{"name":"S"}')
    harness.node.making = False
    store.add_message(b"s.1", b"kept")
    harness.commit()
    # The crash comes before the log is told.
    harness.node.metas._say = lambda *what: None
    harness.node.finish_stream(store)
    want = contents(store)
    harness.crash()
    (store,) = harness.open()
    assert contents(store) == want
    write_files(harness)
    harness.close()
    (store,) = harness.open()
    assert (contents(store), harness.node.problems) == (want, [])


def test_a_long_meta_that_its_file_has_is_put_again_once(harness: Harness) -> None:
    """Each log segment that is checkpointed may put it again: in two places it was, though the file
    has it in two as well."""
    harness.open()
    meta = b"m" * (20 << 10)
    store = harness.node.create_stream("A", "S", meta)
    write_files(harness)
    log = harness.node.log
    harness.until(lambda: harness.node.metas.idle)
    while harness.node.checkpointer.done < 4:
        store.add_message(b"s.1", bytes(8000))
        harness.commit()
    done, before = harness.node.checkpointer.done, log.numbers()["bytes_written"]
    for _ in range(60):
        store.add_message(b"s.1", bytes(8000))
        harness.commit()
    checkpoints = harness.node.checkpointer.done - done
    again = log.numbers()["bytes_written"] - before - 60 * 8500
    assert checkpoints > 4
    assert 0.2 < again / len(meta) / checkpoints < 0.65
    harness.crash()
    (store,) = harness.open()
    assert harness.node.meta_of(store) == meta
    assert harness.node.problems == []
