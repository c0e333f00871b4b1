"""No secret that a session uses is in the log, on a page, in an answer, in `ps` or in a file.

A node that traces everything gets every kind of credential: right, wrong and on every listener.
"""

import base64
import contextlib
import json
import os
import secrets
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import bcrypt
import pytest

from bench.servers import Recipe, Server, free_port, program
from headwater.security.nkeys import KeyPair
from tests.operator_realm import Raw, Realm
from tests.waiting import until_seen

ROOT = str(Path(__file__).parents[2])

PAGES = [
    "/varz", "/connz?auth=1&subs=detail&state=all&sort=cid", "/subsz?subs=1", "/accountz",
    "/accountz?acc=A", "/accstatz", "/edgez", "/jsz?accounts=1&streams=1&consumers=1&config=1",
    "/leafz?subs=1", "/routez?subs=1", "/gatewayz", "/healthz", "/metrics", "/raftz",
    "/clusterz", "/ipqueuesz", "/debug/vars", "/",
]  # fmt: skip
REQUESTS = [
    "VARZ", "CONNZ", "SUBSZ", "ACCOUNTZ", "LEAFZ", "ROUTEZ", "JSZ", "STATSZ", "HEALTHZ"
]  # fmt: skip
CONFIG = """
http: "127.0.0.1:{monitor}", server_name: n
jetstream {{ store_dir: "{{dir}}"
  # The key comes by the environment.
}}
headwater {{ sealing {{ key_env: HEADWATER_TEST_KEY }} }}
accounts {{
  A {{ jetstream: enabled, users: [
    {{ user: plain, password: "{plain}" }}
    {{ user: hashed, password: "{digest}" }}
    {{ nkey: {nkey} }} ] }}
  SYS {{ users: [ {{ user: s, password: "{system}" }} ] }}
}}
system_account: SYS
websocket {{ listen: "127.0.0.1:{ws}", no_tls: true
  user_cookie: u, pass_cookie: p, token_cookie: t }}
leafnodes {{ listen: "127.0.0.1:{leaf}"
  remotes: [ {{ url: "nats-leaf://edge:{remote}@127.0.0.1:{nobody}", account: A }} ] }}
"""
NAMES = ["plain", "hashed", "system", "remote", "wrong", "token", "changed"]
NOT_SECRET = "not a secret"


class Session:
    """The node, and what it is told."""

    def __init__(self, folder: Path) -> None:
        self.secret = {name: f"{name}-{secrets.token_hex(12)}" for name in NAMES}
        self.pair = KeyPair.create("U")
        self.ports = {name: free_port() for name in ("monitor", "ws", "leaf", "nobody")}
        digest = bcrypt.hashpw(self.secret["hashed"].encode(), bcrypt.gensalt(4)).decode()
        self.key = base64.b64encode(secrets.token_bytes(32)).decode()
        self.told = {**self.secret, **self.ports, "digest": digest, "nkey": self.pair.public_key}
        realm = Realm()
        user = realm.user(bearer_token=True)
        self.token = user.token
        self.hidden = [
            *self.secret.values(), digest, self.key, self.token, self.pair.seed
        ]  # fmt: skip
        self.recipe = Recipe(
            "headwater",
            (program("headwater"), "serve", "-DV"),
            CONFIG.format(**self.told),
            (("HEADWATER_TEST_KEY", self.key),),
        )


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Session, Server]]:
    session = Session(tmp_path_factory.mktemp("secrets"))
    with Server(session.recipe) as server:
        use_everything(session, server)
        yield session, server


def use_everything(session: Session, server: Server) -> None:
    """Log in by every means on every listener, well and badly."""
    secret = session.secret
    nonce_signed = Raw(server.port)
    signature = base64.urlsafe_b64encode(session.pair.sign(nonce_signed.info["nonce"].encode()))
    signed = signature.rstrip(b"=").decode()
    session.hidden.append(signed)
    kept = [
        (Raw(server.port), {"user": "plain", "pass": secret["plain"]}),
        (Raw(server.port), {"user": "hashed", "pass": secret["hashed"]}),
        (nonce_signed, {"nkey": session.pair.public_key, "sig": signed}),
    ]
    for raw, fields in kept:
        assert not any("-ERR" in line for line in raw.login(**fields))
    bad = [
        {"user": "plain", "pass": secret["wrong"]},
        {"user": "other", "pass": secret["wrong"]},
        {"auth_token": secret["token"]},
        {"jwt": session.token, "sig": signed},
        {"jwt": session.token},
        {"user": "plain", "pass": [secret["wrong"]]},
    ]
    for fields in bad:
        for port in (server.port, session.ports["leaf"]):
            with contextlib.suppress(OSError), Raw(port) as raw:
                raw.login(**fields)
    for cookie in (f"u=plain; p={secret['wrong']}", f"j={session.token}", f"t={secret['token']}",
                   f"u=plain; p={secret['plain']}"):
        by_cookie(session.ports["ws"], cookie)
    with contextlib.suppress(OSError), Raw(server.port) as raw:
        raw.send(f'CONNECT {{"user":"plain","pass":"{secret["wrong"]}"\r\nPING\r\n')
    reload(session, server)


def by_cookie(port: int, cookie: str) -> None:
    """A client of a WebSocket that is known by its cookie."""
    body = b'CONNECT {"verbose":false}\r\nPING\r\n'
    with socket.create_connection(("127.0.0.1", port), 5) as link:
        link.sendall(
            b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n"
            b"Cookie: " + cookie.encode() + b"\r\n\r\n"
            + bytes((0x82, 0x80 | len(body))) + bytes(4) + body
        )
        got = b""
        with contextlib.suppress(OSError):
            while b"PONG" not in got and b"-ERR" not in got and (part := link.recv(4096)):
                got += part


def reload(session: Session, server: Server) -> None:
    """Another password comes into force, and then a configuration that is refused."""
    config = server.log_path.parent / "server.conf"
    text = config.read_text()
    config.write_text(text.replace(session.secret["plain"], session.secret["changed"]))
    server.signal(signal.SIGHUP)
    until_seen(lambda: b"Reloaded server configuration" in server.log_path.read_bytes(), "reload")
    config.write_text(text.replace(f'"{session.secret["plain"]}"', f'"{session.secret["wrong"]}'))
    server.signal(signal.SIGHUP)
    until_seen(lambda: b"[ERR]" in server.log_path.read_bytes(), "a refusal")


def refuse(hidden: list[str], where: str, text: bytes) -> None:
    """Nothing that is hidden is in a text, as it is or in base64."""
    for each in hidden:
        raw = each.encode()
        for form in (raw, base64.b64encode(raw).rstrip(b"=")):
            at = text.find(form)
            assert at < 0, f"{where} shows {text[max(at - 200, 0) : at + 9]!r}"


def test_logs(session: tuple[Session, Server]) -> None:
    used, server = session
    log = server.log_path.read_bytes()
    assert b"[TRC]" in log
    refuse(used.hidden, "the log", log)


@pytest.mark.parametrize("path", PAGES)
def test_pages(session: tuple[Session, Server], path: str) -> None:
    used, _ = session
    try:
        with urlopen(f"http://127.0.0.1:{used.ports['monitor']}{path}", timeout=10) as page:
            body = page.read()
    except OSError as error:
        body = str(error).encode()
    refuse(used.hidden, path, body)


def test_answers_of_the_system(session: tuple[Session, Server]) -> None:
    used, server = session
    with Raw(server.port) as raw:
        raw.login(user="s", **{"pass": used.secret["system"]})
        for name in REQUESTS:
            answer = raw.request(f"$SYS.REQ.SERVER.PING.{name}", {"auth": True, "state": 2})
            refuse(used.hidden, name, json.dumps(answer).encode())
    with Raw(server.port) as raw:
        raw.login(user="hashed", **{"pass": used.secret["hashed"]})
        answer = raw.request("$SYS.REQ.USER.INFO")
        assert answer["data"]["user"] == "hashed"
        refuse(used.hidden, "USER.INFO", json.dumps(answer).encode())


def test_arguments_of_the_process(session: tuple[Session, Server]) -> None:
    used, server = session
    for name in ("cmdline", "comm"):
        refuse(used.hidden, name, Path(f"/proc/{server.pid}/{name}").read_bytes())


def test_files_of_the_store(session: tuple[Session, Server]) -> None:
    """The store, and temporary files; all of them are for the node alone."""
    used, server = session
    with Raw(server.port) as raw:
        raw.login(user="hashed", **{"pass": used.secret["hashed"]})
        config = {"name": "S", "subjects": ["s.>"], "storage": "file"}
        assert "error" not in raw.request("$JS.API.STREAM.CREATE.S", config)
    found = [path for path in server.store.rglob("*") if path.is_file()]
    assert found
    for path in found:
        refuse(used.hidden, str(path), path.read_bytes())
        assert path.stat().st_mode & 0o077 == 0, path
    opened = [os.readlink(each) for each in Path(f"/proc/{server.pid}/fd").iterdir()]
    for name in opened:
        # A checkout may be a temporary folder itself: the image that the start reads is in it.
        if name.startswith("/tmp/") and str(server.store.parent) not in name and ROOT not in name:
            raise AssertionError(f"{name} is open")


def test_what_is_shown_would_be_found(session: tuple[Session, Server]) -> None:
    with pytest.raises(AssertionError, match="shows"):
        refuse([NOT_SECRET], "a text", b"here is " + NOT_SECRET.encode())
