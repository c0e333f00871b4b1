"""What an account without JetStream answers on `$JS.API.>`, so that its clients need not wait.

Requests that this node knows are refused in the shape of their own answer, all others as
`system_response`. The system account refuses everything in that shape, but for what operators ask
the cluster there.
"""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from headwater.edge.broker.account import Account
from headwater.edge.jetstream.api.api_sinks import ApiSink, DomainSink
from headwater.edge.jetstream.model import errors
from headwater.edge.jetstream.model.requests import REFUSED, TYPE_PREFIX, Route, find_route
from headwater.edge.kernel.kernel import CallbackSink, Sink

CLIENT_OR_LEAF = (0, 1)
"""Kinds of connections (`KIND_*` of the broker) that are answered by the system account: those
behind a route have been answered by the node they are connected to."""

CLUSTER_REQUESTS = ("META.LEADER.STEPDOWN", "META.RESCUE", "SERVER.REMOVE", "SERVER.EVACUATE")
"""Requests of the system account that nodes of a cluster serve, beside those of accounts."""
NOT_OF_NATS = ("SERVER.DRAIN",)
"""The same, of those that nats-server does not know. Nodes without a cluster leave them alone."""


class Denial:
    """The API of one account that has none."""

    def __init__(self, account: Account, table: dict[str, Route], domain: str, system: bool):
        self.account = account
        self.table = table
        self.system = system
        self.elsewhere: Callable[[], Awaitable[bool] | None] = lambda: None
        """Whether another node answers, where the account has JetStream; None: none does."""
        self._tasks: set[asyncio.Task[None]] = set()
        self.sinks: list[Sink] = [
            CallbackSink(b"$JS.API.>", self.serve) if system else ApiSink(b"$JS.API.>", self.serve)
        ]
        self.alias = DomainSink(account, domain) if domain else None

    def listen(self) -> None:
        """Begin to answer."""
        for sink in self.sinks:
            self.account.insert(sink)
        if self.alias is not None:
            self.alias.listen()

    def stop(self) -> None:
        """Answer no longer."""
        for sink in self.sinks:
            self.account.remove(sink)
        if self.alias is not None:
            self.alias.stop()
        for task in self._tasks:
            task.cancel()

    def serve(
        self, subject: bytes, reply: bytes, block: bytes, payload: bytes, sender: object
    ) -> None:
        """Refuse one request; the callback of the sink."""
        name = subject.decode("utf-8", "replace").split(".", 2)[2]
        if not reply or (self.system and not self.concerns(name, sender)):
            return
        asked = None if self.system else self.elsewhere()
        if asked is None:
            self._refuse(name, reply)
            return
        task = asyncio.ensure_future(self._refuse_unless(asked, name, reply))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _refuse_unless(self, asked: Awaitable[bool], name: str, reply: bytes) -> None:
        if not await asked:
            self._refuse(name, reply)

    def _refuse(self, name: str, reply: bytes) -> None:
        kind = self.kind(name)
        answer = {
            "type": f"{TYPE_PREFIX}{kind}_response",
            "error": errors.NOT_ENABLED_FOR_ACCOUNT.error().wire(),
            **REFUSED.get(kind, {}),
        }
        self.account.answer(reply, msgspec.json.encode(answer))

    def concerns(self, name: str, sender: object) -> bool:
        """Whether the system account of this node answers a request."""
        kind = getattr(sender, "kind", None)
        served = name in CLUSTER_REQUESTS + NOT_OF_NATS or name.startswith("ACCOUNT.")
        return kind in CLIENT_OR_LEAF and not served

    def kind(self, name: str) -> str:
        """The type of the answer."""
        if self.system and name != "INFO":
            return "system"
        _, route = find_route(self.table, name.split("."))
        return route.kind if route is not None else "system"
