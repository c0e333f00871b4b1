"""`pinned_certs` and `connection_rate_limit` on running listeners."""

import asyncio
import ssl
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from headwater.edge.conf.options import TLSOptions
from tests.certificates import certificate
from tests.edge.broker.logins.test_before_login import port_of, running
from tests.security.tls.test_tls_context import pin_of
from tests.waiting import silence, until

LISTENERS = {
    "nats": "tls {{ {tls} }}\n",
    "leafnodes": "leafnodes {{ listen: '127.0.0.1:-1', tls {{ {tls} }} }}\n",
    "cluster": "cluster {{ name: c, listen: '127.0.0.1:-1', tls {{ {tls} }} }}\n",
    "websocket": "websocket {{ listen: '127.0.0.1:-1', tls {{ {tls} }} }}\n",
}
GREETED_FIRST = ("nats", "leafnodes")
UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


def settings(pair: TLSOptions, more: str) -> str:
    return (
        f'cert_file: "{pair.cert_file}", key_file: "{pair.key_file}", '
        f'ca_file: "{pair.cert_file}", {more}'
    )


async def answered(port: int, listener: str, pair: TLSOptions) -> bool:
    """Whether a client with this certificate gets an answer over TLS."""
    context = ssl.create_default_context(cafile=pair.cert_file)
    context.load_cert_chain(pair.cert_file, pair.key_file)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        if listener in GREETED_FIRST:
            await reader.readline()
        await writer.start_tls(context, server_hostname="127.0.0.1")
        writer.write(UPGRADE if listener == "websocket" else b"PING\r\n")
        return bool(await asyncio.wait_for(reader.readline(), 5))
    except (OSError, ssl.SSLError):
        return False
    finally:
        writer.close()


@pytest.mark.parametrize("listener", LISTENERS)
async def test_pinned_certificates(listener: str, tmp_path: Path) -> None:
    pair = certificate(tmp_path)
    for pin, welcome in ((pin_of(pair.cert_file), True), ("0" * 64, False)):
        more = f'verify: true, timeout: 5, pinned_certs: ["{pin.upper()}"]'
        text = LISTENERS[listener].format(tls=settings(pair, more))
        async with running(text) as node:
            assert await answered(port_of(node, listener), listener, pair) is welcome


def decided(service: Any) -> Any:
    """What the remote says, once it is linked or refused."""
    (remote,) = service.status()["remotes"]
    return remote if remote["link"] or remote["last_error"] else None


async def test_a_pinned_hub(tmp_path: Path) -> None:
    pair = certificate(tmp_path)
    async with running(LISTENERS["leafnodes"].format(tls=settings(pair, "timeout: 5"))) as hub:
        for pin, linked in ((pin_of(pair.cert_file), True), ("0" * 64, False)):
            remote = (
                f'leafnodes {{ remotes: [ {{ url: "tls://127.0.0.1:{port_of(hub, "leafnodes")}", '
                f'tls {{ ca_file: "{pair.cert_file}", pinned_certs: ["{pin}"] }} }} ] }}\n'
            )
            async with running(remote) as edge:
                service = next(each for each in edge.services if each.name == "leafnodes")
                remote = await until(partial(decided, service))
                assert bool(remote["link"]) is linked, remote


@pytest.mark.alone
async def test_too_many_handshakes_in_a_second(tmp_path: Path) -> None:
    pair = certificate(tmp_path)
    more = "timeout: 5, handshake_first: true, connection_rate_limit: 3"
    async with running(LISTENERS["nats"].format(tls=settings(pair, more))) as node:
        port = port_of(node, "nats")
        await silence(1.02 - time.monotonic() % 1)
        context = ssl.create_default_context(cafile=pair.cert_file)

        async def greeted() -> bool:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
            except (OSError, ssl.SSLError):
                return False
            said = await reader.readline()
            writer.close()
            return said.startswith(b"INFO")

        assert sum(await asyncio.gather(*(greeted() for _ in range(8)))) == 3
