"""Leaf links through an HTTP proxy, dialled by Headwater and by nats-server."""

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator

import pytest
from nats.js.api import ExternalStream, StreamConfig, StreamSource

from tests.federation.lab import Lab, free_port
from tests.waiting import until

HUB = """
leafnodes {{ listen: "127.0.0.1:{leaf}" }}
websocket {{ listen: "127.0.0.1:{port}", no_tls: true }}
"""
EDGE = """
leafnodes {{ reconnect: "200ms", remotes [ {{
  url: "{url}", proxy {{ url: "http://127.0.0.1:{proxy}", {login} timeout: 2s }}
}} ] }}
"""
LOGIN = "username: gate, password: way,"


class Proxy:
    """An HTTP proxy that knows CONNECT alone."""

    def __init__(self) -> None:
        self.port = 0
        self.login = ""
        """`user:password` that it asks for; empty when anybody may pass."""
        self.heads: list[list[str]] = []
        """The lines of every request."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode().splitlines()
        self.heads.append(head)
        wanted = base64.b64encode(self.login.encode()).decode()
        if self.login and f"Proxy-Authorization: Basic {wanted}" not in head:
            writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
        else:
            host, _, port = head[0].split()[1].rpartition(":")
            there, onward = await asyncio.open_connection(host, int(port))
            writer.write(b"HTTP/1.1 200 Connection established\r\nVia: 1.1 gate\r\n\r\n")
            await asyncio.gather(copied(reader, onward), copied(there, writer))
        writer.close()


async def copied(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Hand on what comes, until it ends."""
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.close()


@pytest.fixture
async def proxy() -> AsyncIterator[Proxy]:
    """A running one."""
    made = Proxy()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    yield made
    server.close()


@pytest.mark.parametrize("login", ["", LOGIN], ids=["open", "login"])
@pytest.mark.parametrize(
    ("edge", "scheme"), [("real", "ws"), ("headwater", "ws"), ("headwater", "nats-leaf")]
)
async def test_a_link_passes_a_proxy(
    lab: Lab, proxy: Proxy, edge: str, scheme: str, login: str
) -> None:
    proxy.login = "gate:way" if login else ""
    port, leaf = free_port(), free_port()
    hub = await lab.real(HUB.format(port=port, leaf=leaf), name="hub", program="real")
    target = f"127.0.0.1:{port if scheme == 'ws' else leaf}"
    config = EDGE.format(url=f"{scheme}://{target}", proxy=proxy.port, login=login)
    below = await lab.real(config, name="edge", program=edge)
    upper, lower = await lab.client(hub.port), await lab.client(below.port)
    heard = await upper.subscribe("up")
    await upper.flush()

    async def passed() -> bool:
        await lower.publish("up", b"x" * 100_000)
        with contextlib.suppress(TimeoutError):
            return len((await heard.next_msg(timeout=0.2)).data) == 100_000
        return False

    await until(passed, "a message through the proxy")
    assert proxy.heads[0][0] == f"CONNECT {target} HTTP/1.1"


async def test_a_proxy_that_refuses_is_told_and_asked_again(lab: Lab, proxy: Proxy) -> None:
    proxy.login = "gate:other"
    port, leaf = free_port(), free_port()
    await lab.real(HUB.format(port=port, leaf=leaf), name="hub", program="real")
    config = EDGE.format(url=f"nats-leaf://127.0.0.1:{leaf}", proxy=proxy.port, login=LOGIN)
    store = 'jetstream { store_dir: "{store}", domain: edge }\n'
    edge = await lab.real(store + config, name="edge", program="headwater")
    await until(lambda: len(proxy.heads) > 1, "another attempt")
    await until(lambda: "the proxy refused: 407" in edge.log.read_text(), "the log says so")
    assert base64.b64encode(b"gate:way").decode() not in edge.log.read_text()
    js = (await lab.client(edge.port)).jetstream()
    origin = StreamSource(name="S", external=ExternalStream(api="$JS.hub.API"))
    await js.add_stream(StreamConfig(name="COPY", mirror=origin))

    async def told() -> bool:
        copy = (await js.stream_info("COPY")).mirror
        assert copy is not None
        return "the proxy refused: 407" in (copy.error or {}).get("description", "")

    await until(told, "the mirror says why its origin is not there")
