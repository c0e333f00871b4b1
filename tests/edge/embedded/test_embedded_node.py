"""Nodes inside programs: what the page shows runs, and what it promises holds."""

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.js.errors import NoStreamResponseError

import headwater.edge
from bench.servers import free_port
from headwater.edge.conf.problems import ConfigError
from headwater.edge.embedded.embedded_node import SERVICES, EmbeddedNode, NotLinkedError
from headwater.edge.embedded.node_thread import NodeThread
from headwater.edge.storage.format.errors import StoreError
from tests.federation.lab import RealServer
from tests.waiting import until

ROOT = Path(__file__).resolve().parents[3]
PROGRAM, TESTS = re.findall(
    r"```python\n(.*?)```", (ROOT / "docs" / "EMBEDDED.md").read_text(), re.S
)
QUIET = {"PYTHONWARNINGS": "error", **os.environ}


def settings(folder: Path, **more: Any) -> dict[str, Any]:
    return {"jetstream": {"store_dir": folder / "store", "domain": "gateway"}, **more}


async def taken(node: EmbeddedNode, stream: str, durable: str, count: int) -> list[bytes]:
    """`count` messages of a consumer, acknowledged."""
    found: list[bytes] = []
    async for message in node.consume(stream, durable):
        found.append(message.data)
        await message.ack_sync()
        if len(found) == count:
            break
    return found


def test_the_program_of_the_page_runs(tmp_path: Path) -> None:
    (tmp_path / "gateway.py").write_text(PROGRAM)
    for first in (1, 4):
        done = subprocess.run(
            [sys.executable, "gateway.py"], cwd=tmp_path, capture_output=True, text=True,
            timeout=60, env=QUIET,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        expected = [f"stored as {first + each}" for each in range(3)] + ["too hot: 96.2"]
        assert done.stdout.splitlines() == expected
        assert "Traceback" not in done.stderr


def test_the_fixtures_of_the_page_work_in_another_project(tmp_path: Path) -> None:
    (tmp_path / "test_program.py").write_text(TESTS)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--strict-markers", "-o", "asyncio_mode=auto", "."],
        cwd=tmp_path, capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert "2 passed" in done.stdout, done.stdout + done.stderr


def test_what_plugs_in_is_installed() -> None:
    assert [entry.value for entry in entry_points(group=SERVICES)] == [
        "headwater.deploy.compose:services_for"
    ]
    typed = [ROOT / folder / "py.typed" for folder in ("edge", "federation", "security")]
    assert all(path.exists() for path in typed)


async def test_consumers_and_buckets_go_on_after_a_restart(tmp_path: Path) -> None:
    async with headwater.edge.open_node(settings(tmp_path), listen=False) as node:
        await node.stream("S", ["s.*"])
        for number in range(10):
            await node.publish("s.a", b"%d" % number, headers={"Kind": "x"})
        assert (await node.publish("s.a", b"again", message_id="one")).seq == 11
        assert (await node.publish("s.a", b"again", message_id="one")).duplicate
        assert await taken(node, "S", "worker", 4) == [b"0", b"1", b"2", b"3"]
        await (await node.key_value("B", history=5)).put("k", b"v")
    async with headwater.edge.open_node(settings(tmp_path), listen=False) as node:
        await node.stream("S", ["s.*", "t"])
        assert await taken(node, "S", "worker", 2) == [b"4", b"5"]
        assert (await (await node.key_value("B")).get("k")).value == b"v"
        assert (await node.publish("t", b"")).seq == 12
        with pytest.raises(NoStreamResponseError):
            await node.publish("nobody", b"")


async def test_without_listeners_no_port_is_open(tmp_path: Path) -> None:
    free = {"listen": "127.0.0.1:-1"}
    config = settings(
        tmp_path, http="127.0.0.1:-1", websocket={**free, "no_tls": True}, leafnodes=free
    )  # fmt: skip

    def listening() -> set[int]:
        found = set()
        for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A":
                found.add(int(words[9]))
        own = {os.readlink(path) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()}
        return {inode for inode in found if f"socket:[{inode}]" in own}

    before = listening()
    async with headwater.edge.open_node(config, listen=False) as node:
        assert node.url == ""
        assert listening() == before
    async with headwater.edge.open_node({**config, "listen": "127.0.0.1:-1"}) as node:
        assert len(listening() - before) == 4
        client = await nats.connect(node.url)
        assert client.client_ip == "127.0.0.1"
        await client.close()
    assert listening() == before


@pytest.mark.parametrize(
    ("config", "error"),
    [
        ("no-such-file.conf", FileNotFoundError),
        ("jetstream: {", ConfigError),
        ({"no_such_setting": 1}, ConfigError),
        ({"jetstream": {"store_dir": "/proc/none"}}, (StoreError, OSError)),
    ],
)
async def test_what_cannot_be_opened_says_why_and_leaves_nothing(config: Any, error: Any) -> None:
    before = len(asyncio.all_tasks())
    with pytest.raises(error):
        async with headwater.edge.open_node(config, listen=False):
            pass
    assert len(asyncio.all_tasks()) == before


async def test_a_store_is_one_nodes(tmp_path: Path) -> None:
    async with headwater.edge.open_node(settings(tmp_path), listen=False):
        with pytest.raises(StoreError):
            async with headwater.edge.open_node(settings(tmp_path), listen=False):
                pass


async def test_an_error_of_the_program_closes_the_store(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        async with headwater.edge.open_node(settings(tmp_path), listen=False) as node:
            await node.stream("S", ["s"])
            await node.publish("s", b"1")
            raise ZeroDivisionError
    assert node.client.is_closed
    async with headwater.edge.open_node(settings(tmp_path), listen=False) as node:
        assert (await node.publish("s", b"2")).seq == 2


async def test_passwords_are_for_others(tmp_path: Path) -> None:
    config = settings(
        tmp_path, listen="127.0.0.1:-1",
        accounts={"OURS": {"jetstream": True, "users": [{"user": "u", "password": "p"}]}},
    )  # fmt: skip
    async with headwater.edge.open_node(config, account="OURS") as node:
        await node.stream("S", ["s"])
        assert (await node.publish("s", b"1")).seq == 1
        with pytest.raises(nats.errors.Error):
            await nats.connect(node.url, allow_reconnect=False)
        client = await nats.connect(node.url, user="u", password="p", allow_reconnect=False)
        assert (await client.jetstream().stream_info("S")).state.messages == 1
        await client.close()
        # A reload judges every session again; the program's own stays what it is.
        node.node.sessions.registry.judge(list(node.node.sessions.registry.of_account(
            node.node.account("OURS")
        )))
        assert (await node.publish("s", b"2")).seq == 2


async def test_the_iterator_ends_with_the_node(tmp_path: Path) -> None:
    async def read(node: EmbeddedNode) -> None:
        async for _ in node.consume("S", "d"):
            pass

    async with headwater.edge.open_node(settings(tmp_path), listen=False) as node:
        await node.stream("S", ["s"])
        reader = asyncio.create_task(read(node))

        async def waits() -> bool:
            info = await node.jetstream.consumers_info("S")
            return bool(info and info[0].num_waiting)

        await until(waits, "the consumer asks")
    await asyncio.wait_for(reader, 20)


KILLED = """
import asyncio, sys
import headwater.edge

async def main():
    config = {"jetstream": {"store_dir": sys.argv[1]}}
    async with headwater.edge.open_node(config, listen=False) as node:
        await node.stream("S", ["s"])
        while True:
            ack = await node.publish("s", b"x" * 100)
            print(ack.seq, flush=True)

asyncio.run(main())
"""


async def test_a_kill_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    store = str(tmp_path / "store")
    program = subprocess.Popen(
        [sys.executable, "-c", KILLED, store], stdout=subprocess.PIPE, text=True
    )
    assert program.stdout is not None
    for line in program.stdout:
        if int(line) >= 200:
            program.send_signal(signal.SIGKILL)
            break
    said = [200, *(int(line) for line in program.stdout.read().split("\n")[:-1])]
    program.stdout.close()
    program.wait()
    async with headwater.edge.open_node({"jetstream": {"store_dir": store}}, listen=False) as node:
        state = (await node.jetstream.stream_info("S")).state
        assert state.messages == state.last_seq >= said[-1]


async def test_mirrors_both_ways_with_a_real_hub(tmp_path: Path) -> None:
    leafs = free_port()
    hub = await RealServer(
        tmp_path,
        f"""jetstream {{ store_dir: "{{store}}", domain: hub }}
        leafnodes {{ listen: "127.0.0.1:{leafs}" }}""",
    ).start()
    remotes = {"remotes": [{"url": f"nats://127.0.0.1:{leafs}"}]}
    config = settings(tmp_path, leafnodes=remotes, server_name="gateway")
    try:
        upper = await nats.connect(f"nats://127.0.0.1:{hub.port}")
        await upper.jetstream().add_stream(name="ORDERS", subjects=["orders"])
        await upper.jetstream().publish("orders", b"from the hub")
        async with headwater.edge.open_node(config, listen=False) as node:
            await node.stream("TELEMETRY", ["telemetry"])
            for number in range(50):
                await node.publish("telemetry", b"%d" % number)
            await node.mirror_to("hub", "TELEMETRY", "GATEWAY-TELEMETRY")
            await node.mirror_to("hub", "TELEMETRY", "GATEWAY-TELEMETRY")
            await node.mirror_from("hub", "ORDERS")
            with pytest.raises(ValueError, match="another name"):
                await node.mirror_to("hub", "TELEMETRY", "ORDERS")
            with pytest.raises(NotLinkedError, match="'moon'"):
                await node.mirror_to("moon", "TELEMETRY", wait=0)

            async def copied() -> bool:
                above = await upper.jetstream().stream_info("GATEWAY-TELEMETRY")
                below = await node.jetstream.stream_info("ORDERS")
                return (above.state.messages, below.state.messages) == (50, 1)

            await until(copied, "both mirrors have everything")
            assert [each["state"] for each in node.links()["origins"]] == ["live"]
        await upper.close()
    finally:
        hub.kill()


def test_a_node_on_a_thread(headwater_node: NodeThread) -> None:
    async def publish(node: EmbeddedNode) -> int:
        await node.stream("S", ["s"])
        return (await node.publish("s", b"1")).seq

    assert headwater_node.call(publish) == 1
    host, port = headwater_node.url.removeprefix("nats://").split(":")
    with socket.create_connection((host, int(port)), 5) as sock:
        assert sock.recv(5) == b"INFO "


def test_a_thread_says_why_it_has_no_node() -> None:
    with pytest.raises(ConfigError), NodeThread("port: seven"):
        pass
