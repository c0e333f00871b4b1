"""Logins with nats-py: what is right comes in, what is wrong does not, on both servers."""

import socket
from collections.abc import Iterator
from pathlib import Path

import nats
import nkeys
import pytest
from nats.aio.client import Client

from bench.servers import Recipe, Server, program
from tests.waiting import until

SEED = b"SUAMLK2ZNL35WSMW37E7UD4VZ7ELPKW7DHC3BWBSD2GCZ7IUQQXZIORRBU"
PUBLIC = nkeys.from_seed(bytearray(SEED)).public_key.decode()
BCRYPT = "$2a$11$3kIDaCxw.Glsl1.u5nKa6eUnNDLV5HV9tIuUp7EHhMt6Nm9myW1aS"

CONFIG = f"""
authorization {{
  timeout: 1
  users: [
    {{ user: alice, password: wonderland }}
    {{ user: carl, password: "{BCRYPT}" }}
    {{ nkey: {PUBLIC} }}
    {{ user: bob, password: builder, permissions: {{
        publish: {{ allow: ["work.>", "_INBOX.>"], deny: "work.secret" }}
        subscribe: {{ allow: ["work.>", "_INBOX.>"], deny: "work.secret" }} }} }}
    {{ user: service, password: s, permissions: {{
        publish: {{ deny: ">" }}, subscribe: "ask", allow_responses: true }} }}
  ]
}}
"""


@pytest.fixture(scope="module", params=["headwater", "nats-server"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    command = (
        (program("headwater"), "serve")
        if request.param == "headwater"
        else (program("nats-server"),)
    )
    with Server(Recipe(request.param, command, CONFIG)) as server:
        yield f"nats://127.0.0.1:{server.port}"


async def connect(url: str, errors: list[str] | None = None, **how: object) -> Client:
    async def note(error: Exception) -> None:
        if errors is not None:
            errors.append(str(error))

    return await nats.connect(url, allow_reconnect=False, connect_timeout=3, error_cb=note, **how)


async def round_trip(client: Client) -> None:
    inbox = client.new_inbox()
    got = await client.subscribe(inbox)
    await client.publish(inbox, b"hello")
    assert (await got.next_msg(timeout=2)).data == b"hello"
    await client.close()


async def test_name_and_password(url: str) -> None:
    await round_trip(await connect(url, user="alice", password="wonderland"))


async def test_an_nkey(url: str, tmp_path: Path) -> None:
    seed = tmp_path / "user.nk"
    seed.write_bytes(SEED)
    await round_trip(await connect(url, nkeys_seed=str(seed)))


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"user": "alice", "password": "wrong"},
        {"user": "nobody", "password": "x"},
        {"token": "alice"},
        {"user": "carl", "password": "wrong"},
    ],
)
async def test_wrong_credentials(url: str, how: dict[str, str]) -> None:
    with pytest.raises(Exception, match=r"(?i)authorization violation"):
        await connect(url, **how)


async def test_permissions(url: str) -> None:
    errors: list[str] = []
    client = await connect(url, errors, user="bob", password="builder")
    got = await client.subscribe("work.*")
    await client.publish("work.plan", b"1")
    await client.publish("work.secret", b"2")
    await client.publish("elsewhere", b"3")
    await client.subscribe("elsewhere")
    await client.flush()
    assert (await got.next_msg(timeout=2)).data == b"1"
    alice = await connect(url, user="alice", password="wonderland")
    await alice.publish("work.secret", b"4")
    await alice.publish("work.done", b"5")
    assert (await got.next_msg(timeout=2)).data == b"5"
    await until(lambda: len(errors) >= 3, "three refusals")
    text = " ".join(errors).lower()
    assert 'publish to "work.secret"' in text
    assert 'publish to "elsewhere"' in text
    assert 'subscription to "elsewhere"' in text
    await client.close()
    await alice.close()


async def test_a_service_may_answer_once(url: str) -> None:
    service = await connect(url, user="service", password="s")
    requests = await service.subscribe("ask")
    await service.flush()
    alice = await connect(url, user="alice", password="wonderland")
    inbox = await alice.subscribe("answers")
    await alice.publish("ask", b"?", reply="answers")
    request = await requests.next_msg(timeout=2)
    await request.respond(b"first")
    await request.respond(b"second")
    await service.publish("answers.other", b"third")
    await service.flush()
    assert (await inbox.next_msg(timeout=2)).data == b"first"
    await alice.publish("answers", b"end")
    assert (await inbox.next_msg(timeout=2)).data == b"end"
    await service.close()
    await alice.close()


@pytest.mark.parametrize("program_name", ["headwater", "nats-server"])
@pytest.mark.parametrize(
    ("fields", "admitted"),
    [("", True), ('"nkey":"UXX","sig":"AA"', True), ('"auth_token":"x"', False)],
)
def test_who_is_nobody_comes_in_as_the_one_without_a_login(
    program_name: str, fields: str, admitted: bool
) -> None:
    """An nkey says nothing where none is configured: clients present theirs everywhere."""
    command = (program(program_name), *(["serve"] if program_name == "headwater" else []))
    config = "authorization { users: [ {user: a, password: a} ] }\nno_auth_user: a\n"
    heard = b""
    with (
        Server(Recipe(program_name, command, config)) as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=20) as sock,
    ):
        sock.sendall(b"CONNECT {%s}\r\nPING\r\n" % fields.encode())
        while b"PONG" not in heard and (part := sock.recv(65536)):
            heard += part
    assert (b"PONG" in heard) is admitted
    assert (b"Authorization Violation" in heard) is not admitted
