"""A running server whose store, or whose stream, has a budget for what it takes on its device."""

import asyncio
import contextlib
import json
import os
import subprocess
import urllib.request
from collections.abc import Callable
from pathlib import Path

import nats
import pytest
from nats.js import JetStreamContext
from nats.js.api import DiscardPolicy, StreamConfig
from nats.js.errors import ServiceUnavailableError

from tests.edge.jetstream.conftest import COMMANDS, JetStreamServer
from tests.waiting import until, until_state

BUDGET = 12 << 20
STREAM_BUDGET = 8 << 20
KIB = bytes(1024)
LARGE = bytes(8192)
Start = Callable[..., JetStreamServer]


def taken(path: Path) -> int:
    """The least of three looks: messages that move from the log to a segment meanwhile are counted
    at both places."""
    return min(seen(path) for _ in range(3))


def seen(path: Path) -> int:
    """As `du` counts; files that go away meanwhile are as good as gone."""
    total = 0
    for folder, _, names in os.walk(path):
        for name in [".", *names]:
            try:
                total += os.lstat(os.path.join(folder, name)).st_blocks * 512
            except FileNotFoundError:
                continue
    return total


async def fill(js: JetStreamContext, store: Path, payload: bytes, err_code: int) -> int:
    """Publish until it is refused; how many messages were acknowledged."""
    count = 0
    while True:
        sent = [js.publish("s", payload, timeout=5) for _ in range(100)]
        answers = await asyncio.gather(*sent, return_exceptions=True)
        assert taken(store / "jetstream") <= BUDGET
        refused = [one for one in answers if isinstance(one, BaseException)]
        count += len(answers) - len(refused)
        if refused:
            error = refused[0]
            assert isinstance(error, ServiceUnavailableError), error
            assert error.err_code == err_code, error
            return count


async def until_accepted(js: JetStreamContext) -> None:
    async def accepted() -> bool:
        with contextlib.suppress(ServiceUnavailableError):
            await js.publish("s", KIB, timeout=5)
            return True
        return False

    await until(accepted, "publishes are accepted")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "nats.conf"
    path.write_text(f"http: 127.0.0.1:-1\nheadwater {{ disk_budget: {BUDGET} }}\n")
    return path


def gauges(server: JetStreamServer, name: str) -> list[float]:
    line = next(row for row in server.log if "http monitor on" in row)
    with urllib.request.urlopen(f"http://{line.split()[-1]}/metrics", timeout=5) as page:
        rows = page.read().decode().splitlines()
    return [float(row.split()[-1]) for row in rows if row.startswith(name + "{")]


def test_a_store_stays_within_its_budget(tmp_path: Path, config: Path, start_server: Start) -> None:
    store = tmp_path / "store"
    server = start_server("-c", str(config))

    async def connect() -> tuple[nats.NATS, JetStreamContext]:
        nc = await nats.connect(server.url)
        return nc, nc.jetstream(timeout=5)

    async def first() -> int:
        nc, js = await connect()
        await js.add_stream(name="S", subjects=["s"])
        count = await fill(js, store, LARGE, 10023)
        assert count > BUDGET // 2 // 8192
        await nc.close()
        return count

    async def later(count: int) -> int:
        nc, js = await connect()
        assert taken(store / "jetstream") <= BUDGET
        state = (await js.stream_info("S")).state
        assert state.messages == count
        assert await js.delete_msg("S", state.first_seq)
        await js.purge_stream("S", keep=100)
        await until_accepted(js)
        count = 101 + await fill(js, store, LARGE, 10023)
        assert count > BUDGET // 2 // 8192
        await nc.close()
        return count

    count = asyncio.run(first())
    for _ in range(2):
        server.kill()
        assert taken(store / "jetstream") <= BUDGET
        server = start_server("-c", str(config))
        count = asyncio.run(later(count))
    assert gauges(server, "headwater_storage_disk_budget") == [BUDGET]
    pairs = (
        (gauges(server, "headwater_storage_allocated_bytes"), [taken(store / "jetstream")])
        for _ in range(500)
    )
    assert any(told == found for told, found in pairs), "they never agree"
    assert gauges(server, "headwater_stream_allocated_bytes")[0] > BUDGET // 2
    server.stop()


def test_a_reload_changes_the_budget(tmp_path: Path, config: Path, start_server: Start) -> None:
    server = start_server("-c", str(config))
    text = config.read_text()
    config.write_text(text.replace(str(BUDGET), str(2 * BUDGET)))
    server.process.send_signal(1)
    for line in server.process.stderr:
        if "Reloaded" in line:
            break
    assert gauges(server, "headwater_storage_disk_budget") == [2 * BUDGET]
    server.stop()
    config.write_text(text.replace(str(BUDGET), "100KB"))
    done = subprocess.run(
        [*COMMANDS["headwater"], "-js", "-sd", str(tmp_path / "store"), "-c", str(config)],
        capture_output=True, text=True, timeout=20, check=False,
    )  # fmt: skip
    assert done.returncode != 0
    assert "nats.conf:2:13: headwater.disk_budget of 102400 bytes is too small" in done.stderr


@pytest.mark.parametrize(("discard", "size"), [("new", 1024), ("old", 1024), ("old", 120_000)])
def test_a_stream_stays_within_its_budget(
    tmp_path: Path, start_server: Start, discard: str, size: int
) -> None:
    """Some messages are so long that few of them fill a segment."""
    path = tmp_path / "nats.conf"
    path.write_text("headwater { commit_segment_bytes: 1MB }\n")
    server = start_server("-c", str(path))
    budget = {"headwater.disk_budget": "8MB"}

    def of_stream() -> int:
        folders = list((tmp_path / "store/jetstream/streams").iterdir())
        assert len(folders) <= 1
        return taken(folders[0]) if folders else 0

    async def run() -> None:
        nc = await nats.connect(server.url)
        js = nc.jetstream(timeout=5)
        settings = StreamConfig(
            name="S", subjects=["s"], discard=DiscardPolicy(discard), metadata=budget
        )
        await js.add_stream(settings)
        if discard == "new":
            count = 0
            for _ in range(3):
                count += await fill(js, tmp_path / "none", KIB, 10077)
                held = (await js.stream_info("S")).state.messages
                assert 5000 < held < STREAM_BUDGET // 1024
                assert of_stream() <= STREAM_BUDGET
                await js.purge_stream("S", keep=1000)
                await until_accepted(js)
        else:
            payload, burst = bytes(size), 102_400 // size or 5
            for n in range(20 * STREAM_BUDGET // 8 // (burst * size)):
                await asyncio.gather(*[js.publish("s", payload, timeout=5) for _ in range(burst)])
                if n % 10 == 0:
                    assert of_stream() <= STREAM_BUDGET
            state = (await js.stream_info("S")).state
            assert state.last_seq == (n + 1) * burst
            assert STREAM_BUDGET // 2 < state.bytes < STREAM_BUDGET
        await nc.close()

    asyncio.run(run())
    server.kill()
    assert of_stream() <= STREAM_BUDGET
    server = start_server("-c", str(path))
    assert of_stream() <= STREAM_BUDGET
    server.stop()


def test_a_budget_that_makes_no_sense_is_refused(start_server: Start) -> None:
    server = start_server()

    async def run() -> None:
        nc = await nats.connect(server.url)
        for value, storage in (("lots", "file"), ("1000", "file"), ("10MB", "memory")):
            config = {
                "name": "S", "subjects": ["s"], "storage": storage,
                "metadata": {"headwater.disk_budget": value},
            }  # fmt: skip
            answer = await nc.request("$JS.API.STREAM.CREATE.S", json.dumps(config).encode())
            assert "headwater.disk_budget" in json.loads(answer.data)["error"]["description"]
        await nc.close()

    asyncio.run(run())
    server.stop()


async def test_messages_end_without_room_and_leave_their_markers_later(
    tmp_path: Path, config: Path, start_server: Start
) -> None:
    nc = await nats.connect(start_server("-c", str(config)).url)
    js = nc.jetstream(timeout=5)
    await js.add_stream(name="S", subjects=["s"])
    settings = {"allow_msg_ttl": True, "subject_delete_marker_ttl": 3600 * 10**9}
    body = {"name": "KV", "subjects": ["kv.*"], "max_msgs_per_subject": 1, **settings}
    made = await nc.request("$JS.API.STREAM.CREATE.KV", json.dumps(body).encode())
    assert "error" not in json.loads(made.data)
    for name, ttl in (("kv.a", "2s"), ("kv.b", "3s")):
        await js.publish(name, b"x", headers={"Nats-TTL": ttl})
    await fill(js, tmp_path / "store", LARGE, 10023)
    await until_state(js, "KV", lambda state: not state.messages, "both are too old")
    await js.purge_stream("S")
    await until_state(js, "KV", lambda state: state.messages == 2, "both have their markers")
    for name in ("kv.a", "kv.b"):
        marker = await js.get_last_msg("KV", name)
        assert marker.headers is not None and marker.headers["Nats-Marker-Reason"] == "MaxAge"
    await nc.close()
