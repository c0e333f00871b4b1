"""Accounts whose tokens a URL has, in a cluster: all nodes know whom one of them lets in."""

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client

from headwater.edge.system import account_lookups
from headwater.security.claims import AccountLimits
from tests.edge.system.test_account_lookups import TokenServer, bare, serving
from tests.hub.api.beside import ours
from tests.hub.lab import api
from tests.operator_realm import Realm
from tests.waiting import connected, until

ACCOUNTS = "CDE"


class OnlyOnce(dict[str, str]):
    """Tokens of which each is there for the first who asks."""

    def get(self, key: str, default: Any = "") -> Any:
        return self.pop(key, default)


@pytest.fixture
def realm() -> Realm:
    """Accounts that may store what they like."""
    made = Realm(more=ACCOUNTS)
    for name in ACCOUNTS:
        made.bodies[name].limits = AccountLimits.unlimited()
        limits = made.bodies[name].limits
        limits.disk_storage = limits.mem_storage = limits.streams = limits.consumer = -1
    return made


@pytest.fixture
def tokens() -> Iterator[TokenServer]:
    """What the URL has."""
    with serving() as made:
        yield made


@contextlib.asynccontextmanager
async def nodes(path: Path, realm: Realm, tokens: TokenServer) -> AsyncIterator[list[str]]:
    """A cluster; the URLs of its nodes."""
    urls: list[str] = []

    def configure(own: str) -> str:
        address = own.split('listen: "', 1)[1].split('"', 1)[0]
        urls.append(f"nats://{address}")
        return own + bare(realm, f'URL("{tokens.url}")')

    async with ours(path, configure=configure):
        yield urls


async def login(realm: Realm, name: str, url: str, patience: float = 2) -> Client:
    """A user of an account that no node has heard of."""
    user = realm.user(name)
    return await connected(
        url,
        connect_timeout=patience,
        user_jwt_cb=user.token.encode,
        signature_cb=lambda nonce: base64.b64encode(user.pair.sign(nonce.encode())),
    )


async def test_a_first_request_is_heard_by_whoever_leads(
    tmp_path: Path, realm: Realm, tokens: TokenServer
) -> None:
    """Clients of the leader's node were answered, and nobody else, until each node had a login."""
    tokens.hold(realm, "ABS" + ACCOUNTS)
    async with nodes(tmp_path / "nodes", realm, tokens) as urls:
        for name, url in zip(ACCOUNTS, urls, strict=True):
            async with await login(realm, name, url) as client:
                made = await api(client, "STREAM.CREATE.S", name="S", num_replicas=3)
                assert made["config"]["num_replicas"] == 3


async def test_who_reads_what_the_system_says_holds_up_no_login(
    tmp_path: Path, realm: Realm, tokens: TokenServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A login waits for the answers of nodes. A reader was counted as one that never answered."""
    monkeypatch.setattr(account_lookups, "PEERS_S", 60.0)
    tokens.hold(realm, "ABS" + ACCOUNTS)
    async with (
        nodes(tmp_path / "nodes", realm, tokens) as urls,
        await login(realm, "S", urls[0]) as reader,
    ):
        await reader.subscribe("$SYS.>")
        await reader.flush()
        async with asyncio.timeout(20):
            client = await login(realm, "C", urls[0], patience=30)
        await client.close()


async def test_a_token_that_was_not_had_is_asked_for_again(
    tmp_path: Path, realm: Realm, tokens: TokenServer
) -> None:
    tokens.hold(realm, "ABS")
    async with nodes(tmp_path / "nodes", realm, tokens) as urls:
        for name, url in zip(ACCOUNTS, urls, strict=True):
            tokens.tokens = OnlyOnce()
            tokens.hold(realm, name)
            async with await login(realm, name, url) as client:
                tokens.tokens = {}
                tokens.hold(realm, "ABS" + ACCOUNTS)

                async def answered(client: Client = client) -> bool:
                    with contextlib.suppress(TimeoutError):
                        return "config" in await api(client, "STREAM.CREATE.S", 1, name="S")
                    return False

                await until(answered, "the other nodes have the token")
