"""The small client against both servers: logins, TLS, requests, limits, and its errors."""

import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bench.servers import Recipe, Server, free_port, program
from headwater.edge.wire.client import (
    ApiError,
    Client,
    ConnectError,
    NoResponders,
    Refused,
    TimedOut,
    WireError,
    parse_servers,
)
from headwater.edge.wire.login import Login
from headwater.security import creds
from headwater.security.errors import SecurityError
from headwater.security.nkeys import KeyPair
from tests.certificates import certificate
from tests.operator_realm import Realm, recipe

PAIR = KeyPair.create("U")
CONFIG = f"""
max_payload: 2000
jetstream {{ store_dir: "{{dir}}" }}
authorization {{
  users: [
    {{ user: alice, password: "wonder land" }}
    {{ nkey: {PAIR.public_key} }}
    {{ user: bob, password: b, permissions: {{ publish: {{ deny: "secret" }} }} }}
  ]
}}
"""
NAMES = ("headwater", "nats-server")
ALICE = Login(user="alice", password="wonder land")


def command(name: str) -> tuple[str, ...]:
    return (program("headwater"), "serve") if name == "headwater" else (program("nats-server"),)


@pytest.fixture(scope="module", params=NAMES)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with Server(Recipe(request.param, command(request.param), CONFIG)) as server:
        yield server


@pytest.fixture
def url(server: Server) -> str:
    return f"nats://127.0.0.1:{server.port}"


def echo(client: Client) -> None:
    """Send something to itself and take it."""
    inbox = client.new_inbox()
    client.publish(inbox, b"hello", headers={"A": "1"})
    message = client.next()
    assert (message.subject, message.payload, message.headers) == (inbox, b"hello", {"A": "1"})


@pytest.mark.parametrize(
    ("user", "login"),
    [
        ("", ALICE),
        ("alice:wonder%20land@", Login()),
        ("bob:wrong@", ALICE),
        ("", Login(seed=PAIR.seed)),
    ],
)
def test_logins(url: str, user: str, login: Login) -> None:
    with Client(url.replace("//", f"//{user}"), login) as client:
        echo(client)


@pytest.mark.parametrize(
    "login",
    [Login(), Login(user="alice"), Login(token="alice"), Login(seed=KeyPair.create("U").seed)],
)
def test_who_is_not_let_in_is_told_so(url: str, login: Login) -> None:
    with pytest.raises(Refused, match=r"(?i)authorization violation"):
        Client(url, login)


@pytest.mark.parametrize("name", NAMES)
def test_creds_a_token_and_a_jwt(name: str, tmp_path: Path) -> None:
    realm = Realm()
    user = realm.user()
    path = tmp_path / "user.creds"
    creds.write(path, user.token, user.pair.seed)
    with Server(recipe(name, realm.config())) as server:
        for login in (Login(creds=str(path)), Login(jwt=user.token, seed=user.pair.seed)):
            with Client(f"127.0.0.1:{server.port}", login) as client:
                echo(client)
        with pytest.raises(SecurityError, match="cannot read creds"):
            Client(f"127.0.0.1:{server.port}", Login(creds=str(tmp_path / "none")))
    with Server(Recipe(name, command(name), "authorization { token: s3cret }\n")) as server:
        for url, login in (("", Login(token="s3cret")), ("s3cret@", Login())):
            with Client(f"nats://{url}127.0.0.1:{server.port}", login) as client:
                echo(client)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("first", [False, True])
def test_tls(name: str, first: bool, tmp_path: Path) -> None:
    files = certificate(tmp_path)
    extra = "handshake_first: auto" if first else ""
    config = f"""tls {{
        cert_file: "{files.cert_file}"
        key_file: "{files.key_file}"
        {extra}
    }}"""
    other = tmp_path / "other"
    other.mkdir()
    with Server(Recipe(name, command(name), config)) as server:
        url = f"nats://127.0.0.1:{server.port}"
        with Client(url, Login(tls_ca=files.cert_file, tls_first=first)) as client:
            assert client.socket.version().startswith("TLS")
            echo(client)
            client.publish("large", bytes(900_000))
            client.flush()
        stranger = Login(tls_ca=certificate(other).cert_file, tls_first=first)
        with pytest.raises(ConnectError, match="certificate verify failed"):
            Client(url, stranger)


def test_tls_that_the_server_does_not_speak_ends(url: str) -> None:
    with pytest.raises(ConnectError, match="cannot connect"):
        Client(url.replace("nats:", "tls:"), ALICE, timeout=2)


def test_requests(url: str) -> None:
    with Client(url, ALICE) as client, Client(url, ALICE) as service:
        service.subscribe("ask", "s")
        done = threading.Event()

        def serve() -> None:
            for message in service.messages():
                service.publish(message.reply, message.payload.upper())
                if message.payload == b"end":
                    break
            done.set()

        threading.Thread(target=serve).start()
        assert client.request("ask", b"one").payload == b"ONE"
        many = dict(client.requests([("ask", b"x%d" % n) for n in range(50)]))
        assert [many[n].payload for n in range(50)] == [b"X%d" % n for n in range(50)]
        assert client.request("ask", b"end").payload == b"END"
        assert done.wait(5)
        with pytest.raises(NoResponders, match="nobody answers on nobody"):
            client.request("nobody")
        assert [told.status for _, told in client.requests([("nobody", b"")])] == [503]


def test_what_is_not_answered_ends_in_time(url: str) -> None:
    with Client(url, ALICE, timeout=0.05) as client, Client(url, ALICE) as silent:
        silent.subscribe("ask")
        with pytest.raises(TimedOut):
            client.request("ask")
        with pytest.raises(TimedOut):
            client.next(0)
        client.timeout = 5
        echo(client)


def test_the_api_of_jetstream(url: str) -> None:
    with Client(url, ALICE) as client:
        client.api("STREAM.CREATE.S", name="S", subjects=["s"], storage="memory")
        assert client.api("STREAM.INFO.S")["config"]["name"] == "S"
        with pytest.raises(ApiError, match="stream not found") as told:
            client.api("STREAM.INFO.NONE")
        assert (told.value.code, told.value.err_code) == (404, 10059)
        for n in range(3):
            client.request("s", b"%d" % n)
        ask = b'{"batch": 3, "no_wait": true}'
        config = {"name": "C", "ack_policy": "none"}
        client.api("CONSUMER.CREATE.S.C", stream_name="S", config=config, action="")
        got = client.answers("$JS.API.CONSUMER.MSG.NEXT.S.C", ask)
        assert [next(got).payload for _ in range(3)] == [b"0", b"1", b"2"]
        client.api("STREAM.DELETE.S")


def test_who_pulls_behind_the_answer_gets_messages(url: str) -> None:
    """Also when the request comes in the very turn in which the answer went out."""
    with Client(url, ALICE) as client:
        client.api("STREAM.CREATE.T", name="T", subjects=["t"], storage="memory")
        client.request("t", b"one")
        for n in range(40):
            config = {"name": f"C{n}", "ack_policy": "none"}
            client.api(f"CONSUMER.CREATE.T.C{n}", stream_name="T", config=config, action="")
            got = client.answers(f"$JS.API.CONSUMER.MSG.NEXT.T.C{n}", b'{"batch":1,"no_wait":true}')
            assert next(got).payload == b"one"
        client.api("STREAM.DELETE.T")


def test_what_may_not_be_said(url: str) -> None:
    with Client(url, ALICE) as client:
        with pytest.raises(WireError, match="more than the server takes"):
            client.publish("a", bytes(2001))
        for subject in ("", "a b", "a\r\nPUB b 0\r\n"):
            with pytest.raises(WireError, match="no place"):
                client.publish(subject)
        echo(client)
    with Client(url, Login(user="bob", password="b")) as client:
        client.publish("secret")
        with pytest.raises(Refused, match=r"(?i)permissions violation"):
            client.flush()


def test_the_first_server_that_answers_is_taken(url: str) -> None:
    with Client(f"nats://127.0.0.1:{free_port()}, {url}", ALICE) as client:
        echo(client)
    with pytest.raises(ConnectError, match=r"127\.0\.0\.1:\d+: .*refused; .*refused"):
        Client([f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"])


def test_a_socket_that_is_taken_over_has_what_was_read(url: str) -> None:
    client = Client(url, ALICE)
    inbox = client.new_inbox()
    client.send(f"PUB {inbox} 1\r\na\r\nPUB {inbox} 1\r\nb\r\nPING\r\n".encode())
    assert client.next().payload == b"a"
    taken, rest = client.release_socket()
    with taken:
        while not rest.endswith(b"PONG\r\n"):
            rest += taken.recv(4096)
    assert rest == f"MSG {inbox} 0 1\r\nb\r\nPONG\r\n".encode()


def pretend(say: Callable[[socket.socket], None]) -> tuple[int, threading.Thread]:
    """A server that says something to its first client."""
    listener = socket.create_server(("127.0.0.1", 0))

    def run() -> None:
        with listener, listener.accept()[0] as peer:
            say(peer)

    thread = threading.Thread(target=run)
    thread.start()
    return listener.getsockname()[1], thread


@pytest.mark.parametrize(
    ("said", "match"),
    [
        (b"", "closed the connection"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "closed the connection"),
        (b"INFO {\r\n", "not JSON"),
        (b"INFO []\r\n", "no object"),
        (b'INFO {"tls_required":true}\r\nMSG a 1 1\r\nx\r\n', "in clear text"),
        (b"INFO {}\r\n-ERR 'Stale Connection'\r\n", "Stale Connection|closed"),
    ],
)
def test_a_server_that_is_none(said: bytes, match: str) -> None:
    port, thread = pretend(lambda peer: peer.sendall(said))
    with pytest.raises(ConnectError, match=match):
        Client(f"127.0.0.1:{port}", timeout=5)
    thread.join()


def test_urls() -> None:
    assert parse_servers("a, tls://u:p%40w@b:1,[::1]:7") == [
        ("a", 4222, False, "", ""), ("b", 1, True, "u", "p@w"), ("::1", 7, False, "", ""),
    ]  # fmt: skip
    for wrong in ("", " ,", "ws://a", "nats://", "a:99999"):
        with pytest.raises(WireError):
            parse_servers(wrong)


def test_secrets_are_in_no_text() -> None:
    login = Login(user="u", password="s3cret", seed="s3cret", token="s3cret", jwt="s3cret")
    assert "s3cret" not in repr(login) and "s3cret" not in str(login)
    with pytest.raises(WireError) as told:
        parse_servers("nats://u:s3cret@:1")
    assert "s3cret" not in str(told.value)


def test_it_imports_the_standard_library_and_the_lowest_rooms_only() -> None:
    code = "import sys; import headwater.edge.wire.client; print(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    allowed = set(sys.stdlib_module_names) | {"headwater", "__main__", "_virtualenv"}
    own = [name for name in done.stdout.split() if name.startswith("headwater.")]
    assert not {name for name in loaded - allowed if not name.startswith(("_", "sitecustomize"))}
    rooms = ("headwater.edge.facts", "headwater.edge.wire", "headwater.security")
    assert all(name == "headwater.edge" or name.startswith(rooms) for name in own)
