"""A stream with fewer replicas than it is to have gets one as soon as a node may have it.

A replica is missing when its node was removed, or evacuated, and no other node could take its part.
What the cluster has committed says which streams miss one and who may not have it, so it does not
matter which node leads, or what that node has seen of the others coming and going.
"""

import logging
from functools import partial

import msgspec

from headwater.edge.jetstream.model import errors
from headwater.edge.jetstream.model.errors import JetStreamError
from headwater.hub.api.cluster import Cluster
from headwater.hub.api.stream_requests import StreamRequests
from headwater.hub.meta.assignment import NO_GROUP, Assignment
from headwater.hub.meta.state import Known

log = logging.getLogger("headwater.meta")

AGAIN_SECONDS = 60.0
"""After which streams that nobody could take are tried again though the same nodes are there: one
may have room by then."""

There = frozenset[tuple[int, int]]
"""Nodes that may get streams, each with the start in which it was taken in."""


class Completing:
    """The node that leads the cluster acts."""

    def __init__(self, cluster: Cluster, requests: StreamRequests) -> None:
        self.cluster = cluster
        self.requests = requests
        self._tried: There | None = None
        """The nodes that were there at the last try; None when the next tick is to try."""
        self._again = 0.0
        """When to try again with the same nodes, in seconds of the loop."""
        self._busy = False

    def tick(self) -> None:
        """Give missing replicas to nodes when others are there than before. Called every second."""
        cluster = self.cluster
        if self._busy:
            return
        if not cluster.group.serves:
            self._tried = None
            return
        now = cluster.jetstream.kernel.loop.time()
        there = self._there()
        if there == self._tried and now < self._again:
            return
        self._tried = there
        self._again = now + AGAIN_SECONDS
        self._busy = True
        self.requests.spawn(self._complete())

    def _there(self) -> There:
        cluster = self.cluster
        members = cluster.state.members.items()
        return frozenset((n, member.boot) for n, member in members if cluster.is_ready(n))

    def _short(self) -> list[Known]:
        """Streams that miss a replica."""
        return [
            known
            for known in self.cluster.state.streams.values()
            if known.assignment.group != NO_GROUP
            and not known.assignment.lost
            and len(known.assignment.peers) < known.config.num_replicas
        ]

    async def _complete(self) -> None:
        try:
            await self.complete()
        finally:
            self._busy = False

    async def complete(self) -> None:
        """Give each stream that misses replicas one more, where a node may have it."""
        for known in self._short():
            key = known.assignment.key
            if known.assignment.change is not None:
                self._tried = None
                continue
            try:
                await self.requests.again(partial(self._add, key))
            except JetStreamError as error:
                log.debug("stream '%s > %s' gets no replica: %s", *key, error)
                if error.err_code != errors.CLUSTER_NO_PEERS.err_code:
                    self._tried = None

    async def _add(self, key: tuple[str, str]) -> None:
        known = self.cluster.state.stream(*key)
        if known is None or known not in self._short() or known.assignment.change is not None:
            return
        old = known.assignment
        one_more = msgspec.structs.replace(known.config, num_replicas=len(old.peers) + 1)
        peers = self.requests.place(old.account, one_more, old.peers, self._evacuated(old))
        self._tried = None
        await self.requests.submit(self.requests.with_peers(old, peers))
        log.info(
            "stream '%s > %s' gets the replica that it missed on %s",
            *key,
            ", ".join(self.cluster.names(n) for n in peers if n not in old.peers),
        )

    def _evacuated(self, assignment: Assignment) -> list[int]:
        """Members that were to give the stream up, and are the same as then."""
        members = self.cluster.state.members
        then = assignment.evacuated.items()
        return [n for n, boot in then if n in members and members[n].boot == boot]
