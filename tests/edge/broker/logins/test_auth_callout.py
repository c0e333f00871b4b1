"""Auth callout, by the configuration and by an account's token, on both servers."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from bench.servers import Server, free_port
from headwater.security import creds, jwt
from headwater.security.auth_options import CALLOUT_SUBJECT
from headwater.security.callout import XKEY_HEADER, question_of, response
from headwater.security.claims import (
    ExternalAuthorization,
    GenericClaims,
    SubjectPermission,
    UserBody,
    UserClaims,
)
from headwater.security.nkeys import KeyPair
from tests.operator_realm import SERVERS, Raw, Realm, User, recipe

REFUSED = ["-ERR 'Authorization Violation'"]
CONFIG = """
authorization {{
  timeout: 1
  auth_callout {{ issuer: {issuer}, account: AUTH, auth_users: [auth], xkey: {xkey} }}
}}
accounts {{
  AUTH {{ users: [{{user: auth, password: auth}}] }}
  APP {{ users: [{{user: local, password: local}}] }}
  SYS {{}}
}}
system_account: SYS
leafnodes {{ listen: '127.0.0.1:{leaf}' }}
"""


class Service:
    """A callout service: who says the right password comes in."""

    def __init__(self, issuer: KeyPair, curve: KeyPair | None = None) -> None:
        self.issuer = issuer
        self.curve = curve
        self.questions: list[GenericClaims] = []
        self.server = ""
        """The public key of the server that asked last, of an encrypted question."""
        self.token: dict[str, Any] = {}
        """Fields of the tokens that are made."""
        self.signer = issuer
        """Signs the tokens."""
        self.answerer = issuer
        """Signs the answers."""
        self.twist: dict[str, Any] = {}
        """Fields of the question that the answer is made for, instead of the real ones."""

    async def answer(self, message: Msg) -> None:
        payload = message.data
        if self.curve is not None:
            assert message.headers is not None
            self.server = message.headers[XKEY_HEADER]
            payload = self.curve.open(payload, self.server)
        question = question_of(payload)
        self.questions.append(question)
        question.nats.update(self.twist)
        answer = self.decide(question)
        if self.curve is not None:
            answer = self.curve.seal(answer, self.server)
        await message.respond(answer)

    def decide(self, question: GenericClaims) -> bytes:
        told = question.nats["connect_opts"]
        if told.get("pass") != "right":
            return response(question, self.answerer, error="no")
        body = UserBody.unlimited()
        body.pub = SubjectPermission(allow=["only.this", "_INBOX.>"])
        fields = dict(self.token)
        if "issuer_account" in fields:
            body.issuer_account = fields.pop("issuer_account")
        claims = UserClaims(sub=question.nats["user_nkey"], name="somebody", nats=body, **fields)
        return response(question, self.answerer, token=jwt.encode(claims, self.signer))


@asynccontextmanager
async def serving(service: Service, port: int, **login: Any) -> AsyncIterator[Client]:
    client = await nats.connect(f"nats://127.0.0.1:{port}", allow_reconnect=False, **login)
    await client.subscribe(CALLOUT_SUBJECT, cb=service.answer)
    await client.flush()
    try:
        yield client
    finally:
        await client.close()


async def login(port: int, user: User | None = None, /, **fields: Any) -> list[str]:
    """What a login is answered, with permissions tried when it is admitted."""

    def talk() -> list[str]:
        with Raw(port) as client:
            answer = client.login(user, **fields)
            return answer or client.send("PUB only.this 0\r\n\r\nPUB other 0\r\n\r\n")

    return await asyncio.to_thread(talk)


async def shown_key(port: int) -> str:
    """The public key that a server's INFO names."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    info: dict[str, Any] = json.loads((await reader.readline())[5:])
    writer.close()
    return str(info["xkey"])


ADMITTED = ["-ERR 'Permissions Violation for Publish to \"other\"'"]


@pytest.mark.parametrize("encrypted", [False, True])
@pytest.mark.parametrize("name", SERVERS)
async def test_by_configuration(name: str, encrypted: bool) -> None:
    issuer, curve = KeyPair.create("A"), KeyPair.create("X") if encrypted else None
    ports = {"leaf": free_port()}
    config = CONFIG.format(
        issuer=issuer.public_key, xkey=curve.public_key if curve else '""', **ports
    )
    if curve is None:
        config = config.replace(', xkey: ""', "")
    service = Service(issuer, curve)
    service.token = {"aud": "APP"}
    with Server(recipe(name, config)) as server:
        right = {"user": "u", "pass": "right"}
        assert await login(server.port, **right) == REFUSED
        async with serving(service, server.port, user="auth", password="auth"):
            assert await login(server.port, **right) == ADMITTED
            assert await login(server.port, user="u", **{"pass": "wrong"}) == REFUSED
            assert await login(server.port, user="local", **{"pass": "local"}) == REFUSED
            told = service.questions[0]
            assert not encrypted or service.server == await shown_key(server.port)
            assert told.nats["connect_opts"]["user"] == "u"
            assert told.nats["client_info"]["kind"] == "Client"
            assert told.nats["client_info"]["type"] == "nats"
            assert told.iss == told.nats["server_id"]["id"]
            assert told.sub == issuer.public_key
            assert told.exp - told.iat in (1, 2)
            service.answerer = KeyPair.create("A")
            assert await login(server.port, **right) == (ADMITTED if encrypted else REFUSED)
            service.answerer = issuer
            service.token = {"aud": "NOWHERE"}
            assert await login(server.port, **right) == REFUSED
            service.token = {}
            assert await login(server.port, **right) == REFUSED
            service.token = {"aud": "APP", "exp": 1}
            assert await login(server.port, **right) == REFUSED
            service.token = {"aud": "APP"}
            service.signer = KeyPair.create("A")
            assert await login(server.port, **right) == REFUSED
            service.signer = issuer
            service.twist = {"user_nkey": KeyPair.create("U").public_key}
            assert await login(server.port, **right) == REFUSED
            service.twist = {"server_id": {"id": KeyPair.create("N").public_key}}
            assert await login(server.port, **right) == REFUSED


@pytest.mark.parametrize("name", SERVERS)
async def test_websocket_clients_are_asked_about(name: str) -> None:
    """Over an encrypted conversation, as on every listener."""
    issuer, curve = KeyPair.create("A"), KeyPair.create("X")
    port = free_port()
    config = CONFIG.format(issuer=issuer.public_key, xkey=curve.public_key, leaf=free_port())
    config += f'websocket {{ listen: "127.0.0.1:{port}", no_tls: true }}\n'
    service = Service(issuer, curve)
    service.token = {"aud": "APP"}
    with Server(recipe(name, config)) as server:
        async with serving(service, server.port, user="auth", password="auth"):
            options: dict[str, Any] = {"allow_reconnect": False, "connect_timeout": 5}
            client = await nats.connect(
                f"ws://127.0.0.1:{port}", user="u", password="right", **options
            )
            assert service.questions[0].nats["client_info"]["type"] == "websocket"
            await client.close()
            with pytest.raises(nats.errors.Error):
                await nats.connect(f"ws://127.0.0.1:{port}", user="u", password="wrong", **options)
            assert len(service.questions) == 2


@pytest.mark.parametrize("name", SERVERS)
async def test_leafs_are_asked_about(name: str) -> None:
    issuer, curve = KeyPair.create("A"), KeyPair.create("X")
    leaf = free_port()
    config = CONFIG.format(issuer=issuer.public_key, xkey=curve.public_key, leaf=leaf)
    service = Service(issuer, curve)
    service.token = {"aud": "APP"}

    def link(password: str) -> list[str]:
        with Raw(leaf) as peer:
            return peer.login(user="local", name="s", version="2.11.0", **{"pass": password})

    with Server(recipe(name, config)) as server:
        async with serving(service, server.port, user="auth", password="auth"):
            assert REFUSED[0] in await asyncio.to_thread(link, "local")
            lines = await asyncio.to_thread(link, "right")
            assert not any("-ERR" in line for line in lines)
            assert service.questions[0].nats["client_info"]["kind"] == "Leafnode"


@pytest.mark.parametrize("name", SERVERS)
async def test_by_an_accounts_token(name: str, tmp_path: Path) -> None:
    """A sentinel lets anybody ask; who it is, and in which account, is for the service."""
    realm = Realm()
    auth, sentinel = realm.user("A"), realm.user("A", bearer_token=True)
    realm.bodies["A"].authorization = ExternalAuthorization(
        auth_users=[auth.pair.public_key], allowed_accounts=[realm.account("B")]
    )
    service = Service(realm.keys["A"])
    path = tmp_path / "auth.creds"
    creds.write(path, auth.token, auth.pair.seed)
    config = realm.config(f"default_sentinel: {sentinel.token}\nauthorization {{ timeout: 1 }}")
    with Server(recipe(name, config)) as server:
        right = {"user": "u", "pass": "right"}
        assert await login(server.port) == REFUSED
        async with serving(service, server.port, user_credentials=str(path)) as client:
            service.signer = realm.keys["B"]
            assert await login(server.port, **right) == ADMITTED
            asked = service.questions[-1].nats
            assert asked["connect_opts"]["jwt"] == sentinel.token
            assert (asked["client_info"]["user"], asked["client_info"]["name_tag"]) == ("u", "u")
            assert await login(server.port) == REFUSED
            who = service.questions[-1].nats["client_info"]["user"]
            assert who == sentinel.pair.public_key
            assert await login(server.port, jwt=sentinel.token, **right) == ADMITTED
            with Raw(server.port) as raw:
                assert await asyncio.to_thread(raw.login, jwt=sentinel.token, **right) == []
                wanted = b'{"auth":true}'
                answer = await client.request("$SYS.REQ.SERVER.PING.CONNZ", wanted, timeout=5)
                assert b'"cid"' in answer.data
                assert sentinel.token.encode() not in answer.data
            plain = realm.user("A")
            assert await login(server.port, plain) == REFUSED
            assert service.questions[-1].nats["connect_opts"]["jwt"] == plain.token
            service.signer = realm.keys["S"]
            assert await login(server.port, **right) == REFUSED
            service.signer = realm.keys["A"]
            assert await login(server.port, **right) == ADMITTED
            errors: asyncio.Queue[Exception] = asyncio.Queue()
            client._error_cb = errors.put
            await client.publish(CALLOUT_SUBJECT, b"")
            error = await asyncio.wait_for(errors.get(), 5)
            assert CALLOUT_SUBJECT.lower() in str(error).lower()
