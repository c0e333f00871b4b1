"""A running server on a file system of 64 MiB that fills up and is freed again."""

import asyncio
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import nats
import pytest
from nats.js import JetStreamContext
from nats.js.errors import ServerError, ServiceUnavailableError

from tests.edge.jetstream.conftest import JetStreamServer
from tests.small_device import small_device
from tests.waiting import until

PAYLOAD = bytes(32 << 10)


@pytest.fixture
def device(tmp_path: Path) -> Iterator[Path]:
    """The file system that the server's store lies on."""
    path = tmp_path / "mount"
    path.mkdir()
    with small_device(path, 64) as inside:
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

        async def filled() -> bool:
            return await fill(js, 300) == 300

        await until(filled, "there is room again")
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


ATOMIC = 20


async def flood(nc: nats.NATS) -> tuple[Counter[str], Counter[str]]:
    """Publish with hundreds of answers outstanding until many are refused: messages acknowledged
    and answers of refusal, per stream."""
    inbox = nc.new_inbox()
    answers = await nc.subscribe(f"{inbox}.*")
    acked: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    number = 0
    while min(refused[name] for name in ("SYNC", "LATE", "ATOMIC")) < 3:
        for _ in range(100):
            for name in ("sync", "late"):
                await nc.publish(name, PAYLOAD[:4000], reply=f"{inbox}.{name}")
        number += 1
        for i in range(1, ATOMIC + 1):
            head = {"Nats-Batch-Id": str(number), "Nats-Batch-Sequence": str(i)}
            end = {"Nats-Batch-Commit": "1"} if i == ATOMIC else {}
            reply = f"{inbox}.atomic" if end else ""
            await nc.publish("atomic", PAYLOAD, reply=reply, headers={**head, **end})
        for _ in range(201):
            answer = await answers.next_msg(10)
            name = answer.subject.rsplit(".", 1)[1].upper()
            found = json.loads(answer.data)
            if "error" in found:
                assert found["error"]["err_code"] == 10023, found
                refused[name] += 1
            else:
                acked[name] += found.get("count", 1)
    return acked, refused


async def test_what_a_full_device_refuses_is_not_stored(
    device: Path, tmp_path: Path, start_server: Callable[..., JetStreamServer]
) -> None:
    config = tmp_path / "nats.conf"
    config.write_text("jetstream { max_file_store: 1GB }\n")
    nc = await nats.connect(start_server("-c", str(config)).url)
    late = {"headwater.durability": "interval", "headwater.sync_interval": "1h"}
    settings = {"SYNC": {}, "LATE": {"metadata": late}, "ATOMIC": {"allow_atomic": True}}
    for name, more in settings.items():
        body = json.dumps({"name": name, "subjects": [name.lower()], **more}).encode()
        made = await nc.request(f"$JS.API.STREAM.CREATE.{name}", body, timeout=5)
        assert "error" not in json.loads(made.data)
    for _ in range(3):
        acked, refused = await flood(nc)
        for name in settings:
            info = await nc.request(f"$JS.API.STREAM.INFO.{name}")
            state = json.loads(info.data)["state"]
            assert state["messages"] == acked[name], (name, acked, refused)
            made = await nc.request(f"$JS.API.STREAM.PURGE.{name}", timeout=5)
            assert "error" not in json.loads(made.data)
    await nc.close()


async def test_a_deleted_stream_makes_room_for_the_next(
    device: Path, tmp_path: Path, start_server: Callable[..., JetStreamServer]
) -> None:
    config = tmp_path / "nats.conf"
    config.write_text("jetstream { max_file_store: 1GB }\n")
    nc = await nats.connect(start_server("-c", str(config)).url)
    js = nc.jetstream(timeout=5)
    await js.add_stream(name="S", subjects=["s.>"])
    for _ in range(2):
        assert await fill(js) > 1000
        take_the_rest(device / "rest")
        with pytest.raises(ServerError) as caught:
            await js.add_stream(name="T", subjects=["t"])
        assert caught.value.err_code == 10049
        assert await js.delete_stream("S")
        await js.add_stream(name="S", subjects=["s.>"])
        assert (await js.publish("s.a", PAYLOAD)).seq == 1
        os.unlink(device / "rest")
    await nc.close()
