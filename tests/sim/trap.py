"""A fault that waits for its moment: disk or power fail when something rare is written."""

from headwater.hub.raft.model.entry import EntryKind
from headwater.hub.raft.model.ready import Ready
from headwater.hub.raft.raft import Raft
from tests.sim.node import SimNode
from tests.sim.world import World

MOMENTS = ("snapshot", "snapshot", "snapshot", "tail", "tail", "vote", "change")
HARM = ("power", "power", "power", "sync", "full")


class Trap:
    """`a` and `b` are chance; it springs once, at whatever node comes first."""

    def __init__(self, cluster: World, a: int, b: int, ms: int) -> None:
        self.cluster = cluster
        self.moment = MOMENTS[a % len(MOMENTS)]
        self.harm = HARM[b % len(HARM)]
        self.delay_us = b // len(HARM) % (1, 600)[a // len(MOMENTS) % 2]
        self.ms = ms

    def written(self, node: SimNode, raft: Raft, ready: Ready) -> None:
        """A batch is on its way to a disk."""
        if self.is_moment(node, raft, ready):
            self.cluster.traps.remove(self)
            if self.harm == "power":
                self.cluster.after(self.delay_us, self.spring, node)
            else:
                self.spring(node)

    def is_moment(self, node: SimNode, raft: Raft, ready: Ready) -> bool:
        if self.moment == "snapshot":
            return ready.snapshot is not None
        if self.moment == "vote":
            hard = ready.hard_state
            return (
                hard is not None
                and bool(hard.vote)
                and hard.vote != node.durable.vote.get(raft.group)
            )
        if self.moment == "change":
            return any(entry.kind == EntryKind.CONFIG for entry in ready.entries)
        last = node.durable.last.get(raft.group, 0)
        return bool(ready.entries) and ready.entries[0].index <= last

    def spring(self, node: SimNode) -> None:
        if self.harm == "sync":
            node.disk.sync_fails = True
        elif self.harm == "full":
            node.disk.full = True
            self.cluster.after(self.ms * 1000, setattr, node.disk, "full", False)
        elif node.up:
            node.crash()
            self.cluster.after(self.ms * 1000, self.cluster.start_again, node)
