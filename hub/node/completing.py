"""A stream with fewer replicas than it is to have gets one on a node that joins.

A replica is missing when its node was removed, or emptied by order, and no other node could take
its part. The meta leader gives such streams to a node once, when it has joined: a node that was
emptied by order and stays a member gets nothing back.
"""

import logging
from functools import partial

import msgspec

from headwater.edge.jetstream.model.errors import JetStreamError
from headwater.hub.api.cluster import Cluster
from headwater.hub.api.stream_requests import StreamRequests
from headwater.hub.meta.assignment import NO_GROUP
from headwater.hub.meta.state import Known

log = logging.getLogger("headwater.meta")


class Completing:
    """Every node watches who joins; the one that leads the cluster acts."""

    def __init__(self, cluster: Cluster, requests: StreamRequests) -> None:
        self.cluster = cluster
        self.requests = requests
        self._seen: dict[int, int] | None = None
        """Start of each member in which it was taken in; None before the first look."""
        self._joined: set[int] = set()
        """Nodes that have joined since, and were given nothing yet. At most the members."""
        self._busy = False

    def tick(self) -> None:
        """Look who has joined, and give the first one its part. Called once a second."""
        cluster = self.cluster
        members = {number: member.boot for number, member in cluster.state.members.items()}
        if self._seen is None:
            self._seen = members if cluster.group.leader else None
            return
        self._joined |= {n for n, boot in members.items() if self._seen.get(n) != boot}
        self._joined &= members.keys()
        self._seen = members
        online = {node.number for node in cluster.candidates() if node.online}
        ready = sorted(self._joined & online)
        if not ready or self._busy or not cluster.group.leader:
            return
        if not cluster.group.serves:
            if cluster.is_led_elsewhere(cluster.group.leader) and not self._short():
                self._joined.clear()
            return
        self._busy = True
        self.requests.spawn(self._give(ready[0]))

    def _short(self) -> list[Known]:
        """Streams that miss a replica and are not being changed."""
        return [
            known
            for known in self.cluster.state.streams.values()
            if known.assignment.group != NO_GROUP
            and not known.assignment.lost
            and known.assignment.change is None
            and len(known.assignment.peers) < known.config.num_replicas
        ]

    async def _give(self, number: int) -> None:
        """Give a node a replica of each stream that misses one and may be there."""
        try:
            for known in self._short():
                key = known.assignment.key
                try:
                    await self.requests.again(partial(self._add, key, number))
                except JetStreamError as error:
                    log.debug("stream '%s > %s' gets no replica: %s", *key, error)
            self._joined.discard(number)
        finally:
            self._busy = False

    async def _add(self, key: tuple[str, str], number: int) -> None:
        known = self.cluster.state.stream(*key)
        if known is None or known not in self._short() or number in known.assignment.peers:
            return
        old = known.assignment
        one_more = msgspec.structs.replace(known.config, num_replicas=len(old.peers) + 1)
        others = [n for n in self.cluster.group.members if n != number and n not in old.peers]
        peers = self.requests.place(one_more, keep=old.peers, ignore=others)
        if number in peers:
            await self.requests.submit(self.requests.with_peers(old, peers))
            log.info(
                "stream '%s > %s' gets the replica that it missed on %s",
                *key,
                self.cluster.names(number),
            )
