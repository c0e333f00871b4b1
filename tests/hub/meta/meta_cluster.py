"""Whole nodes of a cluster on disks, clocks and a network in memory: meta group, founding, streams.

As `tests.hub.streams.stream_cluster`, with what `hub.node.service` puts together: nobody tells a
node which streams it has but the meta group's state.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any

import msgspec

from headwater.edge.jetstream.config import stream_config
from headwater.edge.jetstream.model.models import StreamConfig
from headwater.edge.jetstream.stream.stream import Stream
from headwater.hub.meta.applier import Applier
from headwater.hub.meta.assignment import META_GROUP, NEW_GROUP, NO_GROUP, Assignment
from headwater.hub.meta.founding import Founding, Hello
from headwater.hub.meta.meta_group import MetaGroup
from headwater.hub.meta.state import MetaState
from headwater.hub.stored.group_store import Naming
from tests.hub.streams.stream_cluster import ACCOUNT, ClusterNode, StreamCluster

SECOND = 1.0
META = b'{"config":{"name":"meta"},"created_ns":0,"incarnation":"","group":1,"cluster":""}'


class Routes:
    """Configured routes of a node, as `Founding` needs them."""

    def __init__(self, node: "MetaNode") -> None:
        self.node = node

    def unanswered(self) -> list[str]:
        """Those that have not led to a node yet."""
        others = self.node.cluster.nodes.keys() - {self.node.number}
        return [f"n{number}" for number in others - self.node.transport.conns.keys()]


class MetaNode(ClusterNode):
    """A node that does what the meta group says."""

    def open(self) -> None:
        self.state = MetaState()
        self.emptied = False
        super().open()

    def machine(self, group: int) -> Any:
        return self.state if group == META_GROUP else super().machine(group)

    def naming(self, group: int) -> Any:
        meta = Naming("meta", "meta", META, "the metadata")
        return meta if group == META_GROUP else super().naming(group)

    def begin(self) -> None:
        """As `ClusterService` does."""
        self.transport.identity = 0
        self.group = MetaGroup(self.driver, self.state)
        self.applier = Applier(self.jetstream, self.state, self.number)
        self.applier.groups = self.streams
        self.founding = Founding(self.group, self.transport, self.chance, self.describe)
        self.founding.routes = Routes(self)
        self.streams.member_boot = lambda: self.state.boot_of(self.number)
        self.applier.boot = self.store.boot
        self.applier.emptied = not self.group.resume()
        self.applier.on_joined = self.founding.say
        self.state.on_change = self.applier.operation_applied
        self.state.on_load = self.applier.reconcile_all
        self.applier.reconcile_all()
        self.cluster.connect(self)
        self.loop.call_soon(self._second)

    def _second(self) -> None:
        self.loop.call_later(SECOND, self._second)
        self.founding.tick()
        self.applier.find_unknown()
        self.applier.leave_groups(self.loop.time())
        self.applier.try_again(self.loop.time())

    def describe(self) -> Hello:
        """What this node says of itself."""
        return Hello(
            name=f"n{self.number}",
            cluster="C",
            tags=[],
            memory_free=1 << 30,
            store_free=1 << 30,
            streams=0,
            leads=0,
            monitor="",
            emptied=self.applier.emptied,
            leaving=False,
        )

    def crash(self, lose: str = "some") -> None:
        self.cluster.disconnect(self)
        super().crash(lose)
        # What a coroutine of this start still does is done to a disk that nobody has any more.
        self.disk = self.disk.copy()

    def has(self, assignment: Assignment) -> Stream | None:
        """What lives or lies here of a stream."""
        if assignment.group == NO_GROUP:
            return self.applier.local(assignment)
        machine = self.streams._machines.get(assignment.group)
        replica = self.store.replicas.get(assignment.group)
        if machine is None or replica is None or replica.store is None:
            return None
        return machine.follow(replica.store)


class MetaCluster(StreamCluster):
    """All nodes. Operations are proposed where the meta group is led."""

    nodes: dict[int, MetaNode]
    node_type = MetaNode

    def connect(self, node: MetaNode) -> None:
        """The routes of a node are up."""
        for other in getattr(self, "nodes", {}).values():
            if other is not node and other.up:
                for one, to in ((node, other), (other, node)):
                    one.transport.conns[to.number] = None  # type: ignore[assignment]
                for one, to in ((node, other), (other, node)):
                    for watcher in one.transport.watchers:
                        watcher(to.number, True)

    def disconnect(self, node: MetaNode) -> None:
        """A node is gone."""
        for other in self.nodes.values():
            if other is not node and other.up and other.transport.conns.pop(node.number, 1) != 1:
                for watcher in other.transport.watchers:
                    watcher(node.number, False)

    def run(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Have something done in the loop."""
        return self.loop.create_task(work)

    def serving(self) -> MetaNode | None:
        """The node that decides where streams go."""
        found = [node for node in self.nodes.values() if node.up and node.group.serves]
        return max(found, key=lambda node: node.group.raft.term, default=None)

    def formed(self) -> MetaNode:
        """Wait until the cluster is there with all its nodes; its leader."""

        def ready() -> bool:
            node = self.serving()
            return node is not None and node.state.members.keys() == self.nodes.keys()

        self.wait(ready, 60)
        leader = self.serving()
        assert leader is not None
        return leader

    def settle_group(self, group: int, peers: list[int] | None = None) -> None:
        """Wait until the members of a group have applied the same."""

        def same() -> bool:
            rafts = [self.nodes[n].multi_raft.groups.get(group) for n in peers or self.nodes]
            if any(raft is None for raft in rafts):
                return False
            ends = {raft.log.last for raft in rafts if raft is not None}
            return len(ends) == 1 and all(
                self.nodes[raft.node].store.replicas[group].applied in ends
                for raft in rafts
                if raft is not None
            )

        self.wait(same, 60)

    def assignment(
        self, leader: MetaNode, name: str, peers: list[int], incarnation: str, **fields: Any
    ) -> Assignment:
        """A new stream on some nodes."""
        wanted = StreamConfig(
            name=name, num_replicas=len(peers), **{"subjects": [f"{name.lower()}.>"], **fields}
        )
        config = stream_config.checked(
            wanted, leader.jetstream.account_js(ACCOUNT).scope(False, wanted.num_replicas)
        )
        boots = [leader.state.boot_of(number) for number in peers]
        return Assignment(
            account=ACCOUNT,
            name=name,
            incarnation=incarnation,
            created_ns=1,
            config=msgspec.Raw(msgspec.json.encode(config)),
            group=NEW_GROUP if len(peers) > 1 else NO_GROUP,
            peers=peers,
            boots=boots,
            founders=dict(zip(peers, boots, strict=True)) if len(peers) > 1 else {},
        )
