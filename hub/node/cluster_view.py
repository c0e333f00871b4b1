"""What monitoring and the command line see of a cluster from one of its nodes."""

from typing import Any

from headwater.edge.jetstream.consumer.consumer_recovery import configs_of_replica, of_replica
from headwater.edge.jetstream.model.models import ClusterInfo
from headwater.edge.jetstream.model.times import ZERO_TIME
from headwater.edge.jetstream.progress.consumer_setup import asks_for_replicas, is_replicated
from headwater.edge.jetstream.stream.stream import Stream
from headwater.edge.jetstream.stream.stream_states import CONSUMER_PREFIX
from headwater.hub.api.cluster import CONTRADICTED, Cluster
from headwater.hub.cluster.peers import peer_of
from headwater.hub.meta.assignment import META_GROUP, NO_GROUP, Assignment
from headwater.hub.meta.starts import PUT_BACK
from headwater.hub.meta.state import Known
from headwater.hub.node.healing import Healing
from headwater.hub.node.raft_pages import raftz
from headwater.hub.raft.raft import Raft

NO_LEADER = "JetStream has not established contact with a meta leader"
NOT_CURRENT = "JetStream is not current with the meta leader"

STRANGER = "is on this node and unknown to the cluster: it is kept, and not served"
LACKS = "most of its replicas had lost something at once: acknowledged entries may be missing"
OF_A_NUMBER = "has the number of another stream's group on %s: the two do not hear each other"


class ClusterView:
    """Facts for pages; nothing here changes anything."""

    def __init__(self, cluster: Cluster, healing: Healing) -> None:
        self.cluster = cluster
        self.healing = healing

    def meta(self) -> dict[str, Any]:
        """`meta_cluster` of /jsz."""
        group = self.cluster.group
        info = self.cluster.meta_info()
        found: dict[str, Any] = {
            "name": info.name,
            "leader": info.leader,
            "peer": peer_of(group.leader) if group.leader else "",
            "cluster_size": len(group.members),
            "quorum_needed": len(group.members) // 2 + 1,
            "pending": 0,
            "pending_requests": 0,
            "pending_infos": 0,
        }
        raft = group.raft
        if raft is not None:
            found["snapshot"] = {
                "pending_entries": len(raft.log.entries),
                "pending_size": raft.log.bytes,
                "last_time": ZERO_TIME,
            }
        if info.replicas:
            found["replicas"] = [self._row(row) for row in info.replicas]
        return found

    def _row(self, row: Any) -> dict[str, Any]:
        shown = {"name": row.name, "current": row.current, "active": row.active, "peer": row.peer}
        if row.offline:
            shown["offline"] = True
        if row.lag:
            shown["lag"] = row.lag
        return shown

    def ha_assets(self) -> int:
        """Groups of streams that have a replica here."""
        groups = self.cluster.group.driver.multi_raft.groups
        return len(groups.keys() - {META_GROUP})

    def health(self) -> list[str]:
        """What is wrong, worst first; empty when all is well."""
        cluster = self.cluster
        found = list(cluster.group.driver.broken.values())
        put_back = [PUT_BACK] if cluster.founding.put_back else []
        if not cluster.group.leader:
            waits = cluster.founding.waits_for
            nobody = f"{NO_LEADER}: it waits for {waits}" if waits else NO_LEADER
            return [*found, nobody, *put_back]
        if cluster.applier.emptied:
            # The cluster has not taken this node in: nothing can be placed here.
            found.append(NOT_CURRENT)
        found += put_back
        if cluster.contradicted:
            found.append(CONTRADICTED)
        found += [
            f"stream is not here: {error.description}" for error in cluster.applier.failed.values()
        ]
        found += [
            f"a deleted stream is not removed yet: {cause}"
            for incarnation, cause in cluster.applier.delays.now.items()
            if incarnation not in cluster.applier.failed
        ]
        found += cluster.groups.waiting() if cluster.groups is not None else []
        found += [f"stream '{name}' {STRANGER}" for name in self.strangers()]
        found += self.others_of_a_number()
        found += self.gaps()
        found += self.healing.hurt.values()
        for known in cluster.state.streams.values():
            assignment = known.assignment
            replicated = assignment.group != NO_GROUP and cluster.number in assignment.peers
            if replicated and not cluster.leader_of(assignment):
                found.append(f"stream '{assignment.account} > {assignment.name}' has no leader")
        return found

    def strangers(self) -> list[str]:
        """Streams of which this node has a replica that the cluster does not know."""
        cluster = self.cluster
        if cluster.groups is None:
            return []
        return cluster.groups.strangers(META_GROUP, cluster.state.gone)

    def others_of_a_number(self) -> list[str]:
        """Streams here whose group has the number of another stream's group elsewhere; a sentence
        for each."""
        driver, names = self.cluster.group.driver, self.cluster.names
        return [
            f"{driver.name_of(group)} {OF_A_NUMBER % ', '.join(sorted(map(names, nodes)))}"
            for group, nodes in driver.multi_raft.strangers.items()
            if nodes
        ]

    def gaps(self) -> list[str]:
        """Groups that may lack what was acknowledged, as this node has found in its last start; a
        sentence for each."""
        driver = self.cluster.group.driver
        return [
            f"{driver.name_of(number)}: {LACKS}"
            for number, raft in driver.multi_raft.groups.items()
            if raft.recovery.gap
        ]

    def followed(self, account: str, name: str) -> set[str] | None:
        """Names of the consumers that this node's replica of a stream has; None when it has no
        replica of it."""
        known = self.cluster.state.stream(account, name)
        driver = self.cluster.group.driver
        replica = driver.store.replicas.get(known.assignment.group) if known is not None else None
        if replica is None or replica.store is None:
            return None
        owner = replica.store.incarnation.encode()
        keys = self.cluster.jetstream.store().log.states(owner)
        prefix = CONSUMER_PREFIX
        return {key[len(prefix) :].decode() for key in keys if key.startswith(prefix)}

    def replica_names(self, account: str) -> list[str]:
        """Names of the streams of an account that this node may have a replica of."""
        return list(self.cluster.state.of_account(account))

    def replica(self, account: str, name: str) -> tuple[Stream, list[Any], ClusterInfo] | None:
        """A stream that another node leads, as this node's replica has it, with its replicated
        consumers."""
        stream = self._followed(account, name)
        if stream is None:
            return None
        consumers = [each for each in of_replica(stream) if is_replicated(each)]
        known = self.cluster.state.of_account(account)[name]
        return stream, consumers, self.cluster.replica_info(known.assignment)

    def count_replica(self, account: str, name: str) -> tuple[Stream, int] | None:
        """The same stream, and how many such consumers it has but for direct ones."""
        stream = self._followed(account, name)
        if stream is None:
            return None
        configs = configs_of_replica(stream)
        counted = (not each.direct and asks_for_replicas(each, stream) for each in configs)
        return stream, sum(counted)

    def _followed(self, account: str, name: str) -> Stream | None:
        groups, known = self.cluster.groups, self.cluster.state.of_account(account).get(name)
        if groups is None or known is None:
            return None
        return groups.followed(known.assignment.group)

    def raftz(self, account: str, group: str) -> dict[str, Any]:
        """/raftz of this node; see `raft_pages`."""
        return raftz(self.cluster, account, group)

    def numbers(self) -> list[tuple[dict[str, str], dict[str, float]]]:
        """Labels and samples of /metrics for each group of this node: entries, 0 or 1, and a
        share."""
        cluster = self.cluster
        groups = cluster.group.driver.multi_raft.groups
        names = {META_GROUP: {"account": "$SYS", "stream": "_meta_"}}
        for known in cluster.state.streams.values():
            assignment = known.assignment
            names[assignment.group] = {"account": assignment.account, "stream": assignment.name}
        transfers = cluster.group.driver.store.transfers
        return [
            (names[n], {**_numbers(raft), "arrived": transfers.arrived(n)})
            for n, raft in groups.items()
            if n in names
        ]

    def totals(self) -> dict[str, int]:
        """Samples of /metrics for the node as a whole."""
        driver = self.cluster.group.driver
        return {
            **self.healing.numbers(),
            "groups_stopped": len(driver.broken),
            "groups_strange": sum(map(bool, driver.multi_raft.strangers.values())),
        }

    def status(self) -> dict[str, Any]:
        """/clusterz: members, leaders and lag, as far as this node knows them. Lag is known where a
        stream is led, in entries of its group's log."""
        cluster = self.cluster
        group = cluster.group
        return {
            "cluster": cluster.cluster_name,
            "meta_leader": cluster.names(group.leader) if group.leader else "",
            "server": cluster.jetstream.server_name,
            "problems": self.health(),
            "nodes": [self._node(number) for number in sorted(group.members)],
            "streams": [self._stream(known) for known in cluster.state.streams.values()],
        }

    def _node(self, number: int) -> dict[str, Any]:
        cluster = self.cluster
        hello = cluster.founding.hello_of(number)
        raft = cluster.group.raft
        return {
            "name": cluster.names(number),
            "peer": peer_of(number),
            "online": cluster.founding.is_online(number),
            "leaving": hello.leaving if hello else False,
            "voter": raft is not None and number in raft.log.config.voters,
            "leader": number == cluster.group.leader,
            "monitor": hello.monitor if hello else "",
            "streams": hello.streams if hello else 0,
            "store_free": hello.store_free if hello else 0,
        }

    def _stream(self, known: Known) -> dict[str, Any]:
        cluster, assignment = self.cluster, known.assignment
        here = cluster.here(assignment.account, assignment.name)
        info = cluster.cluster_info_of(assignment, here)
        found: dict[str, Any] = {
            "account": assignment.account,
            "name": assignment.name,
            "leader": info.leader,
            "led_here": here is not None,
            "wanted": max(known.config.num_replicas, 1),
            "replicas": [
                {**self._row(row), **self._moving(assignment, row)} for row in info.replicas
            ],
        }
        if assignment.lost:
            found["lost"] = assignment.lost
        if here is not None:
            found["messages"], found["bytes"] = here.store.messages, here.store.bytes
            raft = cluster.group.driver.multi_raft.groups.get(assignment.group)
            if raft is not None and raft.is_leader:
                found["committed"], found["last"] = raft.log.committed, raft.log.last
        return found

    def _moving(self, assignment: Assignment, row: Any) -> dict[str, Any]:
        """How far the state of a stream is on its way to a replica."""
        groups = self.cluster.groups
        status = groups.status(assignment.group) if groups is not None else None
        for peer in status.peers if status is not None else ():
            if peer.transfer is not None and self.cluster.names(peer.number) == row.name:
                return {
                    "arrived_percent": round(100 * peer.transfer.share, 1),
                    "seconds_left": round(peer.transfer.seconds_left, 1),
                }
        return {}


def _numbers(raft: Raft) -> dict[str, int]:
    """A group's samples. Its lag is that of the member furthest behind, where it is led; elsewhere
    what is committed and not applied here."""
    log = raft.log
    others = [log.last - one.match for one in raft.progress.values()] if raft.is_leader else []
    return {
        "leader": int(raft.is_leader),
        "quorum": int(raft.leader != 0),
        "term": raft.term,
        "committed": log.committed,
        "applied": log.applied,
        "lag": max(others, default=log.committed - log.applied),
        "members": len(log.config.voters),
    }
