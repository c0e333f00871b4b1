"""Advisories of who leads, and of who cannot: the cluster, streams, and consumers that are led with
them.

Those of the cluster go to the system account. Others go to the account of the stream, and with the
account's name to the system account, as those of nats-server do.
"""

from typing import Any

import msgspec

from headwater.edge.jetstream.progress.consumer_setup import is_replicated
from headwater.hub.api.cluster import Cluster
from headwater.hub.cluster.peers import peer_of
from headwater.hub.meta.assignment import Assignment


class ElectionAdvisories:
    """Sends them, when anybody listens. `cluster` knows the nodes by name."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def meta_elected(self) -> None:
        """Another node leads the cluster: the new leader tells the system account."""
        cluster = self.cluster
        account = cluster.jetstream.lookup(cluster.system_account)
        if cluster.group.leader != cluster.number or account is None:
            return
        fields = {
            "leader": peer_of(cluster.number),
            "replicas": msgspec.to_builtins(cluster.meta_members()),
            "cluster": cluster.cluster_name,
        }
        send = cluster.jetstream.advisories.send
        send(account, "DOMAIN.LEADER_ELECTED", "domain_leader_elected", fields)

    def elected(self, assignment: Assignment) -> None:
        """A replicated stream is led here from now on, and its consumers with it."""
        leader = {"leader": self.cluster.jetstream.server_name}
        self._send(assignment, "STREAM.LEADER_ELECTED", "stream_leader_elected", leader)
        stream = self.cluster.here(assignment.account, assignment.name)
        for consumer in stream.consumers.values() if stream is not None else ():
            self.consumer_elected(consumer)

    def consumer_elected(self, consumer: Any) -> None:
        """A consumer is led here from now on, by its creation or with its stream. One that asks for
        a single replica has no election elsewhere, so nothing is said of it."""
        stream = consumer.stream
        known = self.cluster.state.stream(stream.account.name, stream.name)
        if known is None or not is_replicated(consumer):
            return
        fields = {"consumer": consumer.name, "leader": self.cluster.jetstream.server_name}
        kind = "consumer_leader_elected"
        self._send(known.assignment, "CONSUMER.LEADER_ELECTED", kind, fields)

    def quorum_lost(self, assignment: Assignment) -> None:
        """This node led a stream, and hears too few of its replicas."""
        self._send(assignment, "STREAM.QUORUM_LOST", "stream_quorum_lost", {})

    def remade(self, assignment: Assignment) -> None:
        """A replica of this node is made again."""
        self._send(assignment, "STREAM.REPLICA_REMADE", "stream_replica_remade", {})

    def _send(self, assignment: Assignment, what: str, kind: str, more: dict[str, Any]) -> None:
        """`more` names the consumer, if it is one, and the leader."""
        cluster = self.cluster
        names = [assignment.name, more["consumer"]] if "consumer" in more else [assignment.name]
        tail = ".".join([what, *names])
        members = msgspec.to_builtins(cluster.replicas_of(assignment))
        fields = {"stream": assignment.name, **more, "replicas": members}
        send = cluster.jetstream.advisories.send
        if assignment.account != cluster.system_account:
            send(cluster.jetstream.lookup(assignment.account), tail, kind, fields)
        system = cluster.jetstream.lookup(cluster.system_account)
        if system is not None:
            send(system, tail, kind, {"account": assignment.account, **fields})
