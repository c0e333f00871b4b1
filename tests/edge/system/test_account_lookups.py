"""Resolvers that look tokens up: a URL, other servers, and what a cache keeps; on both servers."""

import http.server
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench.servers import Recipe, Server, ServerFailed, free_port
from headwater.security.claims import AccountLimits
from headwater.security.nkeys import KeyPair
from tests.certificates import certificate
from tests.operator_realm import SERVERS, Raw, Realm, recipe
from tests.waiting import until_seen

REFUSED = ["-ERR 'Authorization Violation'"]


class TokenServer:
    """An HTTP server of account tokens, and what it was asked for."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.tokens: dict[str, str] = {}
        self.asked: list[str] = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            """Answers with a token, or 404."""

            def do_GET(self) -> None:
                account = self.path.removeprefix("/jwt/v1/accounts/")
                outer.asked.append(account)
                token = outer.tokens.get(account, "")
                self.send_response(200 if token or not account else 404)
                self.end_headers()
                self.wfile.write(token.encode())

            def log_message(self, *_: object) -> None:
                return

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        scheme = "http"
        if context is not None:
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
            scheme = "https"
        self.url = f"{scheme}://localhost:{self.server.server_port}/jwt/v1/accounts/"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def hold(self, realm: Realm, names: str) -> None:
        for name in names:
            self.tokens[realm.account(name)] = realm.token(name)


@contextmanager
def serving(context: ssl.SSLContext | None = None) -> Iterator[TokenServer]:
    made = TokenServer(context)
    try:
        yield made
    finally:
        made.server.shutdown()
        made.server.server_close()


def bare(realm: Realm, resolver: str, extra: str = "") -> str:
    """A configuration without preloaded tokens."""
    text = realm.config(extra, resolver=resolver)
    before, rest = text.split("resolver_preload {")
    return before + rest.split("}\n", 1)[1]


def admitted(realm: Realm, port: int, name: str) -> bool:
    with Raw(port) as client:
        said = client.login(realm.user(name))
        assert said in ([], REFUSED), said
        return said == []


@pytest.mark.parametrize("name", SERVERS)
def test_a_url_is_asked_for_what_is_needed(name: str) -> None:
    realm = Realm(more="NX")
    with serving() as tokens:
        tokens.hold(realm, "ASN")
        with Server(recipe(name, bare(realm, f'URL("{tokens.url}")'))) as server:
            assert admitted(realm, server.port, "A")
            assert not admitted(realm, server.port, "X")
            asked = len(tokens.asked)
            assert admitted(realm, server.port, "A")
            assert len(tokens.asked) == asked
            assert admitted(realm, server.port, "N")
            tokens.hold(realm, "X")
            assert admitted(realm, server.port, "X")


@pytest.mark.parametrize("name", SERVERS)
def test_what_another_operator_signed_admits_nobody(name: str) -> None:
    realm, other = Realm(more="N"), Realm()
    with serving() as tokens:
        tokens.hold(realm, "AS")
        realm.signer = other.operator
        tokens.hold(realm, "N")
        with Server(recipe(name, bare(realm, f'URL("{tokens.url}")'))) as server:
            assert not admitted(realm, server.port, "N")
            assert admitted(realm, server.port, "A")


@pytest.mark.parametrize("name", SERVERS)
def test_a_url_without_an_answer_is_no_start(name: str) -> None:
    realm = Realm()
    url = f"http://127.0.0.1:{free_port()}/jwt/v1/accounts/"
    with pytest.raises(ServerFailed, match="could not fetch"):
        Server(recipe(name, bare(realm, f'URL("{url}")'))).start(5)


@pytest.mark.parametrize("name", SERVERS)
def test_the_url_is_asked_by_the_tls_that_is_configured(name: str, tmp_path: Path) -> None:
    files = certificate(tmp_path, "localhost")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.cert_file, files.key_file)
    realm = Realm()
    with serving(context) as tokens:
        tokens.hold(realm, "AS")
        resolver = f'URL("{tokens.url}")'
        trusted = f'resolver_tls {{ ca_file: "{files.cert_file}" }}'
        with Server(recipe(name, bare(realm, resolver, trusted))) as server:
            assert admitted(realm, server.port, "A")
        with pytest.raises(ServerFailed, match="could not fetch"):
            Server(recipe(name, bare(realm, resolver))).start(5)


@pytest.mark.parametrize("name", SERVERS)
def test_a_token_that_has_expired_is_asked_for_again(name: str) -> None:
    realm = Realm(more="N")
    with serving() as tokens:
        tokens.hold(realm, "AS")
        with Server(recipe(name, bare(realm, f'URL("{tokens.url}")'))) as server:
            realm.expires["N"] = int(time.time()) + 3
            tokens.hold(realm, "N")
            with Raw(server.port) as client:
                assert client.login(realm.user("N")) == []
                realm.expires["N"] = 0
                tokens.hold(realm, "N")
                assert client.rest()[-1].startswith("-ERR")
            until_seen(lambda: admitted(realm, server.port, "N"))


def cluster(realm: Realm, name: str, resolvers: tuple[str, str]) -> list[Recipe]:
    """Two nodes of one cluster; the first alone has tokens of its own."""
    ports = free_port(), free_port()
    extra = [
        f'cluster {{ name: c, listen: "127.0.0.1:{ports[number]}", pool_size: -1, '
        f'routes: ["nats-route://127.0.0.1:{ports[1 - number]}"] }}\nserver_name: n{number}\n'
        for number in (0, 1)
    ]
    first = recipe(name, realm.config(extra[0], resolver=resolvers[0]))
    return [first, recipe(name, bare(realm, resolvers[1], extra[1]))]


@pytest.mark.parametrize("name", SERVERS)
def test_a_cache_asks_the_other_servers(name: str, tmp_path: Path) -> None:
    realm = Realm()
    resolvers = (
        f"{{ type: full, dir: '{tmp_path / 'full'}' }}",
        f"{{ type: cache, dir: '{tmp_path / 'cache'}', limit: 2, timeout: '1s' }}",
    )
    first, second = cluster(realm, name, resolvers)
    with Server(first), Server(second) as server:
        until_seen(lambda: admitted(realm, server.port, "A"))
        assert admitted(realm, server.port, "B")
        kept = {path.name.removesuffix(".jwt") for path in (tmp_path / "cache").glob("*.jwt")}
        assert len(kept) == 2 and realm.account("B") in kept
        with Raw(server.port) as admin:
            assert admin.login(realm.user("S")) == []
            extra = KeyPair.create("A")
            realm.keys["N"] = extra
            realm.bodies["N"] = realm.bodies["B"]
            subject = f"$SYS.REQ.ACCOUNT.{extra.public_key}.CLAIMS.UPDATE"
            assert admin.request(subject, realm.token("N").encode())["data"]["code"] == 200


@pytest.mark.parametrize("name", SERVERS)
def test_a_cache_needs_nobody_for_what_it_holds(name: str, tmp_path: Path) -> None:
    realm = Realm()
    directory = tmp_path / "cache"
    directory.mkdir()
    for account in "AS":
        (directory / f"{realm.account(account)}.jwt").write_text(realm.token(account))
    resolver = f"{{ type: cache, dir: '{directory}', timeout: '300ms' }}"
    with Server(recipe(name, bare(realm, resolver))) as server:
        assert admitted(realm, server.port, "A")
        assert not admitted(realm, server.port, "B")


@pytest.mark.parametrize("name", SERVERS)
def test_a_full_directory_asks_for_what_it_lacks(name: str, tmp_path: Path) -> None:
    """It would have it with the next synchronisation only."""
    realm = Realm()
    resolvers = (
        f"{{ type: full, dir: '{tmp_path / 'a'}', interval: '1h' }}",
        f"{{ type: full, dir: '{tmp_path / 'b'}', interval: '1h' }}",
    )
    first, second = cluster(realm, name, resolvers)
    with Server(first), Server(second) as server:
        until_seen(lambda: admitted(realm, server.port, "A"))


def test_an_import_brings_the_account_that_it_is_from(tmp_path: Path) -> None:
    """What is imported is in force with the first login of the importer."""
    from headwater.security.claims import Export, Import

    realm = Realm()
    realm.bodies["B"].exports = [Export(name="svc", subject="svc", type="service")]
    realm.bodies["A"].imports = [
        Import(name="svc", subject="svc", account=realm.account("B"), type="service")
    ]
    realm.bodies["A"].limits = AccountLimits.unlimited()
    with serving() as tokens:
        tokens.hold(realm, "ABS")
        start = recipe("headwater", bare(realm, f'URL("{tokens.url}")'))
        with Server(start) as server, Raw(server.port) as asker, Raw(server.port) as service:
            assert asker.login(realm.user("A")) == []
            assert service.login(realm.user("B")) == []
            assert service.send("SUB svc 1\r\n") == []
            asker.send("PUB svc 2\r\nhi\r\n")
            assert service.file.readline().startswith(b"HMSG svc 1 ")


def test_a_stranger_s_token_in_the_directory_is_no_account(tmp_path: Path) -> None:
    """It is held, so nobody is asked for it; another node may name the account all the same."""
    realm, other = Realm(more="N"), Realm()
    mine = realm.signer
    realm.signer = other.operator
    folder = tmp_path / "jwt"
    folder.mkdir()
    (folder / f"{realm.account('N')}.jwt").write_text(realm.token("N"))
    realm.signer = mine
    config = realm.config(resolver=f"{{ type: full, dir: '{folder}', interval: '1h' }}")
    # Preloaded is what the operator signed alone.
    kept = [line for line in config.splitlines() if f"{realm.account('N')}:" not in line]
    with Server(recipe("headwater", "\n".join(kept))) as server, Raw(server.port) as client:
        assert client.login(realm.user("S")) == []
        client.send(f"PUB $SYS._HEADWATER.ACCOUNT.{realm.account('N')}.WANTED in 0\r\n\r\n")
        assert not admitted(realm, server.port, "N")
        assert admitted(realm, server.port, "A")
        assert "RecursionError" not in server.log_path.read_text()
