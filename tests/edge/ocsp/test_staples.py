"""Stapling, with openssl as responder and as client, on both servers where both can."""

import asyncio
import logging
import subprocess
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from bench.servers import Recipe, Server, ServerFailed, free_port, program
from headwater.edge.conf.options import JetStreamOptions, Options, TLSOptions
from headwater.edge.node.node import Node
from headwater.edge.node.reload import reload_node
from headwater.edge.ocsp import staples
from headwater.edge.ocsp.staples import OcspStaples
from headwater.security.errors import OCSPError
from headwater.security.ocsp import stapling
from tests.ocsp_authority import Authority, seen_by_openssl
from tests.waiting import until

BOTH = {
    "headwater": (program("headwater"), "serve"),
    "nats-server": (program("nats-server"),),
}
GOOD = "Cert Status: good"
NOTHING = "OCSP response: no response sent"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def config(authority: Authority, ocsp: str, extra: str = "") -> str:
    folder = authority.folder
    return (
        f'tls {{ cert_file: "{folder}/node.pem", key_file: "{folder}/node.key", '
        f'ca_file: "{authority.file}", handshake_first: auto }}\n{ocsp}\n{extra}\n'
    )


# Configuration, whether the certificate demands a staple, and what a client sees.
SHOWN = [
    ("", True, GOOD),
    ("", False, NOTHING),
    ("ocsp: true", True, GOOD),
    ("ocsp: true", False, NOTHING),
    ("ocsp: false", True, NOTHING),
    ("ocsp { mode: always }", False, GOOD),
    ("ocsp { mode: must }", True, GOOD),
    ("ocsp { mode: must }", False, NOTHING),
    ("ocsp { mode: never }", True, NOTHING),
]


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.parametrize(("ocsp", "demanded", "seen"), SHOWN)
def test_what_a_client_is_shown(
    authority: Authority, name: str, ocsp: str, demanded: bool, seen: str
) -> None:
    authority.issue("node", must_staple=demanded)
    recipe = Recipe(name, BOTH[name], config(authority, ocsp))
    with authority, Server(recipe) as server:
        assert seen in seen_by_openssl(server.port, authority.file)


@pytest.mark.parametrize("name", BOTH)
def test_websockets_staple(authority: Authority, name: str) -> None:
    authority.issue("node")
    port, folder = free_port(), authority.folder
    with (folder / "node.pem").open("ab") as chain:
        chain.write((folder / "ca.pem").read_bytes())
    text = (
        f'ocsp {{ mode: always }}\nwebsocket {{ listen: "127.0.0.1:{port}"\n'
        f'tls {{ cert_file: "{folder}/node.pem", key_file: "{folder}/node.key", '
        f'ca_file: "{authority.file}" }} }}\n'
    )
    with authority, Server(Recipe(name, BOTH[name], text)):
        assert GOOD in seen_by_openssl(port, authority.file)


@pytest.mark.parametrize("name", BOTH)
def test_a_certificate_without_a_responder_needs_one_of_the_configuration(
    authority: Authority, name: str
) -> None:
    authority.issue("node", responder=False)
    recipe = Recipe(name, BOTH[name], config(authority, "ocsp { mode: always }"))
    with authority:
        with pytest.raises(ServerFailed), Server(recipe):
            pass
        own = config(authority, f'ocsp {{ mode: always, url: "{authority.url}" }}')
        with Server(Recipe(name, BOTH[name], own)) as server:
            assert GOOD in seen_by_openssl(server.port, authority.file)


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.parametrize("why", ["revoked", "unknown", "silent", "another authority"])
def test_a_start_is_refused_when_the_status_is_bad(
    authority: Authority, tmp_path: Path, name: str, why: str
) -> None:
    cert = authority.issue("node")
    if why == "revoked":
        authority.revoke(cert)
    elif why == "unknown":
        authority.forget(cert)
    answers_for = authority
    if why == "another authority":
        (tmp_path / "other").mkdir()
        answers_for = Authority(tmp_path / "other")
        answers_for.lines = dict(authority.lines)
    mode = f'ocsp {{ mode: always, url: "{answers_for.url}" }}'
    path = tmp_path / "server.conf"
    path.write_text(config(authority, mode))
    if why != "silent":
        answers_for.__enter__()
    try:
        command = [*BOTH[name], "-c", str(path), "-a", "127.0.0.1", "-p", str(free_port())]
        run = subprocess.run(command, capture_output=True, timeout=60, check=False)
    finally:
        answers_for.stop()
    assert run.returncode == 1
    said = (run.stdout + run.stderr).decode()
    assert "OCSP status" in said
    if why in ("revoked", "unknown"):
        assert why in said


@pytest.mark.parametrize("name", BOTH)
def test_a_status_is_kept_across_starts(authority: Authority, tmp_path: Path, name: str) -> None:
    authority.issue("node")
    store = f'jetstream {{ store_dir: "{tmp_path}/js" }}'
    recipe = Recipe(name, BOTH[name], config(authority, "ocsp { mode: always }", store))
    with authority, Server(recipe) as server:
        assert GOOD in seen_by_openssl(server.port, authority.file)
    with Server(recipe) as server:
        assert GOOD in seen_by_openssl(server.port, authority.file)


# --- what only we can be made to show ----------------------------------------


def options(authority: Authority, name: str = "node", **fields: object) -> Options:
    folder = authority.folder
    tls = TLSOptions(
        cert_file=f"{folder}/{name}.pem",
        key_file=f"{folder}/{name}.key",
        ca_file=authority.file,
        handshake_first=True,
    )
    return Options(host="127.0.0.1", port=-1, tls=tls, ocsp_mode="always", **fields)


def started(wanted: Options, stop: Callable[[], None] = lambda: None) -> Node:
    node = Node(wanted, asyncio.get_running_loop())
    node.services.append(OcspStaples(wanted, stop))
    node.start()
    return node


async def shown(node: Node, authority: Authority) -> str:
    return await asyncio.to_thread(seen_by_openssl, node.facts.port, authority.file)


async def test_a_node_stops_when_its_certificate_is_revoked(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    cert = authority.issue("node")
    monkeypatch.setattr(staples.Subject, "pause", lambda self, now: 0.05)
    stopped = asyncio.Event()
    with authority:
        node = started(options(authority), stopped.set)
        assert GOOD in await shown(node, authority)
        authority.revoke(cert)
        await asyncio.wait_for(stopped.wait(), 10)
        assert "Cert Status: revoked" in await shown(node, authority)
    await node.stop()


async def test_a_listener_whose_status_has_run_out_speaks_with_nobody(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    authority.issue("node")
    with authority:
        node = started(options(authority))
    with caplog.at_level(logging.CRITICAL):
        node.tls.clients.staple.show(b"over", 1.0)
        seen = await shown(node, authority)
        assert "no peer certificate available" in seen
        node.tls.clients.staple.show(b"", 0.0)
        assert "no peer certificate available" in await shown(node, authority)
    await node.stop()


async def test_a_reload_with_another_certificate_asks_for_it(authority: Authority) -> None:
    for name in ("node", "next"):
        authority.issue(name)
    with authority:
        node = started(options(authority))
        first = node.tls.clients.staple
        reload_node(node, msgspec.structs.replace(node.options))
        assert node.tls.clients.staple is first
        reload_node(node, options(authority, "next"))
        assert not node.tls.clients.stands
        await until(lambda: node.tls.clients.stands)
        assert GOOD in await shown(node, authority)
    await node.stop()


async def test_where_stapling_is_not_possible_a_start_says_so(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority.issue("node")
    monkeypatch.setattr(stapling, "unavailable", lambda: "no symbols")
    with authority, pytest.raises(OCSPError, match="stapling is not possible here: no symbols"):
        started(options(authority))


async def test_a_damaged_file_is_asked_for_again(authority: Authority, tmp_path: Path) -> None:
    authority.issue("node")
    store = tmp_path / "js"
    wanted = options(authority, jetstream=JetStreamOptions(store_dir=str(store)))
    with authority:
        await started(wanted).stop()
        [kept] = (store / "ocsp").iterdir()
        assert kept.stat().st_mode & 0o777 == 0o600
        good = kept.read_bytes()
        damaged = good[:100] + bytes((good[100] ^ 1,)) + good[101:]
        kept.write_bytes(damaged)
        node = started(wanted)
        assert GOOD in await shown(node, authority)
        assert kept.read_bytes() != damaged
        await node.stop()
