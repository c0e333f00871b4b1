"""What monitoring, system services and services of upper floors see of a node."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from headwater.edge.broker.account import Account
from headwater.edge.broker.listeners.listener import Listener
from headwater.edge.broker.logins.sessions import Sessions
from headwater.edge.conf.options import Options
from headwater.edge.facts.info import NodeFacts
from headwater.edge.kernel.kernel import Kernel
from headwater.edge.observed.observations import Observations
from headwater.edge.observed.start_progress import StartProgress
from headwater.security.authenticator import Authenticator


class InboxKeeper(Protocol):
    """How a node that leaves keeps answers for its clients, together with the other nodes."""

    async def announce(self, inboxes: list[tuple[str, bytes]]) -> frozenset[Any]:
        """Say which inboxes, by account and subject, are kept here from soon on; returns the routes
        whose nodes have heard of it."""

    def found(self, account: Account, heir: Any) -> None:
        """A sink listens to a kept inbox now, and gets all that is said here from now on."""

    def hand(self, account: Account, heir: Any, *message: bytes) -> None:
        """Give a message that was kept, as of `KeepingSink`, to the sink that listens now."""


class NodeView(Protocol):
    """A running node, for those who look at it and are part of it. `Node` is one."""

    options: Options
    loop: asyncio.AbstractEventLoop
    kernel: Kernel
    server_id: str
    server_name: str
    started_ns: int
    """Wall clock."""
    accounts: dict[str, Account]
    authenticator: Authenticator
    system_account: str
    has_system: bool
    """Whether something answers in the system account."""
    jetstream: Any
    """NodeJetStream; None where it is off."""
    jetstream_switch: Any
    """`edge.node.jetstream_switch.JetStreamSwitch`."""
    services: list[Any]
    """Of class Service."""
    account_hooks: list[Callable[[Account], None]]
    """Called with every account that is made."""
    account_wanted: Callable[[str], None]
    """Called with the name of an account that a peer has and this node does not know."""
    inbox_keeper: "InboxKeeper"
    reload_hooks: list[Callable[[], None]]
    """Called when other options have come into force."""
    farewells: list[Callable[[], None]]
    departures: list[Callable[[], Awaitable[None]]]
    """Called when lame duck mode begins."""
    reloader: Callable[[], None] | None
    listeners: list[Listener]
    facts: NodeFacts
    sessions: Sessions
    observations: Observations
    progress: StartProgress
    shares: Any
    """Imports and exports between accounts."""

    def uptime_ns(self) -> int:
        """How long it runs; setting the wall clock does not change it."""

    def account(self, name: str) -> Account:
        """The account of that name; made when it is first asked for."""

    def known_account(self, name: str) -> Account | None:
        """The account of that name if this node is to have it."""

    def account_changed(self, name: str) -> None:
        """The token of an account has changed: act on it."""

    def replace_files(self, old: Options) -> None:
        """The files that other options name: in new places, and no longer in the old ones."""

    def apply_account_limits(self) -> None:
        """Give accounts the terms, mappings and imports that are in force now."""

    tls: Any
    """Contexts of the listeners: `broker.tls_context.ListenerContexts`."""

    def use_tls(self, contexts: Any) -> None:
        """Take other contexts for connections that come from now on."""

    peer_checks: Any
    """Judges peers whose listener has `ocsp_peer`."""

    def judge_peer(
        self,
        conn: Any,
        session: Any,
        wanted: Any,
        then: Callable[[], None],
        kind: str = "",
    ) -> None:
        """A handshake is done: call `then` when the peer may go on, maybe later."""

    def port_of(self, name: str, otherwise: int) -> int:
        """The port that a service listens on; `otherwise` where it does not."""

    async def stop(self) -> None:
        """End at once."""

    async def stopped(self) -> None:
        """Return once the node has ended."""
