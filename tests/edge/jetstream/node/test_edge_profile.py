"""What a store takes of its device with `headwater { profile: edge }`."""

import asyncio
import contextlib
import json
import os
import random
import string
import threading
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest
from nats.js.api import PubAck
from nats.js.errors import APIError

import headwater.edge
from headwater.edge.embedded.embedded_node import EmbeddedNode
from tests.slow import one_in, shared

MIB = 1 << 20


def taken(folder: Path) -> int:
    """Bytes that are allocated for the files of a folder."""
    found = 0
    for path in folder.rglob("*"):
        try:
            found += path.stat().st_blocks * 512
        except FileNotFoundError:
            continue
    return found


@pytest.mark.parametrize("profile", ["edge", ""])
async def test_an_empty_store_takes_little_of_the_device(tmp_path: Path, profile: str) -> None:
    more = {"headwater": {"profile": profile}} if profile else {}
    async with headwater.edge.open_node(
        {"jetstream": {"store_dir": tmp_path}, **more}, listen=False
    ) as node:
        await node.stream("S", ["s"])
        assert (taken(tmp_path) <= 2 * MIB) is (profile == "edge")


@pytest.mark.parametrize(
    ("size", "streams"),
    shared([(200, 4), (900, 1), (6000, 4), (60_000, 1)], lambda case: case[0] > 200),
)
async def test_a_full_store_keeps_to_its_bound(tmp_path: Path, size: int, streams: int) -> None:
    """The bound is `max_file` and a tenth, whatever the messages are like, and nothing is refused
    by streams that discard their oldest and promise all of it together."""
    config = {
        "jetstream": {"store_dir": tmp_path, "max_file": 16 * MIB},
        "headwater": {"profile": "edge"},
    }
    most, burst = 0, max(400_000 // size, 20)
    async with headwater.edge.open_node(config, listen=False) as node:
        for n in range(streams):
            await node.stream(f"S{n}", [f"s{n}"], max_bytes=16 * MIB // streams, discard="old")
        for n in range(24 * MIB // (burst * (size + 40))):
            subject = f"s{n % streams}"
            await asyncio.gather(*(node.publish(subject, os.urandom(size)) for _ in range(burst)))
            most = max(most, taken(tmp_path))
        states = [await node.jetstream.stream_info(f"S{n}") for n in range(streams)]
        held = sum(one.state.bytes for one in states)
    assert most <= 16 * MIB * 11 // 10
    assert held >= 16 * MIB * 0.5
    assert all(one.state.first_seq > 1 for one in states)


async def test_many_small_streams_keep_to_their_bounds_and_refuse_nothing(tmp_path: Path) -> None:
    """Each has less than 1 MiB, and all together have `max_file`."""
    config = {
        "jetstream": {"store_dir": tmp_path, "max_file": 8 * MIB},
        "headwater": {"profile": "edge"},
    }
    streams, most = 12, 0
    async with headwater.edge.open_node(config, listen=False) as node:
        for n in range(streams):
            await node.stream(f"S{n}", [f"s{n}"], max_bytes=8 * MIB // streams, discard="old")
        for _ in range(60):
            subjects = [f"s{n % streams}" for n in range(480)]
            await asyncio.gather(*(node.publish(one, os.urandom(200)) for one in subjects))
            most = max(most, taken(tmp_path))
        states = [await node.jetstream.stream_info(f"S{n}") for n in range(streams)]
    assert most <= 8 * MIB * 11 // 10
    assert all(one.state.first_seq > 1 for one in states)
    assert min(one.state.bytes for one in states) >= 8 * MIB // streams * 0.28


async def test_files_that_still_have_to_be_removed_are_not_needed(tmp_path: Path) -> None:
    """Removing is a thread's work. If a stream counted such files, it would let go of one segment
    after the other while that thread is busy."""
    config = {
        "jetstream": {"store_dir": tmp_path, "max_file": 8 * MIB},
        "headwater": {"profile": "edge"},
    }
    async with headwater.edge.open_node(config, listen=False) as node:
        await node.stream("S", ["s"], max_bytes=2 * MIB, discard="old")
        storage, free = node.node.jetstream.store(), threading.Event()
        store = node.node.accounts["$G"].jetstream.streams["S"].store
        while len(store.segments) < 3 or store.segments[0].busy or store.copying:
            await asyncio.gather(*(node.publish("s", os.urandom(200)) for _ in range(20)))
        storage.background.submit(free.wait)
        try:
            oldest, (before, _) = store.segments[0], storage.disk.needed_by(store)
            size = storage.disk.segment_bytes(oldest)
            await node.jetstream.purge_stream("S", seq=oldest.last + 1)
            await node.publish("s", b"behind it")
            needed, _ = storage.disk.needed_by(store)
            assert oldest not in store.segments
            assert oldest.path.exists()
        finally:
            free.set()
    assert 0 < needed < before - size // 2


async def until_stored(node: EmbeddedNode, payload: bytes) -> PubAck:
    """Publish until it is not refused: the log needs room for messages that are being moved."""
    while True:
        with contextlib.suppress(APIError):
            return await node.publish("s", payload)


async def test_a_message_may_be_longer_than_a_segment(tmp_path: Path) -> None:
    config = {
        "jetstream": {"store_dir": tmp_path, "max_file": 16 * MIB},
        "headwater": {"profile": "edge"},
    }
    async with headwater.edge.open_node(config, listen=False) as node:
        await node.stream("S", ["s"], max_bytes=15 * MIB, discard="old")
        for _ in range(30):
            await asyncio.gather(*(node.publish("s", os.urandom(900)) for _ in range(500)))
        large = os.urandom(MIB)
        for _ in range(20):
            ack = await until_stored(node, large)
            assert taken(tmp_path) <= 16 * MIB * 11 // 10
    async with headwater.edge.open_node(config, listen=False) as node:
        assert (await node.jetstream.get_msg("S", ack.seq)).data == large


async def test_a_stream_without_a_bound_is_refused_what_does_not_fit(tmp_path: Path) -> None:
    config = {
        "jetstream": {"store_dir": tmp_path, "max_file": 4 * MIB},
        "headwater": {"profile": "edge"},
    }
    async with headwater.edge.open_node(config, listen=False) as node:
        await node.stream("S", ["s"])
        with pytest.raises(APIError, match="insufficient"):
            for _ in range(5000):
                await node.publish("s", bytes(1000))
        held = (await node.jetstream.stream_info("S")).state.messages
        assert held >= 3000
        assert taken(tmp_path) <= 4 * MIB * 11 // 10 + MIB


def reading(number: int) -> bytes:
    """What a sensor sends: 200 bytes, of which much is the same each time."""
    values = {"at": 1_700_000_000_000 + 9973 * number, "celsius": number * 7919 % 100_000 / 1000}
    return json.dumps({"device": f"press-{number % 20:02}", **values}).ljust(200).encode()


def noise(number: int) -> bytes:
    """200 bytes that do not compress."""
    return random.Random(number).randbytes(200)


@pytest.mark.parametrize(("body", "bytes_max"), one_in(2, [(noise, 560), (reading, 260)]))
async def test_messages_that_come_slowly_share_the_pages_of_the_device(
    tmp_path: Path, body: Callable[[int], bytes], bytes_max: int
) -> None:
    """Ten messages come in each `commit_max_delay`: the log writes them at once, with one header,
    and what is written for a message of 200 bytes is less than three times of it. What compresses
    takes less, and is read as it was."""
    config = {
        "jetstream": {"store_dir": tmp_path, "max_file": 16 * MIB},
        "headwater": {"profile": "edge", "commit_max_delay": "10ms"},
    }
    count = 10_000 if body is reading else 5000
    async with headwater.edge.open_node(config, listen=False) as node:
        await node.stream("S", ["s"])
        storage = node.node.jetstream.store()
        before = storage.log.numbers()
        for n in range(0, count, 10):
            await asyncio.gather(*(node.publish("s", body(n + k)) for k in range(10)))
        after = storage.log.numbers()
        stream = node.node.accounts["$G"].jetstream.streams["S"]
        assert stream.store.messages == count
        assert after["syncs"] - before["syncs"] <= count // 8
        logged = after["bytes_written"] - before["bytes_written"]
        kept = [item for item in stream.store.segments if item.path.with_suffix(".idx").exists()]
        held = sum(item.path.stat().st_size for item in kept)
        indexed = sum(item.path.with_suffix(".idx").stat().st_size for item in kept)
        in_them = kept[-1].last
        read = [(await node.jetstream.get_msg("S", seq)).data for seq in (1, 900, 1999, count)]
        config_shown = (await node.jetstream.stream_info("S")).config
    assert in_them > count // 4
    assert logged / count + (held + indexed) / in_them <= bytes_max
    assert read == [body(seq - 1) for seq in (1, 900, 1999, count)]
    assert config_shown.compression in (None, "none")


async def test_indexes_say_subjects_that_share_nothing_seldom(tmp_path: Path) -> None:
    """An index has each subject of its segment once, so there are few indexes where there is room:
    with one for each segment of the log they took 13 bytes a message."""
    config = {
        "jetstream": {"store_dir": tmp_path, "max_file": 64 * MIB},
        "headwater": {"profile": "edge"},
    }
    chance = random.Random(5)
    names = ["".join(chance.choices(string.ascii_lowercase, k=20)) for _ in range(1000)]
    async with headwater.edge.open_node(config, listen=False) as node:
        await node.stream("S", ["*"])
        for n in range(0, 6000, 50):
            parts = [(chance.choice(names), noise(n + k)) for k in range(50)]
            await asyncio.gather(*(node.publish(*part) for part in parts))
        store = node.node.accounts["$G"].jetstream.streams["S"].store
        kept = [item for item in store.segments if item.path.with_suffix(".idx").exists()]
        indexed = sum(item.path.with_suffix(".idx").stat().st_size for item in kept)
        messages = kept[-1].last
    assert messages > 2000
    assert indexed / messages <= 9


@pytest.mark.parametrize(("length", "bytes_max"), [(7, 275), (32, 280)])
async def test_batches_end_where_the_blocks_of_the_device_are_full(
    tmp_path: Path, length: int, bytes_max: int
) -> None:
    """Messages of 200 bytes come each 10 ms, and the log may wait for 100. With a record for each
    of them it takes 311 to 328 bytes a message. What their subjects share stands there once, so
    long ones cost no more blocks."""
    config = {
        "jetstream": {"store_dir": tmp_path, "max_file": 64 * MIB},
        "headwater": {"profile": "edge", "commit_max_delay": "100ms"},
    }
    count, loop = 400, asyncio.get_running_loop()
    names = [f"{'s.hall-seven.machine.temperature'[: length - 4]}.{n:03}" for n in range(1000)]
    async with headwater.edge.open_node(config, listen=False) as node:
        await node.stream("S", ["s.>"])
        storage = node.node.jetstream.store()
        before = storage.log.numbers()
        acks: list[asyncio.Task[PubAck]] = []

        def publish(number: int) -> None:
            sent = node.publish(names[number * 7 % 1000], noise(number))
            acks.append(asyncio.ensure_future(sent))

        done = asyncio.Event()
        begin = loop.time()
        for number in range(count):
            loop.call_at(begin + number / 100, publish, number)
        loop.call_at(begin + count / 100, done.set)
        await done.wait()
        await asyncio.gather(*acks)
        after = storage.log.numbers()
    assert (after["bytes_written"] - before["bytes_written"]) / count <= bytes_max


async def test_refused_publishes_leave_nothing_in_memory(tmp_path: Path) -> None:
    """The error that refuses them is one for all: each raise of it used to add to its traceback,
    which took a gateway of 512 MiB a few seconds of publishes without acks."""
    config = {
        "jetstream": {"store_dir": tmp_path, "max_file": 4 * MIB},
        "headwater": {"profile": "edge"},
    }
    deepest = refused = 0
    async with headwater.edge.open_node(config, listen=False) as node:
        await node.stream("S", ["s"])
        store = node.node.accounts["$G"].jetstream.streams["S"].store
        while refused < 3000:
            sent = (node.publish("s", os.urandom(64)) for _ in range(500))
            answers = await asyncio.gather(*sent, return_exceptions=True)
            refused += sum(isinstance(answer, APIError) for answer in answers)
            if store.failure is not None:
                entries = list(traceback.walk_tb(store.failure.__traceback__))
                deepest = max(deepest, len(entries))
    assert 1 <= deepest < 20
