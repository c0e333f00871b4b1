"""What was said under a leader, heard again when it leads in a later term: the network may double
packets and deliver them late."""

from headwater.hub.raft import transfer
from headwater.hub.raft.model.errors import RaftError
from headwater.hub.raft.model.message import Kind
from headwater.hub.raft.model.role import Role
from headwater.hub.raft.multi_raft import Packet
from headwater.hub.raft.raft import Raft
from tests.sim.world import World

PACKETS_MAX = 80
RARE = frozenset((Kind.VOTE, Kind.VOTE_REPLY, Kind.PRE_VOTE_REPLY, Kind.TIMEOUT_NOW, Kind.GONE))
RARE_MAX = 60
"""Of these kinds packets of earlier terms are heard again, too."""
WAITS_US = (1500, 1500, 5000, 15_000, 40_000)
"""After each time."""
POLL_US = 1500
POLLS = 600


def is_rare(packet: Packet) -> bool:
    return any(m.kind in RARE for m in packet.messages)


class Echo:
    """Of one leader in one term, and of the elections before. It is heard again by the candidate,
    by the new leader, and by those that follow it."""

    def __init__(self, cluster: World, raft: Raft) -> None:
        self.cluster = cluster
        self.node, self.group, self.term = raft.node, raft.group, raft.term
        self.rare = [p for p in cluster.rare if raft.node in (p.sender, p.to)]
        self.kept: list[Packet] = []
        self.times = 0

    def record(self, packet: Packet) -> None:
        """A packet goes by. The newest are kept."""
        if self.node in (packet.sender, packet.to):
            of_term = any((m.group, m.term) == (self.group, self.term) for m in packet.messages)
            if of_term:
                self.kept.append(packet)
                del self.kept[:-PACKETS_MAX]

    def lead_again(self, polls: int = POLLS) -> None:
        """Make the node lead again, and let everybody hear what was said before."""
        cluster = self.cluster
        raft = cluster.nodes[self.node].multi_raft.groups.get(self.group)
        if self.times == len(WAITS_US) or not polls or raft is None:
            cluster.echoes.remove(self)
            return
        wait = POLL_US
        if raft.term > self.term and raft.role in (Role.CANDIDATE, Role.LEADER):
            for packet in self.rare + self.kept:
                cluster.hear(packet)
            wait = WAITS_US[self.times]
            self.times += 1
        elif polls % 60 == 0:
            self.ask_back()
        cluster.after(wait, self.lead_again, polls - 1)

    def ask_back(self) -> None:
        leader = self.cluster.leader(self.group)
        if leader is not None and leader.node != self.node:
            try:
                transfer.begin(leader, self.node)
            except RaftError:
                return
            self.cluster.touch(leader)
