"""A new configuration takes effect in a running node, or is refused whole."""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import nats
import pytest
from nats.aio.client import Client

from headwater.edge.conf.options import AccountOptions, Options
from headwater.edge.conf.problems import ConfigError
from headwater.edge.node.node import Node
from headwater.edge.node.reload import reload_node
from headwater.security.auth_options import (
    AuthOptions,
    PermissionOptions,
    SubjectRules,
    UserOptions,
)


def user(name: str, password: str = "pw", **fields: Any) -> UserOptions:
    return UserOptions(user=name, password=password, **fields)


def options(*users: UserOptions, **fields: Any) -> Options:
    return Options(host="127.0.0.1", port=-1, auth=AuthOptions(users=list(users)), **fields)


@pytest.fixture
async def node() -> AsyncIterator[Node]:
    found = Node(options(user("a"), user("b")), asyncio.get_running_loop())
    found.start()
    yield found
    await found.stop()


class Visitor:
    """A client that notes what happens to it."""

    def __init__(self) -> None:
        self.closed = asyncio.Event()
        self.errors: list[str] = []
        self.client = Client()

    async def connect(self, node: Node, name: str) -> "Visitor":
        url = node.ports()["nats"][0].replace("://", f"://{name}:pw@")
        await self.client.connect(
            url, allow_reconnect=False, closed_cb=self._on_close, error_cb=self._on_error
        )
        return self

    async def _on_close(self) -> None:
        self.closed.set()

    async def _on_error(self, error: Exception) -> None:
        self.errors.append(str(error))


async def test_removed_users_leave_and_others_stay(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = await Visitor().connect(node, "a"), await Visitor().connect(node, "b")
    with caplog.at_level(logging.INFO, "headwater"):
        reload_node(node, options(user("b"), user("c")))
    await asyncio.wait_for(first.closed.wait(), 2)
    await second.client.flush()
    assert not second.closed.is_set()
    third = await Visitor().connect(node, "c")
    await third.client.close()
    await second.client.close()
    assert "Reloaded server configuration" in caplog.text
    assert "Reloaded: authorization" in caplog.text


async def test_a_changed_password_ends_sessions(node: Node) -> None:
    visitor = await Visitor().connect(node, "a")
    reload_node(node, options(user("a", "other"), user("b")))
    await asyncio.wait_for(visitor.closed.wait(), 2)


async def test_shrunk_permissions_take_subscriptions_away(node: Node) -> None:
    visitor = await Visitor().connect(node, "a")
    kept = await visitor.client.subscribe("kept")
    await visitor.client.subscribe("lost")
    await visitor.client.flush()
    rules = PermissionOptions(subscribe=SubjectRules(deny=["lost"]))
    reload_node(node, options(user("a", permissions=rules), user("b")))
    await visitor.client.publish("kept", b"still here")
    assert (await kept.next_msg(2)).data == b"still here"
    (conn,) = node.sessions.conns.values()
    assert [sub.subject for sub in conn.subs.values()] == [b"kept"]
    assert 'subscription to "lost" (sid "2")' in visitor.errors[0]
    await visitor.client.close()


async def test_new_accounts_and_limits(node: Node) -> None:
    account = AccountOptions(name="N", users=[user("n", account="N")], max_connections=1)
    reload_node(node, options(user("a"), accounts={"N": account}, max_payload=2048))
    visitor = await Visitor().connect(node, "n")
    assert visitor.client.max_payload == 2048
    with pytest.raises(nats.errors.Error):
        await Visitor().connect(node, "n")
    await visitor.client.close()


async def test_authorization_can_be_switched_on(node: Node) -> None:
    reload_node(node, options())
    visitor = Visitor()
    await visitor.client.connect(
        node.ports()["nats"][0], allow_reconnect=False, closed_cb=visitor._on_close,
        error_cb=visitor._on_error,
    )
    reload_node(node, options(user("a")))
    await asyncio.wait_for(visitor.closed.wait(), 2)


async def test_too_many_connections_are_cut(node: Node) -> None:
    first, second = await Visitor().connect(node, "a"), await Visitor().connect(node, "a")
    reload_node(node, options(user("a"), user("b"), max_connections=1))
    await asyncio.wait_for(second.closed.wait(), 2)
    assert not first.closed.is_set()
    await first.client.close()


async def test_what_cannot_change_is_refused_whole(node: Node) -> None:
    with pytest.raises(ConfigError) as caught:
        reload_node(node, options(user("z"), server_name="other", http_port=1))
    assert len(caught.value.problems) == 2
    visitor = await Visitor().connect(node, "a")
    await visitor.client.close()


async def test_lame_duck_ends_early_when_the_node_is_stopped() -> None:
    node = Node(options(user("a"), lame_duck_grace=60.0), asyncio.get_running_loop())
    node.start()
    visitor = await Visitor().connect(node, "a")
    leaving = asyncio.create_task(node.lame_duck())
    await asyncio.sleep(0)
    await node.stop()
    await asyncio.wait_for(leaving, 2)
    await asyncio.wait_for(visitor.closed.wait(), 2)


async def test_lame_duck_tells_clients_first() -> None:
    settings = {"lame_duck_grace": 0.05, "lame_duck_duration": 0.1}
    node = Node(options(user("a"), **settings), asyncio.get_running_loop())
    node.start()
    visitor = await Visitor().connect(node, "a")
    await visitor.client.flush()
    reader, writer = await asyncio.open_connection("127.0.0.1", node.facts.port)
    await reader.readline()
    writer.write(b'CONNECT {"user":"a","pass":"pw","protocol":1,"verbose":false}\r\nPING\r\n')
    assert await reader.readline() == b"PONG\r\n"
    leaving = asyncio.create_task(node.lame_duck())
    lines = (await asyncio.wait_for(reader.read(), 5)).split(b"\r\n")
    assert any(b'"ldm":true' in line for line in lines)
    await asyncio.wait_for(leaving, 5)
    await asyncio.wait_for(visitor.closed.wait(), 2)
    writer.close()
