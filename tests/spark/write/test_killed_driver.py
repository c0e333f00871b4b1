"""A driver that is killed in the middle of a batch, and started again: each message once."""

import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest

from headwater.spark.options import parse_options
from headwater.spark.write.ledger import STREAM as LEDGER
from headwater.spark.write.sink import HeadwaterWriter
from tests.waiting import until

ROOT = Path(__file__).parents[3]
SOURCES = ("FROM-1", "FROM-2")
PER_SOURCE = 25_000
PER_BATCH = 20_000
EVERY = os.environ.get("HEADWATER_SPARK") == "all"
END_S = 120
"""Ample for a driver to start and to copy everything."""


@pytest.fixture
def folder() -> Iterator[Path]:
    """Where a killed driver leaves its files; the name is short enough for Unix sockets."""
    with tempfile.TemporaryDirectory(prefix="hw-", ignore_cleanup_errors=True) as name:
        yield Path(name)


class Driver:
    """The copying driver as a process of its own, with its JVM and its Python workers."""

    def __init__(self, server: Any, folder: Path) -> None:
        self._log = folder / "driver.log"
        environment = os.environ | {
            "TMPDIR": str(folder),
            "JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={folder} -XX:-UsePerfData",
            "PYSPARK_PYTHON": sys.executable,
        }
        command = [sys.executable, "-m", "tests.spark.write.copying_driver", server.url]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, str(folder), str(PER_BATCH)],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def alive(self) -> bool:
        return self._process.poll() is None

    def kill(self, with_jvm: bool) -> None:
        """SIGKILL for the Python process, and perhaps its JVM; what is left ends by itself."""
        family = psutil.Process(self._process.pid).children(recursive=True)
        victims = [one.pid for one in family if with_jvm and one.name() == "java"]
        assert len(victims) == with_jvm
        for pid in (self._process.pid, *victims):
            os.kill(pid, signal.SIGKILL)
        self._process.wait()
        _, left = psutil.wait_procs(family, END_S)
        assert not left

    def finish(self) -> None:
        assert self._process.wait(END_S) == 0, self._log.read_text()[-4000:]

    def end(self) -> None:
        """Leave no process behind, whatever has failed."""
        if self.alive():
            self.kill(with_jvm=False)


def fill_sources(server: Any, fill: Callable) -> None:
    for name in SOURCES:
        fill(name, [])
        rows = {
            "subject": [f"{name}.x"] * PER_SOURCE,
            "payload": [b"%s %d" % (name.encode(), n) for n in range(1, PER_SOURCE + 1)],
        }
        writer = HeadwaterWriter(parse_options(server.options(name)))
        assert writer.write(iter([pa.RecordBatch.from_pydict(rows)])).rows == PER_SOURCE


def last_sequence(server: Any) -> int:
    """Where the target ends: nothing is ever deleted from it."""
    return server.run(lambda connection, js: js.stream_info("INTO")).state.last_seq


def stop_at(server: Any, driver: Driver, messages: int) -> None:
    """Stop the server once the target has so many: the driver cannot end its batch."""

    async def work(connection: Any, js: Any) -> None:
        async def there() -> bool:
            assert driver.alive()
            return (await js.stream_info("INTO")).state.last_seq >= messages

        await until(there, f"{messages} messages", END_S)
        server.process.send_signal(signal.SIGSTOP)

    server.run(work)


def copies(server: Any, last: int) -> list[tuple[str, bytes]]:
    """Id and payload of all messages of the target, in order."""

    async def work(connection: Any, js: Any) -> list[tuple[str, bytes]]:
        found = []
        subscription = await js.subscribe(">", stream="INTO", ordered_consumer=True)
        for sequence in range(1, last + 1):
            message = await subscription.next_msg(timeout=20)
            assert message.metadata.sequence.stream == sequence
            found.append((message.headers["Nats-Msg-Id"], message.data))
        return found

    return server.run(work)


@pytest.mark.timeout(5 * END_S)
def test_every_message_once_whenever_a_driver_is_killed(
    request: pytest.FixtureRequest, server: Any, fill: Callable, folder: Path
) -> None:
    if "nats-server" in request.node.name and not EVERY:
        pytest.skip("minutes: HEADWATER_SPARK=all")
    fill_sources(server, fill)
    # The stream forgets ids long before the next driver has started.
    fill("INTO", [], duplicate_window=0.1)
    batches = folder / "checkpoint" / "commits"
    for done, with_jvm in ((0, True), (1, False)):
        driver = Driver(server, folder)
        try:
            stop_at(server, driver, done * PER_BATCH + PER_BATCH // 4)
            driver.kill(with_jvm)
        finally:
            driver.end()
            server.process.send_signal(signal.SIGCONT)
        # The kill was in the middle of a batch.
        assert done * PER_BATCH < last_sequence(server) < (done + 1) * PER_BATCH
        assert len([path for path in batches.iterdir() if path.name.isdigit()]) == done
    driver = Driver(server, folder)
    try:
        driver.finish()
    finally:
        driver.end()

    total = PER_SOURCE * len(SOURCES)
    assert last_sequence(server) == total
    copied = copies(server, total)
    ids = Counter(name for name, _ in copied)
    assert ids == Counter(f"{name}:{n}" for name in SOURCES for n in range(1, PER_SOURCE + 1))
    assert all(payload == name.replace(":", " ").encode() for name, payload in copied)
    server.run(lambda connection, js: js.delete_stream(LEDGER))
