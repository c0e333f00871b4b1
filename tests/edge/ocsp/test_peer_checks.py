"""Peers are judged by their authorities, on both servers, with openssl as responder."""

import asyncio
import ssl
from pathlib import Path
from typing import Any

import nats
import pytest

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


async def admitted(port: int, authority: Authority, name: str) -> bool:
    """Whether a client with a certificate of the authority gets in."""
    context = ssl.create_default_context(cafile=authority.file)
    context.load_cert_chain(authority.folder / f"{name}.pem", authority.folder / f"{name}.key")
    ends: list[Exception] = []

    async def note(error: Exception) -> None:
        ends.append(error)

    try:
        client = await nats.connect(
            f"tls://127.0.0.1:{port}", tls=context, allow_reconnect=False, error_cb=note,
            connect_timeout=10,
        )  # fmt: skip
        await client.flush(10)
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
        assert await admitted(server.port, authority, "client") is enters


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

    async def watched(chain: Any, options: Any) -> str:
        reason: str = await verdict(chain, options)
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
        "websocket {{ port: -1, {tls verify: true, ocsp_peer: true} }}",
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
