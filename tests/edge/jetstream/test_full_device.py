"""A running server on a file system of 64 MiB that fills up and is freed again."""

import asyncio
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import nats
import pytest
from nats.js import JetStreamContext
from nats.js.errors import ServiceUnavailableError

from tests.small_device import small_device

from .conftest import JetStreamServer

PAYLOAD = bytes(32 << 10)


@pytest.fixture
def device(tmp_path: Path) -> Iterator[Path]:
    """The file system that the server's store lies on."""
    path = tmp_path / "mount"
    path.mkdir()
    with small_device(path, "64m") as inside:
        (tmp_path / "store").symlink_to(inside)
        yield inside


async def fill(js: JetStreamContext, limit: int = 5000) -> int:
    """Publish until it is refused as nats-server refuses; how many were acknowledged."""
    count = 0
    try:
        while count < limit:
            await js.publish("s.a", PAYLOAD, timeout=5)
            count += 1
    except ServiceUnavailableError as error:
        assert error.err_code == 10023, error
    return count


def take_the_rest(path: Path) -> None:
    """Somebody else writes until nothing is left."""
    with path.open("wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)) == 4096:
                pass
        except OSError:
            return


def test_a_full_file_system_is_survived(
    device: Path, tmp_path: Path, start_server: Callable[..., JetStreamServer]
) -> None:
    config = tmp_path / "nats.conf"
    config.write_text("jetstream { max_file_store: 1GB }\n")
    server = start_server("-c", str(config))

    async def connect() -> tuple[nats.NATS, JetStreamContext]:
        nc = await nats.connect(server.url)
        return nc, nc.jetstream(timeout=5)

    async def while_full() -> int:
        nc, js = await connect()
        await js.add_stream(name="S", subjects=["s.>"])
        count = await fill(js)
        assert count * len(PAYLOAD) > 40 << 20
        take_the_rest(device / "rest")
        consumer = await js.pull_subscribe("s.>", "d")
        for message in await consumer.fetch(20, timeout=5):
            await message.ack_sync(timeout=5)
        assert await js.delete_msg("S", 1)
        await nc.close()
        return count

    async def after_crash(count: int) -> None:
        nc, js = await connect()
        state = (await js.stream_info("S")).state
        assert (state.messages, state.last_seq) == (count - 1, count)
        assert (await js.consumer_info("S", "d")).ack_floor.stream_seq == 20
        assert (await js.get_msg("S", count)).data == PAYLOAD
        await nc.close()

    async def freed(count: int) -> None:
        nc, js = await connect()
        os.unlink(device / "rest")
        await js.purge_stream("S", keep=10)
        for _ in range(100):
            if await fill(js, 300) == 300:
                break
            await asyncio.sleep(0.1)
        state = (await js.stream_info("S")).state
        assert state.last_seq == count + 300 and state.messages == 310
        await nc.close()

    count = asyncio.run(while_full())
    for _ in range(4):
        server.kill()
        server = start_server("-c", str(config))
        asyncio.run(after_crash(count))
    asyncio.run(freed(count))
    server.stop()
