"""How many sessions accounts have on the other servers of a cluster, so that their limits of
connections hold for the cluster as a whole.

Servers tell one another when a count changes, and again from time to time; who is new asks. What
is told a moment too late lets one in too many, who is sent away again. Source: nats-server,
`server/events.go`, `remoteConnsUpdate`.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Annotated

import msgspec

from headwater.edge.broker.account import Account
from headwater.edge.kernel.kernel import CallbackSink
from headwater.edge.view.node_view import NodeView

log = logging.getLogger("headwater.system")

HEARTBEAT_S = 30.0
"""How often a count is told that has not changed."""

ASK_S = 1.0
"""Seconds for which servers that are new are gathered, before they are asked: a question goes to
all servers, and when a cluster starts all are new."""

LOST_S = 150.0
"""Seconds without a word after which a server counts as gone, and its sessions with it."""

SERVERS_MAX = 1024
"""Servers whose counts are kept."""

Count = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


class _Teller(msgspec.Struct):
    """The server that an event comes from."""

    id: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]


class _Connections(msgspec.Struct):
    """What an event says of an account's connections."""

    server: _Teller
    acc: str
    conns: Count
    leafnodes: Count = 0


class _Remote:
    """Another server."""

    __slots__ = ("counts", "heard")

    def __init__(self) -> None:
        self.heard = 0.0
        """When it spoke last, by the loop's clock."""
        self.counts: dict[str, tuple[int, int]] = {}
        """Clients and leaf links of each account."""


class AccountCounts:
    """Counts of the other servers, kept for the registry of sessions."""

    def __init__(self, node: NodeView, tell: Callable[[str], None]) -> None:
        """`tell` sends the count of one of this node's accounts to whom it may concern."""
        self._node = node
        self._tell = tell
        self._system = node.account(node.system_account)
        self._sinks: list[CallbackSink] = []
        self._remotes: dict[str, _Remote] = {}
        self._inbox = f"$SYS._INBOX_.{node.server_id}".encode()
        self._timer: asyncio.TimerHandle | None = None
        self._asking: asyncio.TimerHandle | None = None
        """New servers will be asked."""

    def start(self) -> None:
        """Listen, where there are other servers to listen to."""
        if not self._node.options.cluster.port:
            return
        for subject, heard in (
            (b"$SYS.SERVER.ACCOUNT.*.CONNS", self._on_count),
            (self._inbox, self._on_count),
            (b"$SYS.SERVER.*.STATSZ", self._on_sign),
            (b"$SYS.SERVER.*.SHUTDOWN", self._on_end),
        ):
            sink = CallbackSink(subject, heard)
            self._system.insert(sink)
            self._sinks.append(sink)
        self._node.account_hooks.append(self._ask)
        self._node.sessions.registry.leaf_hook = self._tell
        self._timer = self._node.loop.call_later(HEARTBEAT_S, self._beat)

    def stop(self) -> None:
        """Listen no more."""
        for timer in (self._timer, self._asking):
            if timer is not None:
                timer.cancel()
        for sink in self._sinks:
            self._system.remove(sink)
        self._sinks.clear()

    def servers_with(self, account: str) -> int:
        """How many other servers have sessions of an account."""
        return sum(account in remote.counts for remote in self._remotes.values())

    def _ask(self, account: Account) -> None:
        """Ask the others how many sessions an account has there."""
        if account is not self._system:
            subject = f"$SYS.REQ.ACCOUNT.{account.name}.CONNS".encode()
            self._system.send(subject, b"", self._inbox, own=True)

    def _on_count(
        self, subject: bytes, reply: bytes, headers: bytes, payload: bytes, sender: object
    ) -> None:
        try:
            heard = msgspec.json.decode(payload, type=_Connections)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            log.debug("a count of connections is not understood: %s", error)
            return
        remote = self._heard(heard.server.id)
        account = self._node.accounts.get(heard.acc)
        if remote is None or account is None:
            return
        if heard.conns or heard.leafnodes:
            remote.counts[heard.acc] = (heard.conns, heard.leafnodes)
        else:
            remote.counts.pop(heard.acc, None)
        self._sum(account)

    def _on_sign(
        self, subject: bytes, reply: bytes, headers: bytes, payload: bytes, sender: object
    ) -> None:
        self._heard(_server_in(subject))

    def _on_end(
        self, subject: bytes, reply: bytes, headers: bytes, payload: bytes, sender: object
    ) -> None:
        self._forget(_server_in(subject))

    def _heard(self, server: str) -> _Remote | None:
        """Remember that a server is there; None when that is this one, or there are too many."""
        if server == self._node.server_id:
            return None
        remote = self._remotes.get(server)
        if remote is None:
            if len(self._remotes) >= SERVERS_MAX:
                return None
            remote = self._remotes[server] = _Remote()
            if self._asking is None:
                self._asking = self._node.loop.call_later(ASK_S, self._ask_all)
        remote.heard = self._node.loop.time()
        return remote

    def _ask_all(self) -> None:
        """Ask for all accounts that are in force here."""
        self._asking = None
        for account in list(self._node.accounts.values()):
            if account.limits:
                self._ask(account)

    def _forget(self, server: str) -> None:
        remote = self._remotes.pop(server, None)
        for name in remote.counts if remote is not None else ():
            account = self._node.accounts.get(name)
            if account is not None:
                self._sum(account)

    def _sum(self, account: Account) -> None:
        counts = [remote.counts.get(account.name, (0, 0)) for remote in self._remotes.values()]
        clients, leafs = (sum(side) for side in zip(*counts, strict=True)) if counts else (0, 0)
        self._node.sessions.registry.elsewhere(account, clients, leafs)

    def _beat(self) -> None:
        """Tell every count again, and forget who has fallen silent."""
        for name in self._node.sessions.registry.busy():
            self._tell(name)
        last = self._node.loop.time() - LOST_S
        for server in [key for key, each in self._remotes.items() if each.heard < last]:
            log.warning(
                "nothing was heard of server %s for %.0f s; its sessions no longer count: look "
                "whether it runs, and is connected",
                server,
                LOST_S,
            )
            self._forget(server)
        self._timer = self._node.loop.call_later(HEARTBEAT_S, self._beat)


def _server_in(subject: bytes) -> str:
    return subject.split(b".")[2].decode("ascii", "replace")
