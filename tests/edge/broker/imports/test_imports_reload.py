"""Imports and mappings that come and go with a new configuration of a running node."""

import asyncio
from collections.abc import AsyncIterator

import nats
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import NoRespondersError

from headwater.edge.conf.options import (
    AccountOptions,
    ExportOptions,
    ImportOptions,
    MappingDestination,
    MappingOptions,
    Options,
)
from headwater.edge.node.node import Node
from headwater.edge.node.reload import reload_node
from headwater.security.auth_options import UserOptions


def options(*, shared: bool) -> Options:
    accounts = {
        name: AccountOptions(name=name, users=[UserOptions(user=name, password="pw", account=name)])
        for name in "AB"
    }
    if shared:
        accounts["B"].exports = [
            ExportOptions(kind="service", subject="ask"),
            ExportOptions(kind="stream", subject="news"),
        ]
        accounts["A"].imports = [
            ImportOptions(kind="service", account="B", subject="ask", to="ask"),
            ImportOptions(kind="stream", account="B", subject="news"),
        ]
        destination = MappingDestination(subject="mapped")
        accounts["B"].mappings = [MappingOptions(source="plain", destinations=[destination])]
    return Options(host="127.0.0.1", port=-1, accounts=accounts)


@pytest.fixture
async def node() -> AsyncIterator[Node]:
    found = Node(options(shared=False), asyncio.get_running_loop())
    found.start()
    yield found
    await found.stop()


async def connect(node: Node, name: str) -> Client:
    url = node.ports()["nats"][0].replace("://", f"://{name}:pw@")
    return await nats.connect(url, allow_reconnect=False)


async def test_shares_come_and_go(node: Node) -> None:
    a, b = await connect(node, "A"), await connect(node, "B")

    async def answer(message: Msg) -> None:
        await b.publish(message.reply, b"yes")

    await b.subscribe("ask", cb=answer)
    news, mapped = await a.subscribe("news"), await b.subscribe("mapped")
    await a.flush()
    await b.flush()
    for shared in (False, True, False):
        reload_node(node, options(shared=shared))
        await b.publish("news", b"1")
        await b.publish("plain", b"2")
        await b.flush()
        await a.flush()
        if shared:
            assert (await a.request("ask", timeout=2)).data == b"yes"
            assert (await news.next_msg(timeout=2)).data == b"1"
            assert (await mapped.next_msg(timeout=2)).data == b"2"
        else:
            with pytest.raises(NoRespondersError):
                await a.request("ask", timeout=2)
            assert news.pending_msgs == mapped.pending_msgs == 0
    await a.close()
    await b.close()
