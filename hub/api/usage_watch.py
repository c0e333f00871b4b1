"""What accounts use on the other nodes of a cluster, for their limits.

A node that has streams of an account with limits of bytes asks the others, about once a second. It
judges what is published meanwhile by what was told last, as nats-server does.
"""

import asyncio
import logging

import msgspec

from headwater.edge.jetstream.account.account_js import AccountJetStream
from headwater.edge.jetstream.model.errors import JetStreamError
from headwater.hub.api.cluster import Cluster
from headwater.hub.api.questions import Questions, Usage, added
from headwater.hub.cluster.transport import CallFailed

log = logging.getLogger("headwater.meta")

ACCOUNTS_MAX = 500
"""Accounts in one question; the others wait for the next."""
_ANSWER = msgspec.json.Decoder(dict[str, dict[str, tuple[int, int]]])


class UsageWatch:
    """Keeps `Tiers.told` up to date on one node."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._ask = Questions(cluster)
        self._asking: asyncio.Task[None] | None = None
        self._known: dict[int, dict[str, dict[str, tuple[int, int]]]] = {}
        """What each node has told last."""
        self._next = 0

    def tick(self) -> None:
        """Ask, unless an answer is outstanding."""
        if self._asking is not None and not self._asking.done():
            return
        accounts = self._cluster.jetstream.accounts.values()
        found = [js for js in accounts if js.tiers.bounded and js.streams]
        if not found:
            self._known.clear()
            return
        self._next %= len(found)
        some = found[self._next : self._next + ACCOUNTS_MAX]
        self._next += len(some)
        self._asking = asyncio.ensure_future(self._learn(some))

    def stop(self) -> None:
        """Ask no more."""
        if self._asking is not None:
            self._asking.cancel()

    async def _learn(self, accounts: list[AccountJetStream]) -> None:
        names = [js.name for js in accounts]
        try:
            answers = await self._ask.everybody("totals", msgspec.json.encode(names))
            heard = {number: _ANSWER.decode(answer) for number, answer in answers.items()}
        except (CallFailed, JetStreamError, msgspec.DecodeError) as error:
            log.debug("what accounts use elsewhere is not known: %s", error)
            return
        members = self._cluster.group.members
        self._known = {n: each for n, each in self._known.items() if n in members}
        for number, answer in heard.items():
            self._known.setdefault(number, {}).update(answer)
        for js in accounts:
            parts = [Usage(used=each.get(js.name, {})) for each in self._known.values()]
            js.tiers.set_totals(added(parts)[0])
