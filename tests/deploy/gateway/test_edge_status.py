"""`headwater edge status` beside nodes that no fleet flashed: hub and edge as processes."""

import asyncio
import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from nats.js.api import ExternalStream, StreamConfig, StreamSource

from bench.servers import free_port
from tests.federation.lab import JETSTREAM, Lab, RealServer, lab_for
from tests.waiting import until

COMMAND = [sys.executable, "-m", "headwater.deploy.main", "edge", "status"]
PATIENCE_S = 60.0


@pytest_asyncio.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Lab]:
    """Servers that end with the test."""
    async for each in lab_for(tmp_path):
        yield each


class Gateway:
    """An edge with a monitoring port, and its hub."""

    async def begin(self, lab: Lab) -> "Gateway":
        """Start both."""
        leaf, self.http = free_port(), free_port()
        self.hub = await lab.real(
            JETSTREAM.format(store="{store}", domain="hub")
            + f"leafnodes {{ listen: 127.0.0.1:{leaf} }}\n",
            "hub",
        )
        self.edge: RealServer = await lab.real(
            JETSTREAM.format(store="{store}", domain="edge")
            + f"http: 127.0.0.1:{self.http}\nheadwater {{ profile: edge }}\n"
            'leafnodes { reconnect: "100ms", remotes [ '
            f'{{ url: "nats://127.0.0.1:{leaf}" }} ] }}\n',
            "gw",
            "headwater",
        )
        return self

    async def status(self, *words: str) -> tuple[int, str]:
        """Exit status and output of the command, asked of the monitoring port."""
        return await status("--url", f"127.0.0.1:{self.http}", *words)

    async def shows(self, *texts: str) -> tuple[int, str]:
        """The command, again and again, until it prints all of these."""
        end = time.monotonic() + PATIENCE_S
        while True:
            code, text = await self.status()
            if all(each in text for each in texts):
                return code, text
            assert time.monotonic() < end, f"{texts} are not all in: {text}"


async def status(*words: str) -> tuple[int, str]:
    """Exit status and output of the command."""
    made = await asyncio.create_subprocess_exec(
        *COMMAND, *words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    told, _ = await made.communicate()
    assert made.returncode is not None
    return made.returncode, told.decode()


def copy_of(name: str, domain: str) -> StreamSource:
    """Where a copy comes from."""
    return StreamSource(name=name, external=ExternalStream(api=f"$JS.{domain}.API"))


async def test_one_screen_tells_how_a_plain_edge_is(lab: Lab) -> None:
    made = await Gateway().begin(lab)
    near = (await lab.client(made.edge.port)).jetstream(domain="edge")
    far = (await lab.client(made.hub.port)).jetstream(domain="hub")
    code, _ = await made.shows("edge  joined\n", "backlog  unknown: nobody has copied from here")
    assert code == 0
    await near.add_stream(name="DATA", subjects=["data"])
    await far.add_stream(name="CMD", subjects=["cmd"])
    await near.add_stream(StreamConfig(name="COPY", mirror=copy_of("CMD", "hub")))
    await far.add_stream(StreamConfig(name="ALL", sources=[copy_of("DATA", "edge")]))
    await near.publish("data", b"one")
    code, _ = await made.shows("COPY of CMD  live\n", "backlog  none:", "DATA: 1 messages")
    assert code == 0

    await near.add_stream(StreamConfig(name="NONE", mirror=copy_of("NIX", "hub")))
    code, text = await made.shows("joined, not well: stream NONE is no_such_stream\n")
    assert code == 3
    assert "NONE of NIX  no_such_stream  backlog unknown  stream not found" in text
    await near.delete_stream("NONE")
    await far.delete_stream("CMD")
    await far.add_stream(name="CMD", subjects=["cmd"])
    await far.publish("cmd", b"new")
    await near.publish("data", b"two")
    await made.shows("edge  joined\n", "COPY of CMD  live\n")

    made.hub.kill()
    await near.publish("data", b"three")
    code, text = await made.shows("not joined: ", "COPY of CMD  offline  backlog unknown", " old, ")
    assert code == 3
    assert "wait to be copied from here" in text
    code, text = await made.status("--json")
    told: dict[str, Any] = json.loads(text)
    assert code == 3
    assert told["node"]["backlog"]["messages"] >= 1
    assert told["node"]["origins"][0]["pending_messages"] is None
    assert told["disk"]["free"] > 0

    made.edge.kill()
    code, text = await made.status()
    assert (code, "stopped (Connection refused)" in text) == (3, True)


async def test_watching_goes_on_while_the_node_is_gone_and_ends_quietly(lab: Lab) -> None:
    made = await Gateway().begin(lab)
    near, far = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, "--url", f"http://127.0.0.1:{made.http}", "--watch"],
        stdout=far, stderr=far, start_new_session=True,
    )  # fmt: skip
    os.close(far)
    os.set_blocking(near, False)
    seen = b""

    def tells(text: bytes) -> bool:
        nonlocal seen
        with contextlib.suppress(BlockingIOError):
            seen += os.read(near, 1 << 16)
        return text in seen

    try:
        await until(lambda: tells(b"edge  "), "a screen")
        made.edge.kill()
        await until(lambda: tells(b"stopped (Connection refused)"), "it is gone")
        process.send_signal(signal.SIGINT)
        assert await asyncio.to_thread(process.wait) == 0
        assert b"Abort" not in seen
        assert b"Traceback" not in seen
    finally:
        process.kill()
        process.wait()
        os.close(near)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--url", "http://127.0.0.1:nine"), "is no monitoring port of a node"),
        (("--prefix", "/nowhere"), "/nowhere/gateway.json cannot be read"),
        (("--prefix", "/nowhere", "--url", "127.0.0.1:1"), "--prefix or --url, not both"),
    ],
)
async def test_what_cannot_be_asked_is_said(words: tuple[str, ...], told: str) -> None:
    code, text = await status(*words)
    assert code in (1, 2)
    assert told in text
    assert "Traceback" not in text


async def test_another_server_at_the_port_is_said(lab: Lab) -> None:
    port = free_port()
    await lab.real(f"http: 127.0.0.1:{port}\n")
    code, text = await status("--url", f"127.0.0.1:{port}")
    assert code == 1
    assert "is no monitoring port of Headwater" in text
