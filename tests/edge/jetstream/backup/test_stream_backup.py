"""Backups: what goes out comes back, here and between headwater and nats-server."""

import asyncio
import json
from typing import Any

import nats
import pytest
from nats.js.api import ConsumerConfig

from headwater.edge.jetstream.model import archive, s2
from tests.edge.jetstream.conftest import comparable


class Backup:
    """A client that takes and brings backups, as the command line tool does."""

    def __init__(self, nc: Any) -> None:
        self.nc = nc

    async def api(self, name: str, body: Any) -> Any:
        answer = await self.nc.request(f"$JS.API.{name}", json.dumps(body).encode(), timeout=5)
        return json.loads(answer.data)

    async def take(self, stream: str, late: bool = False, **options: Any) -> tuple[Any, bytes]:
        """The answer to the request, and the whole backup. A `late` client subscribes after the
        answer, and has a wildcard subscription that covers the subject from before."""
        inbox = self.nc.new_inbox()
        if not late:
            sub = await self.nc.subscribe(inbox)
        body = {"deliver_subject": inbox, **options}
        answer = await self.api(f"STREAM.SNAPSHOT.{stream}", body)
        if late:
            await self.nc.request("$JS.API.INFO")
            sub = await self.nc.subscribe(inbox)
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


async def part_read(nc: Any) -> Any:
    """A filtered consumer that is neither at its begin nor at its end; its INFO."""
    js = nc.jetstream()
    config = ConsumerConfig(filter_subject="b.2", ack_wait=3600, max_deliver=9)
    sub = await js.pull_subscribe("b.2", durable="part", config=config)
    first, second, third = await sub.fetch(3)
    await first.ack_sync()
    await third.ack_sync()
    await nc.request(second.reply, b"-NAK", timeout=5)
    again = (await sub.fetch(1))[0]
    assert again.metadata.num_delivered == 2
    return await js.consumer_info("B", "part")


def told(info: Any) -> Any:
    """What of a consumer's INFO a restore has to bring back."""
    delivered, floor = info.delivered, info.ack_floor
    return (
        (delivered.consumer_seq, delivered.stream_seq, floor.consumer_seq, floor.stream_seq),
        (info.num_ack_pending, info.num_redelivered, info.num_pending),
    )


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
    progress = told(await part_read(origin))
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
    assert (consumer.ack_floor.stream_seq, consumer.ack_floor.consumer_seq) == (6, 5)
    assert told(await js.consumer_info("B", "part")) == progress
    assert (await js.publish("b.1", b"next")).seq == 51
    await js.delete_stream("B")
    await origin.close()
    await target.close()


def names(content: bytes) -> list[bytes]:
    """Of the entries of a backup; its length says nothing, for it has times in it."""
    entries = archive.ArchiveReader().feed(s2.FrameReader().feed(content))
    return sorted(entry.name for entry in entries)


async def test_a_receiver_may_subscribe_after_the_answer(both_urls: tuple[str, str]) -> None:
    """So does the nats tool, whose inboxes also lie under a wildcard subscription."""
    for url in both_urls:
        nc = await nats.connect(url)
        await fill(nc, "memory")
        sent = names((await Backup(nc).take("B"))[1])
        _, content = await Backup(nc).take("B", late=True)
        assert names(content) == sent
        await nc.jetstream().delete_stream("B")
        await nc.close()


async def test_a_consumer_that_cannot_be_restored(client: Any) -> None:
    """Odd times are taken, impossible numbers refused, and every restore is answered."""
    backup = Backup(client.nc)
    config = {"name": "B", "subjects": ["b.*"]}
    for sequence, refused in ((1, 0), (-1, 10062)):
        own = {
            "durable_name": "c",
            "ack_policy": "explicit",
            "deliver_policy": "by_start_time",
            "opt_start_time": "0001-01-01T00:00:00Z",
        }
        state = {"delivered": {"stream_seq": sequence}}
        consumer = json.dumps({"config": own, "state": state}).encode()
        entries = [
            archive.ArchiveEntry(b"state.json", 1, 0, b"", b'{"consumer_count":1}'),
            archive.ArchiveEntry(b"consumers/c", 1, 0, b"", consumer),
            archive.END,
        ]
        plain = archive.MAGIC + b"".join(archive.packed(entry) for entry in entries)
        content = s2.IDENTIFIER + s2.frames(plain)
        started = await backup.api("STREAM.RESTORE.B", {"config": config, "state": {}})
        taken = await client.request(started["deliver_subject"], content)
        done = taken or await client.request(started["deliver_subject"], b"")
        assert done.get("error", {}).get("err_code", 0) == refused
        await client.api("STREAM.DELETE.B")


async def test_advisories(both_urls: tuple[str, str]) -> None:
    """Who asked what, and backups, as nats-server tells them."""
    heard = []
    for url in both_urls:
        nc = await nats.connect(url, name="asker")
        sub = await nc.subscribe("$JS.EVENT.ADVISORY.>")
        backup = Backup(nc)
        await backup.api("STREAM.CREATE.B", {"name": "B", "storage": "memory"})
        for name in ("one", "two"):
            config = {"name": name, "durable_name": name} if name == "one" else {"name": name}
            await backup.api(f"CONSUMER.CREATE.B.{name}", {"stream_name": "B", "config": config})
        await backup.api("STREAM.INFO.NONE", {})
        answer, content = await backup.take("B")
        await backup.api("STREAM.DELETE.B", {})
        await backup.bring("B", answer, content)
        await backup.api("STREAM.DELETE.B", {})
        events = []
        while len(events) < 22:  # 8 of requests, and 14 of what they did, in any order
            message = await sub.next_msg(5)
            events.append((message.subject, comparable(json.loads(message.data))))
        made = [subject for subject, _ in events if ".CONSUMER.CREATED." in subject]
        assert len(made) == 2, "of consumers that a restore brings nothing is told"
        # Requests are told of when they are done, and a backup is done beside others.
        heard.append(sorted(events, key=lambda event: (event[0], str(event[1].get("subject")))))
        await nc.close()
    ours, theirs = heard
    assert [subject for subject, _ in ours] == [subject for subject, _ in theirs]
    for (_, our), (_, their) in zip(ours, theirs, strict=True):
        assert our["type"] == their["type"]
        assert set(our) == set(their)
        assert set(our.get("client", ())) == set(their.get("client", ()))
        asked, asked_there = (str(event.get("subject")).split(".")[:4] for event in (our, their))
        assert asked == asked_there


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
    padding = b"\xfe\x00\x00\x00" + b"\x80\x02\x00\x00ab"
    stream = s2.IDENTIFIER + padding + s2.frames(data) + padding
    for size in (1 << 20, 65_537, 1000, 7, 1):
        reader = s2.FrameReader()
        pieces = [reader.feed(stream[i : i + size]) for i in range(0, len(stream), size)]
        assert b"".join(pieces) == data


def test_archives_in_any_pieces() -> None:
    entries = [
        archive.ArchiveEntry(b"state.json", -5, 0, b"", b"{}"),
        archive.ArchiveEntry(b"a.b", 1 << 60, 1 << 63, b"NATS/1.0\r\n\r\n", b"x" * 300),
        archive.END,
    ]
    data = archive.MAGIC + b"".join(archive.packed(entry) for entry in entries)
    for size in (len(data), 10, 1):
        reader = archive.ArchiveReader()
        found = [e for i in range(0, len(data), size) for e in reader.feed(data[i : i + size])]
        assert found == entries
    with pytest.raises(s2.FormatError):
        archive.ArchiveReader().feed(b"NOTANARCHIVE")
