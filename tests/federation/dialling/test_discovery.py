"""Hubs found by zeroconf on the loopback interface."""

import asyncio
import contextlib
import hashlib
import secrets
import ssl
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from headwater.edge.conf.load import load_text
from headwater.edge.conf.problems import ConfigError
from headwater.federation.dialling.discovery import (
    ADDRESSES_MAX,
    FOUND_MAX,
    Discovery,
    instance_name,
)
from headwater.federation.leaf.leaf_remote import LeafRemote
from tests.certificates import certificate
from tests.federation.lab import Lab, leaf_service, leafs
from tests.measuring import within
from tests.waiting import until

ROGUE_INFO = (
    b'INFO {"server_id":"R","server_name":"hub","version":"2.12.0","proto":1,"headers":true,'
    b'"max_payload":1048576,"client_id":7,"nonce":"chosen","leafnode_urls":["127.0.0.1:1"]%b}\r\n'
)


class Rogue:
    """Answers where a hub should be, and keeps what it is told."""

    def __init__(self, more: bytes) -> None:
        self.more = more
        self.port = 0
        self.visits = 0
        self.told = b""

    async def visit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One edge has come."""
        self.visits += 1
        with contextlib.suppress(OSError):
            writer.write(ROGUE_INFO % self.more)
            while data := await reader.read(1 << 16):
                self.told += data
                if not self.told.startswith(b"\x16"):
                    writer.write(b"PING\r\n")
        writer.close()


@contextlib.asynccontextmanager
async def rogue(more: bytes = b"") -> AsyncIterator[Rogue]:
    """A rogue on a port."""
    made = Rogue(more)
    server = await asyncio.start_server(made.visit, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    async with server:
        yield made


class Announced:
    """What discovery has found."""

    def __init__(self, *urls: str) -> None:
        self.found = list(urls)

    def urls(self, cluster: str) -> list[str]:
        """Leaf URLs of the hubs found."""
        return self.found


def pin_of(folder: Path) -> str:
    """The SHA-256 of the public key info of a certificate."""
    key = x509.load_pem_x509_certificate((folder / "cert.pem").read_bytes()).public_key()
    return hashlib.sha256(
        key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    ).hexdigest()


@pytest.mark.parametrize("proof", ["name", "key"])
async def test_only_a_hub_that_proves_itself_is_told_anything(
    lab: Lab, tmp_path: Path, proof: str
) -> None:
    """One who speaks plainly, one who asks for TLS and does not know how, one who has a certificate
    for another name by an authority of its own; and the hub."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for folder, name in ((ours, "hub.plant"), (theirs, "hub.plant")):
        folder.mkdir()
        certificate(folder, name)
    listener = (
        "server_name: hub\n"
        "leafnodes {{ listen: 127.0.0.1:-1, authorization {{ user: leaf, password: right }}, "
        'tls {{ cert_file: "{0}/cert.pem", key_file: "{0}/key.pem" }} }}'
    )
    hub, other = await lab.node(listener.format(ours)), await lab.node(listener.format(theirs))
    demand = (
        f'tls {{ ca_file: "{ours}/cert.pem", server_name: "hub.plant" }}'
        if proof == "name"
        else f'hub_pins: ["{pin_of(ours)}"]'
    )
    edge = await lab.node(
        f'leafnodes {{ reconnect: "50ms", remotes [ {{ url: "discover://leaf:right@plant", '
        f'disabled: true, first_info_timeout: "200ms", {demand} }} ] }}'
    )
    async with rogue() as plain, rogue(b',"tls_required":true,"info_on_connect":true') as deaf:
        ports = [plain.port, deaf.port, leaf_service(other).listener.port]
        finder = Announced(*(f"nats://127.0.0.1:{port}" for port in ports))
        (options,) = edge.options.leaf.remotes
        remote = LeafRemote(leaf_service(edge).links, options, finder)
        remote.start()
        try:
            await until(lambda: remote.failures >= 4, "all were tried")
            assert not leafs(edge)
            assert plain.visits
            assert deaf.visits
            for each in (plain, deaf):
                assert each.told[:1] in (b"", b"\x16")
                assert b"CONNECT" not in each.told
                assert b"right" not in each.told
            assert not leafs(other)
            finder.found.append(f"tls://127.0.0.1:{leaf_service(hub).listener.port}")
            remote.wake()
            await until(lambda: leafs(hub), "the hub is linked")
        finally:
            await remote.stop()


@pytest.mark.parametrize(
    "remote",
    [
        '{ url: "discover://edge:secret@plant" }',
        '{ url: "discover://plant" }',
        '{ url: "discover://plant", tls { insecure: true, server_name: hub } }',
        "{ account: A }",
    ],
)
def test_discovery_without_proof_is_refused(remote: str) -> None:
    with pytest.raises(ConfigError, match="insecure_discovery: true"):
        load_text(f"accounts {{ A {{}} }}\nleafnodes {{ remotes [ {remote} ] }}")


async def test_an_edge_finds_its_hub_and_has_to_log_in(lab: Lab) -> None:
    label = f"test-{secrets.token_hex(4)}"
    service = "_hwtest._tcp.local."
    listener = (
        "leafnodes { listen: 127.0.0.1:-1, authorization { user: leaf, password: right } }\n"
        f'headwater {{ discovery {{ enabled: true, service: "{service}", cluster: %s }} }}'
    )
    remote = (
        f'leafnodes {{ reconnect: "100ms", remotes [ {{ url: "discover://leaf:%s@{label}", '
        "insecure_discovery: true } ] }\n"
        f'headwater {{ discovery {{ enabled: true, service: "{service}" }} }}'
    )
    edge = await lab.node(remote % "right")
    stranger = await lab.node(remote % "wrong")
    assert leaf_service(edge).status()["remotes"][0]["last_error"] in ("", "no hub found yet")
    hub = await lab.node(listener % label)
    await lab.node(listener % "other")
    await until(lambda: leafs(edge), "the hub was found")
    assert len(leafs(hub)) == 1

    def refused() -> bool:
        return "Authorization Violation" in leaf_service(stranger).status()["remotes"][0][
            "last_error"
        ]

    await until(refused, "a stranger is turned away")
    found = leaf_service(edge).status()["discovery"]["hubs"]
    assert [each["node_id"] for each in found if each["cluster"] == label] == [hub.server_id]


async def test_a_hub_that_starts_again_elsewhere_is_found_beside_a_rogue(
    lab: Lab, tmp_path: Path
) -> None:
    """Two are announced for one plant. The true one stops, and starts at another port, three
    times; the other one, which has a key of its own, never sees a link."""
    label, service = f"test-{secrets.token_hex(4)}", "_hwtest._tcp.local."
    for name in ("ours", "theirs"):
        (tmp_path / name).mkdir()
        certificate(tmp_path / name, "hub.plant")
    listener = (
        "leafnodes {{ listen: 127.0.0.1:-1, authorization {{ user: leaf, password: right }}, "
        'tls {{ cert_file: "{0}/cert.pem", key_file: "{0}/key.pem" }} }}\n'
        f'headwater {{{{ discovery {{{{ enabled: true, service: "{service}", cluster: {label} '
        "}} }}"
    ).format
    rogue_hub = await lab.node(listener(tmp_path / "theirs"))
    edge = await lab.node(
        f'leafnodes {{ reconnect: "100ms", remotes [ {{ url: "discover://leaf:right@{label}", '
        f'hub_pins: ["{pin_of(tmp_path / "ours")}"] }} ] }}\n'
        f'headwater {{ discovery {{ enabled: true, service: "{service}" }} }}'
    )
    ports = set()
    for turn in range(4):
        hub = await lab.node(listener(tmp_path / "ours"))
        ports.add(leaf_service(hub).listener.port)
        await until(lambda hub=hub: leafs(hub) and leafs(edge), f"the hub is linked, turn {turn}")
        assert not leafs(rogue_hub)
        await hub.stop()
    assert len(ports) == 4


def test_instance_names_are_one_label() -> None:
    assert instance_name("a.b") == "a-b"
    assert len(instance_name("ä" * 80).encode()) <= 63
    assert instance_name("") == "headwater"


class Silent:
    """Takes connections on a port and says nothing."""

    def __init__(self) -> None:
        self.told = 0

    async def visit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One edge has come."""
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                self.told += len(data)
        writer.close()


@pytest.mark.alone
@pytest.mark.parametrize("late", [False, True], ids=["among", "after"])
async def test_a_thousand_rogues_delay_the_hub_by_ten_seconds_at_most(
    lab: Lab, tmp_path: Path, late: bool
) -> None:
    """They accept, and never say a word; the hub is announced among them, or after them."""
    certificate(tmp_path, "hub.plant")
    files = f'cert_file: "{tmp_path}/cert.pem", key_file: "{tmp_path}/key.pem"'
    hub = await lab.node(
        "leafnodes { listen: 127.0.0.1:-1, authorization { user: leaf, password: right }, "
        f"tls {{ {files} }} }}"
    )
    edge = await lab.node(
        'leafnodes { reconnect: 1, remotes [ { url: "discover://leaf:right@plant", '
        f'disabled: true, hub_pins: ["{pin_of(tmp_path)}"] }} ] }}'
    )
    silent = Silent()
    server = await asyncio.start_server(silent.visit, "127.0.0.1", 0, backlog=1024)
    port = server.sockets[0].getsockname()[1]
    real = f"tls://127.0.0.1:{leaf_service(hub).listener.port}"
    # Paths make the same address a thousand.
    finder = Announced(*(f"tls://127.0.0.1:{port}/{number}" for number in range(1000)))
    if not late:
        finder.found.insert(500, real)
    (options,) = edge.options.leaf.remotes
    remote = LeafRemote(leaf_service(edge).links, options, finder)
    loop = asyncio.get_running_loop()
    begun = loop.time()
    remote.start()
    try:
        if late:
            await until(lambda: remote.state == "connecting", "it searches")
            finder.found.append(real)
            remote.wake()
        await until(lambda: leafs(hub), "the hub is linked", 40)
        assert within(loop.time() - begun, 10.0)
        assert silent.told == 0
        # Those who failed are not asked again when the link is made anew.
        again = loop.time()
        leaf_service(hub).links.close_all("cut")
        await until(lambda: leafs(hub) and remote.connects == 2, "the hub is linked again", 40)
        assert within(loop.time() - again, 10.0)
    finally:
        await remote.stop()
        server.close()


@pytest.mark.parametrize("proof", ["name", "key"])
async def test_rogues_of_every_kind_are_told_nothing(lab: Lab, tmp_path: Path, proof: str) -> None:
    """Forty with a socket each: silent, who ask for TLS and have none, and who have a certificate
    for the hub's name by an authority of their own, at once or behind their INFO."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for folder in (ours, theirs):
        folder.mkdir()
        certificate(folder, "hub.plant")
    wrong = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    wrong.load_cert_chain(theirs / "cert.pem", theirs / "key.pem")
    in_clear: list[bytes] = []
    under_tls: list[bytes] = []

    async def visit(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, kind: str
    ) -> None:
        told = under_tls if kind == "tls" else in_clear
        with contextlib.suppress(OSError, ssl.SSLError):
            if kind.startswith("info"):
                writer.write(ROGUE_INFO % b',"tls_required":true')
            if kind == "info, tls":
                await writer.start_tls(wrong)
                told = under_tls
            while data := await reader.read(1 << 16):
                told.append(data)
        writer.close()

    hub = await lab.node(
        "leafnodes { listen: 127.0.0.1:-1, authorization { user: leaf, password: right }, "
        f'tls {{ cert_file: "{ours}/cert.pem", key_file: "{ours}/key.pem" }} }}'
    )
    demand = (
        f'tls {{ ca_file: "{ours}/cert.pem", server_name: "hub.plant" }}'
        if proof == "name"
        else f'hub_pins: ["{pin_of(ours)}"]'
    )
    edge = await lab.node(
        'leafnodes { reconnect: "50ms", remotes [ { url: "discover://leaf:right@plant", '
        f"disabled: true, {demand} }} ] }}"
    )
    async with contextlib.AsyncExitStack() as stack:
        finder = Announced()
        for number in range(40):
            kind = ("silent", "info", "tls", "info, tls")[number % 4]
            server = await asyncio.start_server(
                partial(visit, kind=kind), "127.0.0.1", 0, ssl=wrong if kind == "tls" else None
            )
            await stack.enter_async_context(server)
            scheme = "tls" if number % 8 < 4 else "nats"
            finder.found.append(f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        (options,) = edge.options.leaf.remotes
        remote = LeafRemote(leaf_service(edge).links, options, finder)
        stack.push_async_callback(remote.stop)
        remote.start()
        await until(lambda: "proves itself" in remote.last_error, "all were asked")
        finder.found.insert(20, f"tls://127.0.0.1:{leaf_service(hub).listener.port}")
        remote.wake()
        await until(lambda: leafs(hub), "the hub is linked")
    assert under_tls == []
    assert not any(b"CONNECT" in data or b"right" in data for data in in_clear)


def test_nobody_keeps_the_hub_out_of_the_list_for_ever() -> None:
    loop = asyncio.new_event_loop()
    found = Discovery(load_text("").options, loop, "me", lambda names: names[-1])
    for number in range(3000):
        found._learn(f"rogue-{number}", announced(f"R{number}"))
    found._learn("hub", announced("HUB"))
    assert len(found._hubs) == FOUND_MAX
    assert found._hubs["hub"].node_id == "HUB"
    assert len(found._hubs["hub"].urls) == ADDRESSES_MAX
    loop.close()


def announced(name: str) -> Any:
    """An announcement with many addresses."""
    from zeroconf import ServiceInfo

    return ServiceInfo(
        "_nats._tcp.local.", f"{name}._nats._tcp.local.", port=7422,
        addresses=[bytes([10, 0, 0, last]) for last in range(1, 21)],
        properties={"id": name, "leaf": "7422", "tls": "1"},
    )  # fmt: skip


async def test_names_without_addresses_keep_nobody_waiting(lab: Lab) -> None:
    """Each of them costs three seconds of asking; the hub is found meanwhile."""
    from zeroconf import DNSOutgoing, DNSPointer, Zeroconf
    from zeroconf.const import _CLASS_IN, _FLAGS_AA, _FLAGS_QR_RESPONSE, _TYPE_PTR

    service = f"_hw{secrets.token_hex(3)}._tcp.local."
    edge = await lab.node(
        'leafnodes { remotes [ { url: "discover://plant", insecure_discovery: true } ] }\n'
        f'headwater {{ discovery {{ enabled: true, service: "{service}" }} }}'
    )
    discovery = leaf_service(edge).discovery
    await until(lambda: discovery._browser, "it looks")
    loop = asyncio.get_running_loop()
    # In a thread: there it has a loop of its own, which is ready when it is made.
    liar = await loop.run_in_executor(None, lambda: Zeroconf(interfaces=["127.0.0.1"]))
    try:
        for begin in range(0, 300, 20):
            told = DNSOutgoing(_FLAGS_QR_RESPONSE | _FLAGS_AA)
            for number in range(begin, begin + 20):
                name = f"rogue-{number}.{service}"
                told.add_answer_at_time(DNSPointer(service, _TYPE_PTR, _CLASS_IN, 4500, name), 0)
            liar.send(told)
        await until(lambda: len(discovery._unresolved._names) > 100, "they were heard")
        begun = loop.time()
        await lab.node(
            "leafnodes { listen: 127.0.0.1:-1 }\n"
            f'headwater {{ discovery {{ enabled: true, service: "{service}", cluster: plant }} }}'
        )
        await until(lambda: leafs(edge), "the hub is linked", 40)
        assert within(loop.time() - begun, 10.0)
    finally:
        await loop.run_in_executor(None, liar.close)
