"""A driver that is killed in the middle of a batch, and started again: each message once."""

import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from nats.js.api import AckPolicy, ConsumerConfig

from headwater.spark.options import parse_options
from headwater.spark.write.ledger import STREAM as LEDGER
from headwater.spark.write.sink import HeadwaterWriter
from tests.slow import slow
from tests.spark.conftest import EVERY
from tests.spark.driver_process import END_S, Driver
from tests.spark.write.copying_driver import copy
from tests.waiting import until

SOURCES = ("FROM-1", "FROM-2")
PER_BATCH = 20_000
PER_SOURCE = PER_BATCH + 5_000 if EVERY else PER_BATCH // 2 + 2_500
"""Each kill is within a batch, and another batch comes after the last one."""


def copying(server: Any, folder: Path) -> Driver:
    return Driver(
        folder, "tests.spark.write.copying_driver", server.url, str(folder), str(PER_BATCH)
    )


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
        subscription = await js.pull_subscribe(
            ">", stream="INTO", config=ConsumerConfig(ack_policy=AckPolicy.NONE)
        )
        while len(found) < last:
            for message in await subscription.fetch(1000, timeout=20):
                found.append((message.headers["Nats-Msg-Id"], message.data))
                assert message.metadata.sequence.stream == len(found)
        return found

    return server.run(work)


@slow
@pytest.mark.timeout(5 * END_S)
def test_every_message_once_whenever_a_driver_is_killed(
    server: Any, fill: Callable, spark: Any, driver_folder: Path
) -> None:
    fill_sources(server, fill)
    # The stream forgets ids long before the next driver has started.
    fill("INTO", [], duplicate_window=0.1)
    batches = driver_folder / "checkpoint" / "commits"
    # Each kill is a start of a JVM more: half a minute on a busy machine.
    kills = ((0, True), (1, False)) if EVERY else ((0, True),)
    for done, with_jvm in kills:
        driver = copying(server, driver_folder)
        try:
            stop_at(server, driver, done * PER_BATCH + PER_BATCH // 4)
            driver.kill(with_jvm)
        finally:
            driver.end()
            server.process.send_signal(signal.SIGCONT)
        # The kill was in the middle of a batch.
        assert done * PER_BATCH < last_sequence(server) < (done + 1) * PER_BATCH
        assert len([path for path in batches.iterdir() if path.name.isdigit()]) == done
    copy(spark, server.url, driver_folder, PER_BATCH)
    check_copies(server)


def check_copies(server: Any) -> None:
    """Each message of the sources is in the target once; then the ledger goes."""
    total = PER_SOURCE * len(SOURCES)
    assert last_sequence(server) == total
    copied = copies(server, total)
    ids = Counter(name for name, _ in copied)
    assert ids == Counter(f"{name}:{n}" for name in SOURCES for n in range(1, PER_SOURCE + 1))
    assert all(payload == name.replace(":", " ").encode() for name, payload in copied)
    server.run(lambda connection, js: js.delete_stream(LEDGER))


@slow
@pytest.mark.timeout(5 * END_S)
def test_a_driver_that_stood_still_finds_another_one_on_its_checkpoint(
    server: Any, fill: Callable, spark: Any, driver_folder: Path
) -> None:
    """It has sent a part of its batch, the other one sends the rest, and then it goes on."""
    fill_sources(server, fill)
    fill("INTO", [], duplicate_window=0.1)
    first = copying(server, driver_folder)
    try:
        stop_at(server, first, PER_BATCH // 4)
        first.hold_all()
        server.process.send_signal(signal.SIGCONT)
        assert PER_BATCH // 4 <= last_sequence(server) < PER_BATCH
        copy(spark, server.url, driver_folder, PER_BATCH)
        first.release_all()
        assert first.wait() != 0
    finally:
        server.process.send_signal(signal.SIGCONT)
        first.end()
    assert "two queries must not use one checkpoint" in first.log
    check_copies(server)
