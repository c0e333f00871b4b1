"""Peers are judged by their authorities, on both servers, with openssl as responder."""

import asyncio
import base64
import json
import ssl
from pathlib import Path
from typing import Any

import aiohttp
import nats
import pytest
from cryptography.hazmat.primitives import hashes, serialization

from bench.servers import Recipe, Server, free_port, program
from headwater.deploy.compose import services_for
from headwater.edge.conf.load import load_text
from headwater.edge.conf.validate import complete as complete_options
from headwater.edge.conf.validate import validate
from headwater.edge.node.node import Node
from tests.hub.routes.test_routes import complete, until
from tests.ocsp_authority import Authority

BOTH = {
    "headwater": (program("headwater"), "serve"),
    "nats-server": (program("nats-server"),),
}


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    found = Authority(tmp_path)
    found.issue("node", responder=False)
    return found


def tls(authority: Authority, name: str, extra: str) -> str:
    folder = authority.folder
    return (
        f'tls {{ cert_file: "{folder}/{name}.pem", key_file: "{folder}/{name}.key", '
        f'ca_file: "{authority.file}", {extra} }}\n'
    )


def config(authority: Authority, peer: str, cache: str = "ocsp_cache: false") -> str:
    return tls(authority, "node", f"verify: true, timeout: 5, ocsp_peer: {peer}") + cache + "\n"


async def admitted(port: int, authority: Authority, name: str, seconds: float = 10) -> bool:
    """Whether a client with a certificate of the authority gets in. nats-py waits all `seconds`
    when its connection ends behind the handshake."""
    context = ssl.create_default_context(cafile=authority.file)
    context.load_cert_chain(authority.folder / f"{name}.pem", authority.folder / f"{name}.key")
    ends: list[Exception] = []

    async def note(error: Exception) -> None:
        ends.append(error)

    try:
        client = await nats.connect(
            f"tls://127.0.0.1:{port}", tls=context, allow_reconnect=False, error_cb=note,
            connect_timeout=seconds,
        )  # fmt: skip
        await client.flush(seconds)
        await client.close()
    except (nats.errors.Error, OSError, TimeoutError):
        return False
    return True


# How peers are judged, what is with the client's certificate, and whether it gets in.
JUDGED = [
    ("true", "good", True),
    ("true", "revoked", False),
    ("true", "unknown", False),
    ("true", "silent", False),
    ("true", "names no responder", True),
    ("false", "revoked", True),
    ("{ verify: true, warn_only: true }", "revoked", True),
    ("{ verify: true, warn_only: true }", "silent", True),
    ("{ verify: true, unknown_is_good: true }", "unknown", True),
    ("{ verify: true, unknown_is_good: true }", "revoked", False),
    ("{ verify: true, allow_when_ca_unreachable: true, ca_timeout: 1 }", "silent", True),
    ("{ verify: true, allow_when_ca_unreachable: true }", "revoked", False),
]


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.parametrize(("peer", "status", "enters"), JUDGED)
async def test_who_gets_in(
    authority: Authority, name: str, peer: str, status: str, enters: bool
) -> None:
    cert = authority.issue("client", responder=status != "names no responder")
    if status == "revoked":
        authority.revoke(cert)
    elif status == "unknown":
        authority.forget(cert)
    recipe = Recipe(name, BOTH[name], config(authority, peer))
    with authority, Server(recipe) as server:
        if status == "silent":
            authority.stop()
        seconds = 10 if enters else 2
        assert await admitted(server.port, authority, "client", seconds) is enters


@pytest.mark.parametrize("name", BOTH)
async def test_what_was_answered_is_kept(authority: Authority, tmp_path: Path, name: str) -> None:
    authority.issue("client")
    cache = f'ocsp_cache {{ type: local, local_store: "{tmp_path}/rc" }}'
    recipe = Recipe(name, BOTH[name], config(authority, "true", cache))
    with authority, Server(recipe) as server:
        assert await admitted(server.port, authority, "client")
        authority.stop()
        assert await admitted(server.port, authority, "client")
    if name == "headwater":
        with Server(recipe) as server:
            assert await admitted(server.port, authority, "client")


@pytest.mark.parametrize("name", BOTH)
async def test_handshake_first(authority: Authority, name: str) -> None:
    good, bad = authority.issue("good"), authority.issue("bad")
    assert good != bad
    authority.revoke(bad)
    text = tls(authority, "node", "verify: true, ocsp_peer: true, handshake_first: auto")
    with authority, Server(Recipe(name, BOTH[name], text + "ocsp_cache: false\n")) as server:
        for who, enters in (("good", True), ("bad", False)):
            context = ssl.create_default_context(cafile=authority.file)
            folder = authority.folder
            context.load_cert_chain(folder / f"{who}.pem", folder / f"{who}.key")
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=context)
            try:
                line = await asyncio.wait_for(reader.readline(), 10)
            except (ssl.SSLError, ConnectionError):
                line = b""
            assert line.startswith(b"INFO") is enters
            writer.close()


# --- WebSockets ---


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.parametrize(("status", "enters"), [("good", True), ("revoked", False)])
async def test_clients_of_websockets(
    authority: Authority, name: str, status: str, enters: bool
) -> None:
    cert = authority.issue("client")
    if status == "revoked":
        authority.revoke(cert)
    port = free_port()
    inner = tls(authority, "node", "verify: true, timeout: 5, ocsp_peer: true")
    text = f'ocsp_cache: false\nwebsocket {{ listen: "127.0.0.1:{port}"\n{inner} }}\n'
    with authority, Server(Recipe(name, BOTH[name], text)):
        context = ssl.create_default_context(cafile=authority.file)
        folder = authority.folder
        context.load_cert_chain(folder / "client.pem", folder / "client.key")
        try:
            async with (
                aiohttp.ClientSession() as http,
                http.ws_connect(f"wss://127.0.0.1:{port}", ssl=context) as peer,
            ):
                said = (await peer.receive(10)).data
        except aiohttp.ClientError:
            said = b""
        assert said.startswith(b"INFO") is enters


async def test_what_comes_with_the_handshake_of_a_websocket_waits_for_the_verdict(
    authority: Authority,
) -> None:
    """A request may be behind the handshake already; it is read when the peer may go on."""
    authority.issue("client")
    inner = tls(authority, "node", "verify: true, ocsp_peer: true")
    node = start(
        f'listen: "127.0.0.1:-1"\nocsp_cache: false\n'
        f'websocket {{ listen: "127.0.0.1:-1"\n{inner} }}'
    )
    verdict, asked, go = node.peer_checks.verdict, asyncio.Event(), asyncio.Event()

    async def slow(*details: Any) -> str:
        asked.set()
        await go.wait()
        reason: str = await verdict(*details)
        return reason

    node.peer_checks.verdict = slow
    context = ssl.create_default_context(cafile=authority.file)
    folder = authority.folder
    context.load_cert_chain(folder / "client.pem", folder / "client.key")
    port = int(node.ports()["websocket"][0].rpartition(":")[2])
    with authority:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        writer.write(
            b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )
        await asyncio.wait_for(asked.wait(), 10)
        assert not node.sessions.conns
        go.set()
        line = await asyncio.wait_for(reader.readline(), 10)
        assert line.startswith(b"HTTP/1.1 101")
        writer.close()
        await node.stop()


# --- events of the system account ---


# What is with the client's certificate, and the reason that the event of its chain says.
TOLD = [
    ("revoked", "Invalid OCSP response status: revoked"),
    ("unknown", "Invalid OCSP response status: unknown"),
    ("silent", "Failed OCSP response fetch"),
]


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.parametrize(("status", "reason"), TOLD)
async def test_the_system_account_is_told(
    authority: Authority, name: str, status: str, reason: str
) -> None:
    authority.issue("watcher", responder=False)
    cert = authority.issue("client")
    if status == "revoked":
        authority.revoke(cert)
    elif status == "unknown":
        authority.forget(cert)
    accounts = "accounts { SYS { users: [ { user: s, password: s } ] } }\nsystem_account: SYS\n"
    recipe = Recipe(name, BOTH[name], config(authority, "true") + accounts)
    context = ssl.create_default_context(cafile=authority.file)
    folder = authority.folder
    context.load_cert_chain(folder / "watcher.pem", folder / "watcher.key")
    with authority, Server(recipe) as server:
        watcher = await nats.connect(
            f"tls://127.0.0.1:{server.port}", tls=context, user="s", password="s"
        )
        events = await watcher.subscribe("$SYS.SERVER.*.OCSP.>")
        await watcher.flush()
        if status == "silent":
            authority.stop()
        assert not await admitted(server.port, authority, "client", 2)
        link, refusal = await events.next_msg(10), await events.next_msg(10)
        await watcher.close()
    server_id = json.loads(link.data)["server"]["id"]
    shown = {
        "subject": "CN=client",
        "issuer": "CN=authority",
        "fingerprint": base64.b64encode(cert.fingerprint(hashes.SHA256())).decode(),
        "raw": base64.b64encode(cert.public_bytes(serialization.Encoding.DER)).decode(),
    }
    assert link.subject == f"$SYS.SERVER.{server_id}.OCSP.PEER.LINK.INVALID"
    assert told(link.data) == {
        "type": "io.nats.server.advisory.v1.ocsp_peer_link_invalid",
        "link": shown, "peer": shown, "reason": reason,
    }  # fmt: skip
    assert refusal.subject == f"$SYS.SERVER.{server_id}.OCSP.PEER.CONN.REJECT"
    assert told(refusal.data) == {
        "type": "io.nats.server.advisory.v1.ocsp_peer_reject",
        "kind": "Client", "peer": shown, "reason": "client not OCSP valid",
    }  # fmt: skip


def told(body: bytes) -> dict[str, Any]:
    """What an event says, without what differs from one to the next."""
    fields: dict[str, Any] = json.loads(body)
    assert fields.pop("id")
    assert fields.pop("timestamp")
    assert fields.pop("server")["seq"]
    return fields


# --- links -------------------------------------------------------------------


def start(text: str) -> Node:
    options = load_text(text).options
    node = Node(options, asyncio.get_running_loop())
    node.services.extend(services_for(options))
    node.start()
    return node


def leafs(node: Node) -> int:
    [service] = [each for each in node.services if each.name == "leafnodes"]
    return len(service.status()["leafs"])


@pytest.mark.parametrize("judge", ["hub", "spoke"])
async def test_leaf_links_are_judged_at_either_end(authority: Authority, judge: str) -> None:
    authority.issue("hub", responder=judge == "spoke")
    spoke_cert = authority.issue("spoke", responder=judge == "hub")
    port = free_port()
    peer = "verify: true" + (", ocsp_peer: true" if judge == "hub" else "")
    own = "ocsp_peer: true" if judge == "spoke" else ""
    common = 'listen: "127.0.0.1:-1"\nocsp_cache: false\n'
    judged = spoke_cert if judge == "hub" else None
    with authority:
        hub = start(
            f"{common}leafnodes {{ listen: \"127.0.0.1:{port}\"\n{tls(authority, 'hub', peer)} }}"
        )
        remote = f'{{ url: "tls://127.0.0.1:{port}"\n{tls(authority, "spoke", own)} }}'
        text = f"{common}leafnodes {{ reconnect: 1, remotes: [ {remote} ] }}"
        spoke = start(text)
        await until(lambda: leafs(hub) == leafs(spoke) == 1, 10)
        await spoke.stop()
        await until(lambda: leafs(hub) == 0)
        if judged is not None:
            authority.revoke(judged)
        else:
            authority.stop()
        spoke = start(text)
        [service] = [each for each in spoke.services if each.name == "leafnodes"]
        await refused(hub if judge == "hub" else spoke)
        assert leafs(hub) == leafs(spoke) == 0
        await spoke.stop()
        await hub.stop()


async def refused(node: Node) -> None:
    """Wait until a peer was refused."""
    seen = asyncio.Event()
    verdict = node.peer_checks.verdict

    async def watched(chain: Any, options: Any, report: bool = False) -> str:
        reason: str = await verdict(chain, options, report)
        if reason:
            seen.set()
        return reason

    node.peer_checks.verdict = watched
    await asyncio.wait_for(seen.wait(), 20)


async def test_routes_that_staple_judge_one_another(authority: Authority) -> None:
    certs = [authority.issue(f"n{number}") for number in range(2)]
    ports = [free_port(), free_port()]

    def text(number: int) -> str:
        other = ports[1 - number]
        return (
            f'server_name: n{number}\nlisten: "127.0.0.1:-1"\nocsp {{ mode: always }}\n'
            f'ocsp_cache: false\ncluster {{ name: C, listen: "127.0.0.1:{ports[number]}", '
            f'routes: ["nats-route://127.0.0.1:{other}"]\n{tls(authority, f"n{number}", "")} }}'
        )

    with authority:
        first, second = start(text(0)), start(text(1))
        await until(lambda: complete(first, 1) and complete(second, 1), 15)
        authority.revoke(certs[1])
        for service in second.services:
            if service.name == "routes":
                for conn in list(service.routes.conns.values()):
                    conn.close("Test")
        await refused(first)
        await first.stop()
        await second.stop()


@pytest.mark.parametrize(
    "text",
    [
        "{tls ocsp_peer: true}",
        "leafnodes {{ port: -1, {tls ocsp_peer: true} }}",
        "websocket {{ port: -1, {tls ocsp_peer: true} }}",
        "cluster {{ port: -1, {tls verify: true, ocsp_peer: true} }}",
    ],
)
def test_where_nobody_would_be_checked_it_is_refused(authority: Authority, text: str) -> None:
    begin, _, rest = text.partition("{tls ")
    inner, _, end = rest.partition("}")
    written = begin.replace("{{", "{") + tls(authority, "node", inner) + end.replace("}}", "}")
    options = load_text(written).options
    complete_options(options)
    assert any("ocsp_peer" in problem for problem in validate(options))
