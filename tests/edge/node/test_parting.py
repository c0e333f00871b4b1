"""Inboxes of clients on their way to another node, message by message."""

import asyncio
from typing import Any

from headwater.edge.broker.account import Account
from headwater.edge.kernel.kernel import CallbackSink, Kernel
from headwater.edge.node.parting import AloneKeeper, Inboxes


class OneNode:
    """What `Inboxes` use of a node."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.inbox_keeper = AloneKeeper()


async def test_what_comes_before_the_loop_goes_on_comes_once_and_in_order() -> None:
    """The next subscription is there, and what was kept is to be passed on."""
    kernel = Kernel(asyncio.get_running_loop())
    account = Account("A", kernel)
    node: Any = OneNode()
    inboxes = Inboxes(account, node, lambda: None)
    inboxes.keep(b"_INBOX.a.*", frozenset())
    account.send(b"_INBOX.a.1", b"kept")
    heard: list[bytes] = []
    everything: list[bytes] = []
    account.insert(CallbackSink(b"_INBOX.>", lambda *message: everything.append(message[3])))
    account.insert(CallbackSink(b"_INBOX.a.*", lambda *message: heard.append(message[3])))
    account.send(b"_INBOX.a.1", b"meanwhile")
    passed = asyncio.Event()
    asyncio.get_running_loop().call_soon(passed.set)
    await passed.wait()
    account.send(b"_INBOX.a.1", b"later")
    assert heard == [b"kept", b"meanwhile", b"later"]
    assert everything == [b"meanwhile", b"later"]
