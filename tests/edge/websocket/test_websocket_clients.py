"""WebSocket clients on a running node."""

import asyncio
import json
import logging
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import nats
import pytest

from headwater.edge.conf.options import Options, WebSocketOptions
from headwater.edge.node.node import Node
from headwater.edge.websocket.websocket_listener import WebSocketService
from headwater.security.auth_options import AuthOptions, UserOptions
from tests.certificates import certificate


@asynccontextmanager
async def running(**settings: Any) -> AsyncIterator[tuple[Node, str]]:
    """A node with a WebSocket listener, and the listener's URL."""
    listener = {"host": "127.0.0.1", "port": -1, "no_tls": True}
    websocket = WebSocketOptions(**{**listener, **settings.pop("websocket", {})})
    options = Options(host="127.0.0.1", port=-1, websocket=websocket, **settings)
    node = Node(options, asyncio.get_running_loop())
    node.services.append(WebSocketService(options))
    node.start()
    try:
        yield node, node.ports()["websocket"][0]
    finally:
        await node.stop()


async def first_info(session: aiohttp.ClientWebSocketResponse) -> dict[str, Any]:
    """What the node says first."""
    message = await session.receive(2)
    verb, _, fields = message.data.partition(b" ")
    assert verb == b"INFO"
    info: dict[str, Any] = json.loads(fields)
    return info


async def exchange(url: str, **options: Any) -> None:
    """Publish large and small messages over a WebSocket and get them back."""
    client = await nats.connect(url, allow_reconnect=False, **options)
    subscription = await client.subscribe("a.>")
    sizes = [0, 1, 125, 126, 65_535, 65_536, 1_000_000]
    for size in sizes:
        await client.publish(f"a.{size}", b"x" * size, headers={"size": str(size)})
    for size in sizes:
        message = await subscription.next_msg(5)
        assert (len(message.data), message.headers) == (size, {"size": str(size)})
    await client.close()


async def test_messages_go_both_ways() -> None:
    async with running() as (node, url):
        await exchange(url)
        await asyncio.sleep(0)
        detail = node.sessions.detail(next(iter(node.sessions.closed.values())))
        assert detail["kind"] == "WEBSOCKET"


async def test_tcp_and_websocket_clients_share_subjects() -> None:
    async with running() as (node, url):
        here = await nats.connect(url)
        there = await nats.connect(node.ports()["nats"][0])
        subscription = await there.subscribe("x")
        await there.flush()
        await here.publish("x", b"hello")
        assert (await subscription.next_msg(2)).data == b"hello"
        await here.close()
        await there.close()


async def test_info_describes_the_websocket_listener() -> None:
    async with running() as (_, url), aiohttp.ClientSession() as http, http.ws_connect(url) as peer:
        info = await first_info(peer)
        assert f"ws://127.0.0.1:{info['port']}" == url
        assert "tls_required" not in info


async def test_compressed_frames() -> None:
    async with (
        running(websocket={"compression": True}) as (_, url),
        aiohttp.ClientSession() as http,
        http.ws_connect(url, compress=15) as peer,
    ):
        assert peer.compress
        await first_info(peer)
        await peer.send_bytes(b'CONNECT {"verbose":false}\r\nSUB a 1\r\n')
        await peer.send_bytes(b"PUB a 500\r\n" + b"z" * 500 + b"\r\n")
        assert (await peer.receive(2)).data == b"MSG a 1 500\r\n" + b"z" * 500 + b"\r\n"


async def test_the_close_frame_tells_why() -> None:
    auth = AuthOptions(users=[UserOptions(user="a", password="a")])
    async with (
        running(auth=auth) as (_, url),
        aiohttp.ClientSession() as http,
        http.ws_connect(url) as peer,
    ):
        await first_info(peer)
        await peer.send_bytes(b'CONNECT {"user":"a","pass":"wrong"}\r\n')
        assert (await peer.receive(2)).data == b"-ERR 'Authorization Violation'\r\n"
        close = await peer.receive(2)
        assert (close.type, close.data) == (aiohttp.WSMsgType.CLOSE, 1008)
        assert close.extra == "Authentication Failure"


@pytest.mark.parametrize(
    ("settings", "cookies"),
    [
        ({"user_cookie": "u", "pass_cookie": "p"}, {"u": "a", "p": "secret"}),
        ({"token_cookie": "t"}, {"t": "open"}),
    ],
)
async def test_cookies_are_credentials(settings: dict[str, str], cookies: dict[str, str]) -> None:
    auth = AuthOptions(users=[UserOptions(user="a", password="secret")])
    if "token_cookie" in settings:
        auth = AuthOptions(token="open")
    async with running(auth=auth, websocket=settings) as (_, url):
        header = "; ".join(f"{name}={value}" for name, value in cookies.items())
        for cookie, welcome in ((header, True), ("u=a; p=no; t=no", False)):
            async with (
                aiohttp.ClientSession() as http,
                http.ws_connect(url, headers={"Cookie": cookie}) as peer,
            ):
                await first_info(peer)
                await peer.send_bytes(b'CONNECT {"verbose":false}\r\nPING\r\n')
                answer = (await peer.receive(2)).data
                assert answer.startswith(b"PONG" if welcome else b"-ERR")


async def test_the_listener_may_have_credentials_of_its_own() -> None:
    async with running(websocket={"authorization": AuthOptions(token="ws")}) as (node, url):
        plain = await nats.connect(node.ports()["nats"][0])
        await plain.close()
        async with aiohttp.ClientSession() as http, http.ws_connect(url) as peer:
            assert (await first_info(peer))["auth_required"] is True
            await peer.send_bytes(b'CONNECT {"auth_token":"ws","verbose":true}\r\n')
            assert (await peer.receive(2)).data == b"+OK\r\n"


async def test_other_requests_get_an_http_error(caplog: pytest.LogCaptureFixture) -> None:
    async with running() as (_, url), aiohttp.ClientSession() as http:
        page = url.replace("ws://", "http://")
        with caplog.at_level(logging.CRITICAL, "headwater.broker"):
            async with http.get(page) as reply:
                assert reply.status == 400
            async with http.post(page) as reply:
                assert reply.status == 405
            for path in ("/leafnode", "/mqtt"):
                with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
                    await http.ws_connect(url + path)
                assert caught.value.status == 404


async def test_a_silent_peer_is_dropped() -> None:
    async with running(websocket={"handshake_timeout": 0.1}) as (node, url):
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        writer.write(b"GET / HTTP/1.1\r\n")
        assert await asyncio.wait_for(reader.read(), 2) == b""
        writer.close()
        assert node.sessions.total == 0


async def test_lame_duck_takes_no_more_websockets() -> None:
    async with running() as (node, url):
        await node.lame_duck()
        with pytest.raises(ConnectionRefusedError), socket.socket() as sock:
            sock.connect(("127.0.0.1", int(url.rpartition(":")[2])))


async def test_websockets_over_tls(tmp_path: Path) -> None:
    tls = certificate(tmp_path)
    trust = ssl.create_default_context(cafile=tls.cert_file)
    async with running(websocket={"no_tls": False, "tls": tls}) as (node, url):
        assert url.startswith("wss://")
        await exchange(url, tls=trust)
        async with aiohttp.ClientSession() as http, http.ws_connect(url, ssl=trust) as peer:
            assert (await first_info(peer))["tls_required"] is True
            detail = node.sessions.detail(next(iter(node.sessions.conns.values())))
            assert detail["tls_version"] == "TLSv1.3"
            await peer.close()
            assert peer.close_code == 1000
