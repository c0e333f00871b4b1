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
