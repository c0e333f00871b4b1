"""Streams that lose their newest messages: theirs is the same stream, made when it was, which
ends below what was read and written.

So it is after the end of a server that acknowledges what it has not synced, or when its folder is
put back from an older copy.
"""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.spark.errors import PublishError, StreamRecreatedError
from headwater.spark.options import SourceOptions, parse_options
from headwater.spark.write import publisher, sink
from headwater.spark.write.sink import commit_batch, write_batch
from tests.spark.conftest import SERVER_KINDS, Server, end, start_server
from tests.spark.read.test_stream_reader import ALL, ends, open_reader, publish, rows


@dataclass
class Forgetful:
    """A server with the stream T, which is empty again after `lose`."""

    folder: Path
    kind: str
    running: Server

    @property
    def lost(self) -> str:
        """What goes back: of a nats-server only the stream, and not the ledger."""
        return "jetstream/$G/streams/T" if self.kind == "nats-server" else "."

    def lose(self) -> None:
        self.stop()
        now = self.folder / "store" / self.lost
        shutil.rmtree(now)
        shutil.copytree(self.folder / "old" / self.lost, now)
        self.start()
        info = self.running.run(lambda connection, js: js.stream_info("T"))
        assert info.state.last_seq == 0

    def stop(self) -> None:
        self.running.process.terminate()
        self.running.process.wait(20)

    def start(self) -> None:
        port = int(self.running.url.rpartition(":")[2])
        self.running = start_server(self.folder, kind=self.kind, port=port)

    def numbers(self) -> list[int]:
        async def work(connection: Any, js: Any) -> list[int]:
            last = (await js.stream_info("T")).state.last_seq
            return [int((await js.get_msg("T", n)).data) for n in range(1, last + 1)]

        return self.running.run(work)

    def target(self, **more: str) -> SourceOptions:
        return parse_options(self.running.options("T", retryTimeout="30", **more))


def forgetful_server(folder: Path, kind: str) -> Iterator[Forgetful]:
    node = Forgetful(folder, kind, start_server(folder, kind=kind))
    try:
        node.running.run(
            lambda connection, js: js.add_stream(
                name="T", subjects=["T.>"], duplicate_window=0.1
            )
        )
        node.stop()
        shutil.copytree(folder / "store", folder / "old")
        node.start()
        yield node
    finally:
        end(node.running)


@pytest.fixture
def forgetful(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Forgetful]:
    monkeypatch.setattr(sink, "TAKEOVER_S", 0.3)
    yield from forgetful_server(tmp_path, "nats-server")


@pytest.fixture(params=SERVER_KINDS)
def origin(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Forgetful]:
    yield from forgetful_server(tmp_path, request.param)


def batch(numbers: range) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "subject": ["T.x"] * len(numbers),
            "payload": [b"%d" % n for n in numbers],
            "id": [f"r{n}" for n in numbers],
        }
    )


def test_a_target_that_lost_ended_batches_is_told(forgetful: Forgetful) -> None:
    options = forgetful.target()
    commit_batch(options, [write_batch(options, iter([batch(range(100))]), "query", "run", 0)], 0)
    forgetful.lose()
    with pytest.raises(StreamRecreatedError, match="ends at sequence 0, .* until 100.*onRecr"):
        write_batch(options, iter([batch(range(100, 120))]), "query", "run", 1)
    anyway = forgetful.target(onRecreated="restart")
    # A run is killed behind its first rows; the next one finds them where the target ends now.
    write_batch(anyway, iter([batch(range(100, 120))]), "query", "run", 1)
    done = write_batch(anyway, iter([batch(range(100, 150))]), "query", "again", 1)
    assert (done.rows, done.skipped) == (30, 20)
    commit_batch(anyway, [done], 1)
    assert forgetful.numbers() == list(range(100, 150))


def test_a_target_that_lost_rows_of_a_batch_gets_them_again(
    forgetful: Forgetful, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a batch that is about to end nor a task that goes on passes over them."""
    options = forgetful.target()
    done = write_batch(options, iter([batch(range(10))]), "query", "run", 0)
    forgetful.lose()
    with pytest.raises(PublishError, match="ends at sequence 0, but has acknowledged 10.*again"):
        commit_batch(options, [done], 0)

    connect, made = publisher.Connection, []

    def recorded(endpoint: Any) -> Any:
        made.append(connect(endpoint))
        return made[-1]

    monkeypatch.setattr(publisher, "Connection", recorded)

    def given() -> Iterator[pa.RecordBatch]:
        # More than may be under way: some are acknowledged.
        yield batch(range(3000))
        forgetful.lose()
        made[-1].close()
        yield batch(range(3000, 3010))

    with pytest.raises(PublishError, match="ends at sequence 0, but has acknowledged .*again"):
        write_batch(options, given(), "query", "run", 0)
    done = write_batch(options, iter([batch(range(3010))]), "query", "run", 0)
    commit_batch(options, [done], 0)
    assert forgetful.numbers() == list(range(3010))


def test_a_source_that_lost_its_end_is_read_on_behind_it_on_request(
    origin: Forgetful, caplog: pytest.LogCaptureFixture
) -> None:
    publish(origin.running, "T.x", 5)
    given = origin.running.options("T", onRecreated="restart")
    reader = open_reader(given)
    start = reader.initialOffset()
    first = reader.latestOffset(start, ALL)
    assert rows(reader, start, first) == [1, 2, 3, 4, 5]
    origin.lose()
    strict = open_reader(origin.running.options("T"))
    with pytest.raises(StreamRecreatedError, match="lost its end.*onRecreated=restart"):
        strict.latestOffset(first, ALL)
    # A batch that was planned before, and did not end, has what is left.
    assert rows(reader, start, first) == []
    assert "stream T ends at 0: its sequences up to 5 that were there are lost" in caplog.text
    second = reader.latestOffset(first, ALL)
    assert ends(second) == {"T": 0} and rows(reader, first, second) == []
    assert "the query goes on behind its end" in caplog.text
    publish(origin.running, "T.x", 2)
    third = reader.latestOffset(second, ALL)
    assert rows(reader, second, third) == [1, 2]
    for one in (reader, strict):
        one.stop()
