"""Every state that a mirror can be in, where operators look: on the screen of `headwater edge
status`, in `/healthz` and in `/metrics` of a node in a process of its own."""

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from nats.js import JetStreamContext
from nats.js.api import StorageType, StreamConfig

from bench.servers import free_port
from tests.deploy.gateway.test_edge_status import copy_of, status
from tests.federation.lab import JETSTREAM, Lab, lab_for

PATIENCE_S = 60.0
STATES = {
    "FRESH": "live",
    "SLOW": "catching_up",
    "FULL": "stalled",
    "SECRET": "denied",
    "NOWHERE": "no_such_stream",
    "AGAIN": "recreated",
    "FAR": "offline",
}
"""What becomes of the mirror of each stream."""
WELL = ("live", "catching_up")
DENIED = '"$JS.hub.API.*.*.SECRET", "$JS.hub.API.*.*.SECRET.>"'


@pytest_asyncio.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Lab]:
    """Servers that end with the test."""
    async for each in lab_for(tmp_path):
        yield each


def page(port: int, path: str) -> tuple[int, str]:
    """Status and text of a page of a monitoring port."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def shown_state(text: str, stream: str) -> str:
    """The state of a mirror's link in the text of `/metrics`."""
    (found,) = [
        line
        for line in text.splitlines()
        if line.startswith("headwater_link_state{")
        and f'stream="COPY_{stream}"' in line
        and line.endswith(" 1")
    ]
    return found.partition('state="')[2].partition('"')[0]


async def fill(js: JetStreamContext) -> None:
    """The origins, as they are at first."""
    for stream, count, size in (
        ("FRESH", 3, 10), ("SLOW", 2500, 1000), ("FULL", 150, 10_000), ("SECRET", 3, 10),
        ("AGAIN", 3, 10),
    ):  # fmt: skip
        await js.add_stream(name=stream, subjects=[stream])
        await asyncio.gather(*(js.publish(stream, bytes(size)) for _ in range(count)))


@pytest.mark.parametrize("kind", ["headwater", "real"])
async def test_every_state_is_told_wherever_one_looks(lab: Lab, kind: str) -> None:
    leaf, http = free_port(), free_port()
    hub = await lab.real(
        JETSTREAM.format(store="{store}", domain="hub")
        + f"leafnodes {{ listen: 127.0.0.1:{leaf} }}\n",
        "hub",
        kind,
    )
    edge = await lab.real(
        f'jetstream {{ store_dir: "{{store}}", domain: edge, max_mem: 1MB }}\n'
        f"http: 127.0.0.1:{http}\n"
        'leafnodes { reconnect: "100ms", remotes [ '
        f'{{ url: "nats://127.0.0.1:{leaf}", deny_exports: [ {DENIED} ] }} ] }}\n',
        "edge",
        "headwater",
    )
    far = (await lab.client(hub.port)).jetstream(domain="hub", timeout=20)
    near = (await lab.client(edge.port)).jetstream(timeout=20)
    await fill(far)
    for stream in STATES:
        config = StreamConfig(
            name=f"COPY_{stream}", mirror=copy_of(stream, "moon" if stream == "FAR" else "hub")
        )
        if stream == "SLOW":
            config.metadata = {"headwater.link_rate": "1000"}
        if stream == "FULL":
            config.storage = StorageType.MEMORY
        await near.add_stream(config)
    while (await near.stream_info("COPY_AGAIN")).state.messages < 3:
        continue
    await far.delete_stream("AGAIN")
    await far.add_stream(name="AGAIN", subjects=["AGAIN"])
    await far.publish("AGAIN", b"new")

    loop = asyncio.get_running_loop()
    end = loop.time() + PATIENCE_S
    while True:
        _, metrics = await asyncio.to_thread(page, http, "/metrics")
        found = {stream: shown_state(metrics, stream) for stream in STATES}
        if found == STATES:
            break
        assert loop.time() < end, found

    code, text = await asyncio.to_thread(page, http, "/healthz")
    told: dict[str, Any] = json.loads(text)["headwater"]
    assert (code, told["degraded"]) == (200, True)
    assert {(each["stream"], each["state"]) for each in told["links"]} == {
        (f"COPY_{stream}", state) for stream, state in STATES.items() if state not in WELL
    }
    assert all(each["cause"] for each in told["links"])
    assert (await asyncio.to_thread(page, http, "/healthz?links=1"))[0] == 503

    code, screen = await status("--url", f"127.0.0.1:{http}")
    assert code == 3, screen
    for stream, state in STATES.items():
        assert f"COPY_{stream} of {stream}  {state}" in screen, screen
    assert "the rules of the link to 'hub' do not let it pass" in screen, screen
