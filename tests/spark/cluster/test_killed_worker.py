"""A standalone master with two workers, of which one is killed with its executor."""

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
import pytest

from headwater.spark.options import parse_options
from headwater.spark.write.sink import HeadwaterWriter
from tests.spark.cluster.standalone import StandaloneCluster, driver_environment
from tests.spark.conftest import EVERY, Server, start_server
from tests.waiting import until, until_seen

JOB_S = 300
pytestmark = [
    pytest.mark.timeout(2 * JOB_S),
    pytest.mark.skipif(not EVERY, reason="minutes: make spark-cluster"),
]
MESSAGES = 200_000
PER_BATCH = 60_000
"""Sequences of a microbatch."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[StandaloneCluster]:
    folder = tmp_path / "cluster"
    folder.mkdir()
    with StandaloneCluster(folder) as running:
        yield running


@pytest.fixture(scope="module", params=["headwater", "nats-server"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A server with a stream S whose payloads are the sequences."""
    running = start_server(tmp_path_factory.mktemp("server"), kind=request.param)

    async def make(_: Any, js: Any) -> None:
        await js.add_stream(name="S", subjects=["s.>"])

    running.run(make)
    payloads = [b"%d" % n for n in range(1, MESSAGES + 1)]
    rows = {"subject": ["s.x"] * MESSAGES, "payload": payloads}
    writer = HeadwaterWriter(parse_options(running.options("S")))
    assert writer.write(iter([pa.RecordBatch.from_pydict(rows)])).rows == MESSAGES
    yield running
    running.process.terminate()
    running.process.wait(10)


def submit(cluster: StandaloneCluster, job: str, *words: str) -> subprocess.Popen[str]:
    command = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", cluster.url]
    command += ["--executor-memory", "512m", str(Path(__file__).with_name(job)), *words]
    return subprocess.Popen(
        command,
        env=driver_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_read_counts_each_row(
    cluster: StandaloneCluster, server: Server, tmp_path: Path
) -> None:
    options = server.options("S", partitions="6", batchBytes="65536")
    job = submit(cluster, "counting_job.py", str(tmp_path), json.dumps(options))
    try:
        until_seen(lambda: len(list(tmp_path.glob("reading-*"))) > 1, "both workers read", JOB_S)
        cluster.kill_worker(0)
        text, _ = job.communicate(timeout=JOB_S)
    finally:
        job.kill()
    assert job.returncode == 0
    (line,) = [line for line in text.splitlines() if line.startswith("counted ")]
    found = json.loads(line.removeprefix("counted "))
    assert (found["rows"], found["distinct"]) == (MESSAGES, MESSAGES)
    assert len(cluster.executors()) <= 1


@pytest.mark.parametrize("how", ["stream", "batch"])
def test_a_copy_has_each_message_once(
    cluster: StandaloneCluster, server: Server, tmp_path: Path, how: str
) -> None:
    """A `readStream` with a sink, and a batch write under a name; the target forgets ids at once.

    The server stands still while the worker is killed: that is in the middle of a batch.
    """
    target = f"T_{how}"

    async def make(_: Any, js: Any) -> None:
        await js.add_stream(name=target, subjects=["T.>"], duplicate_window=0.1)

    async def stop_within(_: Any, js: Any) -> None:
        async def there() -> bool:
            assert job.poll() is None
            copied = (await js.stream_info(target)).state.last_seq
            assert copied < (PER_BATCH if how == "stream" else MESSAGES)
            return bool(copied >= PER_BATCH // 4)

        await until(there, "a batch is under way", JOB_S)
        server.process.send_signal(signal.SIGSTOP)

    async def copies(_: Any, js: Any) -> list[int]:
        last = (await js.stream_info(target)).state.last_seq
        subscription = await js.subscribe(">", stream=target, ordered_consumer=True)
        found = []
        for _number in range(last):
            message = await subscription.next_msg(timeout=20)
            assert message.headers["Nats-Msg-Id"] == message.data.decode()
            found.append(int(message.data))
        await js.delete_stream(target)
        return found

    server.run(make)
    source = server.options("S", partitions="6", maxMsgsPerTrigger=str(PER_BATCH))
    words = json.dumps(source), json.dumps(server.options(target))
    job = submit(cluster, "copying_job.py", how, str(tmp_path), *words)
    try:
        server.run(stop_within)
        cluster.kill_worker(0)
        server.process.send_signal(signal.SIGCONT)
        assert job.wait(JOB_S) == 0
    finally:
        server.process.send_signal(signal.SIGCONT)
        job.kill()
        job.wait()
    assert sorted(server.run(copies)) == list(range(1, MESSAGES + 1))
