"""Certificates that are replaced on disk: every listener shows the new one after a reload, and
clients that are there stay."""

import json
import os
import signal
import socket
import ssl
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from bench.servers import Server, free_port
from tests.certificates import certificate
from tests.operator_realm import SERVERS, recipe
from tests.waiting import until_seen

LISTENERS = ("clients", "websocket", "leafnodes", "cluster", "https")


def shown(name: str, port: int, files: tuple[str, str]) -> bytes:
    """The certificate that a listener shows."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.load_cert_chain(*files)
    with socket.create_connection(("127.0.0.1", port), 5) as plain:
        if name in ("clients", "leafnodes"):
            line = plain.makefile("rb", 0).readline()
            assert line.startswith(b"INFO"), line
        with context.wrap_socket(plain) as secured:
            found = secured.getpeercert(True)
            assert found is not None
            return found


class TLSClient:
    """A client that logged in over TLS, without checking who answers."""

    def __init__(self, port: int) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        plain = socket.create_connection(("127.0.0.1", port), 5)
        plain.makefile("rb", 0).readline()
        self.socket = context.wrap_socket(plain)
        self.say(b'CONNECT {"verbose": false}\r\n')

    def say(self, data: bytes = b"") -> None:
        self.socket.sendall(data + b"PING\r\n")
        heard = b""
        while not heard.endswith(b"PONG\r\n"):
            part = self.socket.recv(4096)
            assert part, heard
            heard += part


@pytest.mark.parametrize("server", SERVERS)
def test_every_listener_shows_the_new_certificate(server: str, tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    for folder in (old, new):
        folder.mkdir()
    files, fresh = certificate(old), certificate(new)
    ports = {name: free_port() for name in LISTENERS if name != "clients"}
    tls = f'tls {{ cert_file: "{files.cert_file}", key_file: "{files.key_file}"'
    path = tmp_path / "server.conf"
    path.write_text(f"""
      {tls} }}
      https: "127.0.0.1:{ports["https"]}"
      websocket {{ listen: "127.0.0.1:{ports["websocket"]}", {tls} }} }}
      leafnodes {{ listen: "127.0.0.1:{ports["leafnodes"]}", {tls} }} }}
      cluster {{ name: c, listen: "127.0.0.1:{ports["cluster"]}", {tls},
                 ca_file: "{files.cert_file}" }} }}
    """)
    base = recipe(server, "")
    start = type(base)(server, (*base.command, "-c", str(path), "-a", "127.0.0.1", "-p", "{port}"))
    with Server(start) as running:
        ports["clients"] = running.port
        pair = (str(tmp_path / "old.pem"), str(tmp_path / "old.key"))
        for source, copy in zip((files.cert_file, files.key_file), pair, strict=True):
            Path(copy).write_bytes(Path(source).read_bytes())
        before = {name: shown(name, ports[name], pair) for name in LISTENERS}
        assert len(set(before.values())) == 1
        client = TLSClient(running.port)
        for source, target in (
            (fresh.cert_file, files.cert_file),
            (fresh.key_file, files.key_file),
        ):
            Path(target).write_bytes(Path(source).read_bytes())
        os.kill(running.pid, signal.SIGHUP)
        # The cluster trusts the new certificate only now.
        pair = (fresh.cert_file, fresh.key_file)
        until_seen(lambda: shown("clients", running.port, pair) != before["clients"])
        after = {name: shown(name, ports[name], pair) for name in LISTENERS}
        assert after == dict.fromkeys(LISTENERS, after["clients"])
        client.say()
        client.socket.close()


def test_a_certificate_that_cannot_be_used_changes_nothing(tmp_path: Path) -> None:
    files = certificate(tmp_path)
    tls = f'tls {{ cert_file: "{files.cert_file}", key_file: "{files.key_file}" }}'
    port = free_port()
    config = f'leafnodes {{ listen: "127.0.0.1:{port}", {tls} }}\n'
    with Server(recipe("headwater", config)) as server:
        pair = (str(tmp_path / "a.pem"), str(tmp_path / "a.key"))
        for source, copy in zip((files.cert_file, files.key_file), pair, strict=True):
            Path(copy).write_bytes(Path(source).read_bytes())
        before = shown("leafnodes", port, pair)
        Path(files.cert_file).write_text("nonsense")
        os.kill(server.pid, signal.SIGHUP)
        until_seen(lambda: "cannot use certificate" in server.log)
        assert shown("leafnodes", port, pair) == before


@pytest.mark.parametrize("server", SERVERS)
def test_links_get_other_files_and_demands(server: str, tmp_path: Path) -> None:
    """New handshakes go by the new block; a link that is up stays."""
    files, fresh = (certificate(made(tmp_path / name)) for name in ("old", "new"))
    port, page = free_port(), free_port()
    path = tmp_path / "server.conf"

    def write(cert: Any, more: str = "") -> None:
        tls = f'tls {{ cert_file: "{cert.cert_file}", key_file: "{cert.key_file}" {more} }}'
        path.write_text(
            f'leafnodes {{ listen: "127.0.0.1:{port}", {tls} }}\nhttp: "127.0.0.1:{page}"\n'
        )

    def links() -> list[Any]:
        with urllib.request.urlopen(f"http://127.0.0.1:{page}/leafz", timeout=10) as answer:
            return [leaf["id"] for leaf in json.load(answer).get("leafs") or []]

    write(files)
    base = recipe(server, "")
    start = type(base)(server, (*base.command, "-c", str(path), "-a", "127.0.0.1", "-p", "{port}"))
    remote = f'{{ url: "tls://127.0.0.1:{port}", tls {{ insecure: true }} }}'
    with Server(start) as running, Server(recipe(server, f"leafnodes {{ remotes [ {remote} ] }}")):
        [link] = until_seen(links)
        own = (files.cert_file, files.key_file)
        before = shown("leafnodes", port, own)
        write(fresh)
        os.kill(running.pid, signal.SIGHUP)
        until_seen(lambda: shown("leafnodes", port, own) != before)
        assert links() == [link]
        if server == "nats-server":
            return  # it goes on asking nobody for a certificate, until it starts again
        write(fresh, f', verify: true, ca_file: "{fresh.cert_file}", timeout: 3')
        os.kill(running.pid, signal.SIGHUP)
        until_seen(lambda: not admitted(port, own))
        assert admitted(port, (fresh.cert_file, fresh.key_file))
        assert links() == [link]


def made(folder: Path) -> Path:
    """A folder that was not there."""
    folder.mkdir()
    return folder


def admitted(port: int, files: tuple[str, str]) -> bool:
    """Whether a leaf listener goes on with whoever shows this certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.load_cert_chain(*files)
    with socket.create_connection(("127.0.0.1", port), 5) as plain:
        plain.makefile("rb", 0).readline()
        try:
            with context.wrap_socket(plain) as secured:
                secured.sendall(b"CONNECT {}\r\nPING\r\n")
                return bool(secured.recv(100))
        except (ssl.SSLError, ConnectionError):
            return False
