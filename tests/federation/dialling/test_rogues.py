"""What announcements that anybody may make cost an edge: lines of its log, memory, time."""

import asyncio
import contextlib
import logging
import secrets
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from zeroconf import DNSAddress, DNSOutgoing, DNSPointer, DNSService, DNSText, Zeroconf
from zeroconf.const import (
    _CLASS_IN,
    _FLAGS_AA,
    _FLAGS_QR_RESPONSE,
    _TYPE_A,
    _TYPE_PTR,
    _TYPE_SRV,
    _TYPE_TXT,
)

from headwater.edge.node.node import Node
from headwater.federation.dialling import discovery as discovery_module
from headwater.federation.dialling.discovery import LINES
from headwater.federation.leaf import leaf_remote
from headwater.federation.leaf.leaf_remote import FOUND_LINES, LeafRemote
from tests.certificates import certificate
from tests.federation.dialling.test_discovery import pin_of
from tests.federation.lab import Lab, leaf_service, leafs
from tests.waiting import until

ROGUES = 300
TTL_S = 4500
FREEZER_INFO = (
    b'INFO {"server_id":"R","server_name":"hub","version":"2.12.0","proto":1,"headers":true,'
    b'"max_payload":1048576,"client_id":7,"nonce":"chosen","tls_required":true,'
    b'"info_on_connect":true,"leafnode_urls":["127.0.0.1:1"]}\r\n'
)
WHILE_S = 2.0


def new_service() -> str:
    """A service type that no other test uses."""
    return f"_hw{secrets.token_hex(3)}._tcp.local."


async def edge_of(lab: Lab, service: str, remote: str = "insecure_discovery: true") -> Node:
    """An edge that looks for hubs with the label `plant`, once it looks."""
    edge = await lab.node(
        f'leafnodes {{ reconnect: "50ms", remotes [ {{ url: "discover://plant", {remote} }} ] }}\n'
        f'headwater {{ discovery {{ enabled: true, service: "{service}" }} }}'
    )
    await until(lambda: leaf_service(edge).discovery._browser, "it looks")
    return edge


async def hub_of(lab: Lab, service: str) -> Node:
    """A hub that is announced."""
    return await lab.node(
        "leafnodes { listen: 127.0.0.1:-1 }\n"
        f'headwater {{ discovery {{ enabled: true, service: "{service}", cluster: plant }} }}'
    )


class Liar:
    """Announces hubs that are none."""

    def __init__(self, opened: Zeroconf, service: str) -> None:
        self._opened = opened
        self._service = service

    def announce(self, numbers: range, port: int = 9) -> None:
        """Complete announcements, a packet for each."""
        for number in numbers:
            name, server = f"rogue-{number}.{self._service}", f"rogue-{number}.local."
            text = b"".join(
                bytes([len(each)]) + each
                for each in (b"id=R%d" % number, b"leaf=%d" % port, b"cluster=plant", b"tls=1")
            )
            told = DNSOutgoing(_FLAGS_QR_RESPONSE | _FLAGS_AA)
            for record in (
                DNSPointer(self._service, _TYPE_PTR, _CLASS_IN, TTL_S, name),
                DNSService(name, _TYPE_SRV, _CLASS_IN, TTL_S, 0, 0, port, server),
                DNSText(name, _TYPE_TXT, _CLASS_IN, TTL_S, text),
                DNSAddress(
                    server, _TYPE_A, _CLASS_IN, TTL_S, socket.inet_aton(f"127.0.{number >> 8}.1")
                ),
            ):
                told.add_answer_at_time(record, 0)
            self._opened.send(told)


@contextlib.asynccontextmanager
async def liar(service: str) -> AsyncIterator[Liar]:
    """One on the loopback interface."""
    loop = asyncio.get_running_loop()
    # In a thread: there it has a loop of its own, which is ready when it is made.
    opened = await loop.run_in_executor(None, lambda: Zeroconf(interfaces=["127.0.0.1"]))
    try:
        yield Liar(opened, service)
    finally:
        await loop.run_in_executor(None, opened.close)


async def test_announcements_are_counted_behind_the_first_few(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(discovery_module, "LINES_S", WHILE_S)
    caplog.set_level(logging.INFO, "headwater.discovery")
    service = new_service()
    edge = await edge_of(lab, service, f'hub_pins: ["{"0" * 64}"]')
    found = leaf_service(edge).discovery
    loop = asyncio.get_running_loop()
    begun = loop.time()

    def known() -> bool:
        # What a full socket dropped is announced again.
        rogue.announce(range(ROGUES))
        return len(found._hubs) == ROGUES

    async with liar(service) as rogue:
        await until(known, "all were heard")
    await until(lambda: counted(caplog) + shown(caplog) >= ROGUES, "none is left out in silence")
    assert shown(caplog) <= LINES * (1 + (loop.time() - begun) / WHILE_S)


def counted(caplog: pytest.LogCaptureFixture) -> int:
    """How many changes the log counts."""
    lines = [record.getMessage() for record in caplog.records]
    return sum(int(line.split()[0]) for line in lines if "times a hub was found" in line)


def shown(caplog: pytest.LogCaptureFixture) -> int:
    """How many changes have a line of their own."""
    lines = [record.getMessage() for record in caplog.records]
    return sum(line.startswith(("Found hub", "Hub ")) for line in lines)


async def test_a_browser_with_many_names_gives_way_to_another(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would remember each name for as long as whoever announced it likes."""
    monkeypatch.setattr(discovery_module, "NAMES_MAX", 30)
    service = new_service()
    edge = await edge_of(lab, service)
    found = leaf_service(edge).discovery
    first = found._browser
    async with liar(service) as rogue:
        rogue.announce(range(31))
        await until(lambda: found._browser is not first, "another looks")
    assert not first.is_alive()
    hub = await hub_of(lab, service)
    await until(lambda: hub.server_id in {each.node_id for each in found._hubs.values()})


async def test_hubs_that_need_no_proof_are_tried_one_by_one(lab: Lab) -> None:
    """More of them than are asked side by side, without TLS."""
    service = new_service()
    hubs = [await hub_of(lab, service) for _ in range(6)]
    edge = await edge_of(lab, service)
    await until(lambda: len(leaf_service(edge).discovery._hubs) == len(hubs), "all were found")
    await until(lambda: leafs(edge), "one of them is linked")
    leaf_service(edge).links.close_all("cut")
    await until(lambda: leaf_service(edge).remotes[0].connects == 2, "one is linked again")


class Announced:
    """What discovery has found."""

    def __init__(self, *urls: str) -> None:
        self.found = list(urls)

    def urls(self, cluster: str) -> list[str]:
        """Leaf URLs of the hubs found."""
        return self.found


class Freezer:
    """Shows the hub's key and then says nothing, as who hands on a hub's handshake alone."""

    def __init__(self, folder: Path) -> None:
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.load_cert_chain(folder / "cert.pem", folder / "key.pem")
        self.logins = 0

    async def visit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One edge has come, to look or to stay."""
        with contextlib.suppress(OSError):
            writer.write(FREEZER_INFO)
            await writer.start_tls(self._tls)
            while data := await reader.read(1 << 16):
                self.logins += data.startswith(b"CONNECT")
        writer.close()


async def test_who_proves_itself_and_makes_no_link_is_asked_behind_the_others(
    lab: Lab, tmp_path: Path
) -> None:
    """Five addresses of one machine, asked before the hub each time."""
    certificate(tmp_path, "hub.plant")
    files = f'cert_file: "{tmp_path}/cert.pem", key_file: "{tmp_path}/key.pem"'
    hub = await lab.node(f"leafnodes {{ listen: 127.0.0.1:-1, tls {{ {files} }} }}")
    edge = await lab.node(
        'leafnodes { reconnect: "50ms", remotes [ { url: "discover://plant", disabled: true, '
        f'first_info_timeout: "100ms", hub_pins: ["{pin_of(tmp_path)}"] }} ] }}'
    )
    freezer = Freezer(tmp_path)
    async with contextlib.AsyncExitStack() as stack:
        finder = Announced()
        for _ in range(5):
            server = await asyncio.start_server(freezer.visit, "127.0.0.2", 0)
            port = (await stack.enter_async_context(server)).sockets[0].getsockname()[1]
            finder.found.append(f"tls://127.0.0.2:{port}")
        (options,) = edge.options.leaf.remotes
        remote = LeafRemote(leaf_service(edge).links, options, finder)
        remote.start()
        try:
            await until(lambda: freezer.logins, "one of them froze")
            finder.found.insert(0, f"tls://127.0.0.1:{leaf_service(hub).listener.port}")
            await until(lambda: leafs(hub), "the hub is linked")
        finally:
            await remote.stop()
    assert freezer.logins == 1


async def test_failures_with_what_was_found_are_counted_behind_the_first_few(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Three hubs with the wrong key, each at many ports: every failure has another text."""
    monkeypatch.setattr(leaf_remote, "REPEAT_LOG_S", 600.0)
    caplog.set_level(logging.INFO, "headwater.leaf")
    certificate(tmp_path, "hub.plant")
    files = f'cert_file: "{tmp_path}/cert.pem", key_file: "{tmp_path}/key.pem"'
    other = await lab.node(f"leafnodes {{ listen: 127.0.0.1:-1, tls {{ {files} }} }}")
    edge = await lab.node(
        'leafnodes { reconnect: "50ms", remotes [ { url: "discover://plant", disabled: true, '
        f'hub_pins: ["{"0" * 64}"] }} ] }}'
    )
    port = leaf_service(other).listener.port
    finder = Announced()
    (options,) = edge.options.leaf.remotes
    remote = LeafRemote(leaf_service(edge).links, options, finder)
    remote.start()
    try:
        for round_ in range(5):
            finder.found = [f"tls://127.0.{round_}.{last}:{port}" for last in (1, 2, 3)]
            seen = remote.failures + 3
            remote.wake()
            await until(lambda seen=seen: remote.failures >= seen, "all were tried")
    finally:
        await remote.stop()
    lines = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert 0 < sum("127.0." in line for line in lines) <= FOUND_LINES
