"""Backups: what goes out comes back, here and between headwater and nats-server."""

import asyncio
import json
from typing import Any

import nats
import pytest

from headwater.edge.jetstream import archive, s2


class Backup:
    """A client that takes and brings backups, as the command line tool does."""

    def __init__(self, nc: Any) -> None:
        self.nc = nc

    async def api(self, name: str, body: Any) -> Any:
        answer = await self.nc.request(f"$JS.API.{name}", json.dumps(body).encode(), timeout=5)
        return json.loads(answer.data)

    async def take(self, stream: str, **options: Any) -> tuple[Any, bytes]:
        """The answer to the request, and the whole backup."""
        inbox = self.nc.new_inbox()
        sub = await self.nc.subscribe(inbox)
        body = {"deliver_subject": inbox, **options}
        answer = await self.api(f"STREAM.SNAPSHOT.{stream}", body)
        content = b""
        while True:
            message = await sub.next_msg(timeout=5)
            if not message.data:
                # A real server that sent only one chunk says nothing but that it is over.
                assert (message.headers or {"Status": "204"})["Status"] == "204"
                return answer, content
            content += message.data
            if message.reply:
                await self.nc.publish(message.reply)

    async def bring(self, stream: str, answer: Any, content: bytes, chunk: int = 700) -> Any:
        """Restore a backup; the final answer."""
        body = {"config": answer["config"], "state": answer["state"]}
        started = await self.api(f"STREAM.RESTORE.{stream}", body)
        subject = started["deliver_subject"]
        for at in range(0, len(content), chunk):
            piece = content[at : at + chunk]
            taken = await self.nc.request(subject, piece, timeout=5)
            assert not taken.data, taken.data
        return json.loads((await self.nc.request(subject, b"", timeout=5)).data)


async def fill(nc: Any, storage: str) -> None:
    js = nc.jetstream()
    await js.add_stream(name="B", subjects=["b.*"], storage=storage, allow_direct=True)
    for i in range(50):
        headers = {"N": str(i)} if i % 3 else None
        await js.publish(f"b.{i % 5}", b"payload %d " % i * (i % 7), headers=headers)
    await js.delete_msg("B", 1)
    await js.delete_msg("B", 20)
    await js.delete_msg("B", 50)
    sub = await js.pull_subscribe("b.*", durable="c")
    for message in await sub.fetch(5):
        await message.ack_sync()


async def contents(nc: Any) -> list[Any]:
    js = nc.jetstream()
    found = []
    for seq in range(1, 51):
        try:
            message = await js.get_msg("B", seq)
        except nats.js.errors.NotFoundError:
            continue
        found.append((message.seq, message.subject, message.data, message.headers, message.time))
    return found


@pytest.mark.parametrize("storage", ["memory", "file"])
@pytest.mark.parametrize("route", [(0, 0), (0, 1), (1, 0)])
async def test_there_and_back(
    both_urls: tuple[str, str], route: tuple[int, int], storage: str
) -> None:
    origin, target = [await nats.connect(both_urls[i]) for i in route]
    await fill(origin, storage)
    before = await contents(origin)
    state = (await origin.jetstream().stream_info("B")).state
    answer, content = await Backup(origin).take("B", chunk_size=1024)
    assert answer["config"]["name"] == "B"
    await origin.jetstream().delete_stream("B")
    done = await Backup(target).bring("B", answer, content)
    assert "error" not in done, done
    js = target.jetstream()
    after = (await js.stream_info("B")).state
    assert (after.messages, after.bytes) == (state.messages, state.bytes)
    assert (after.first_seq, after.last_seq) == (state.first_seq, state.last_seq)
    assert await contents(target) == before
    consumer = await js.consumer_info("B", "c")
    assert consumer.ack_floor.stream_seq == 6
    assert (await js.publish("b.1", b"next")).seq == 51
    await js.delete_stream("B")
    await origin.close()
    await target.close()


async def test_a_broken_backup_leaves_nothing(client: Any) -> None:
    await fill(client.nc, "file")
    backup = Backup(client.nc)
    answer, content = await backup.take("B")
    await client.nc.jetstream().delete_stream("B")
    config = {"config": answer["config"], "state": answer["state"]}
    started = await backup.api("STREAM.RESTORE.B", config)
    damaged = bytearray(content)
    damaged[len(content) // 2] ^= 1
    done = await client.request(started["deliver_subject"], bytes(damaged))
    assert done["error"]["err_code"] == 10062
    assert (await client.api("STREAM.INFO.B"))["error"]["err_code"] == 10059
    started = await backup.api("STREAM.RESTORE.B", config)
    await client.request(started["deliver_subject"], content[: len(content) // 2])
    done = await client.request(started["deliver_subject"], b"")
    assert done["error"]["err_code"] == 10062
    assert (await client.api("STREAM.INFO.B"))["error"]["err_code"] == 10059


async def test_refusals(client: Any) -> None:
    await client.api("STREAM.CREATE.B", {"name": "B", "subjects": ["b.*"]})
    answer = await client.api("STREAM.SNAPSHOT.B", {"deliver_subject": "a.*"})
    assert answer["error"]["err_code"] == 10015
    answer = await client.api("STREAM.SNAPSHOT.NONE", {"deliver_subject": "a"})
    assert answer["error"]["err_code"] == 10059
    body = {"config": {"name": "B", "subjects": ["b.*"]}, "state": {}}
    answer = await client.api("STREAM.RESTORE.B", body)
    assert answer["error"]["err_code"] == 10130
    await client.api("STREAM.DELETE.B")


async def test_nobody_listens(client: Any) -> None:
    await client.api("STREAM.CREATE.B", {"name": "B", "subjects": ["b.*"]})
    end = await client.nc.subscribe("nowhere")
    await end.unsubscribe()
    answer = await client.api("STREAM.SNAPSHOT.B", {"deliver_subject": "nowhere"})
    assert answer["config"]["name"] == "B"
    await asyncio.sleep(0)
    await client.api("STREAM.DELETE.B")


def test_s2_blocks() -> None:
    literal = b"\x08" + bytes([(8 - 1) << 2]) + b"abcdefgh"
    assert s2.decode_block(literal) == b"abcdefgh"
    copies = b"\x0e" + bytes([(4 - 1) << 2]) + b"abcd" + bytes([(10 - 4) << 2 | 1, 4])
    assert s2.decode_block(copies) == b"abcdabcdabcdab"
    repeat = b"\x14" + bytes([(4 - 1) << 2]) + b"abcd" + bytes([1, 4, 5 << 2 | 1, 0, 4])
    assert s2.decode_block(repeat) == b"abcd" * 5
    for bad in (b"", b"\x05\x00", b"\x04\x01\x04", b"\x02\x00aa", b"\xff\xff\xff\xff\x7f"):
        with pytest.raises(s2.FormatError):
            s2.decode_block(bad)


def test_streams_in_any_pieces() -> None:
    data = bytes(range(256)) * 1000
    stream = s2.IDENTIFIER + s2.frames(data)
    for size in (1 << 20, 1000, 7):
        reader = s2.Reader()
        pieces = [reader.feed(stream[i : i + size]) for i in range(0, len(stream), size)]
        assert b"".join(pieces) == data


def test_archives_in_any_pieces() -> None:
    entries = [
        archive.Entry(b"state.json", -5, 0, b"", b"{}"),
        archive.Entry(b"a.b", 1 << 60, 1 << 63, b"NATS/1.0\r\n\r\n", b"x" * 300),
        archive.END,
    ]
    data = archive.MAGIC + b"".join(archive.packed(entry) for entry in entries)
    for size in (len(data), 10, 1):
        reader = archive.Reader()
        found = [e for i in range(0, len(data), size) for e in reader.feed(data[i : i + size])]
        assert found == entries
    with pytest.raises(s2.FormatError):
        archive.Reader().feed(b"NOTANARCHIVE")
