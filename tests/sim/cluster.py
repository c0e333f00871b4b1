"""The simulation: five nodes, two groups, one victim with a bad disk, one source of chance."""

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from headwater.edge.ports.twins.chance import SeededRandom
from headwater.edge.ports.twins.network import TwinNet, Weather
from headwater.hub.raft.codec import decode_packet, encode_packet, is_beat
from headwater.hub.raft.model.config import Config
from headwater.hub.raft.model.errors import InvariantBroken, RaftError
from headwater.hub.raft.model.options import Options
from headwater.hub.raft.model.ready import Ready
from headwater.hub.raft.multi_raft import Packet
from headwater.hub.raft.raft import Raft
from tests.sim import faults, trap
from tests.sim.checks import calm, echo
from tests.sim.checks.checker import Checker, Violation
from tests.sim.checks.echo import RARE_MAX, Echo, is_rare
from tests.sim.checks.history import History
from tests.sim.machine import Op
from tests.sim.node import SimNode
from tests.sim.store_node import StoreNode
from tests.sim.trap import Trap

CALM_US = 20_000_000
"""Simulated time in which everything must be well again when faults have stopped."""
HELD_MAX = 2000
"""Packets on links that stall; more are lost."""
KEYS = ("a", "b", "c")


@dataclass
class Outcome:
    """What a run was like."""

    steps: int
    simulated_ms: int
    calls: int
    judged: int
    undecided: int
    checks: int
    faults: int
    trace: int
    """A digest of the whole run: the same seed gives the same."""


def late(action: Callable[..., None]) -> bool:
    """Whether an event is what a fault planned for later."""
    return getattr(action, "__module__", "") in (faults.__name__, echo.__name__, trap.__name__)


class Cluster:
    """Everything happens in `run`, one event after the other, in the order of simulated time."""

    def __init__(
        self,
        seed: int,
        steps: int,
        plan: list[faults.Fault] | None = None,
    ) -> None:
        root = SeededRandom(seed)
        self.chance = root.fork("nodes")
        shape = root.fork("shape")
        self.plan = faults.plan(root.fork("faults"), steps) if plan is None else plan
        self.steps = steps
        self.now_us = 0
        self.moment = 0
        self.trace = 0
        self._events: list[tuple[int, int, Callable[..., None], tuple[object, ...]]] = []
        self._order = 0
        self.history = History()
        self.options = Options(
            tick_ns=10_000_000,
            lease_reads=shape.below(2) == 0,
            hibernate_ticks=(0, 15, 40)[shape.below(3)],
            append_bytes_max=(200, 1000, 1 << 20)[shape.below(3)],
            inflight_max=(2, 64)[shape.below(2)],
            snapshot_part_bytes=(500, 1 << 18)[shape.below(2)],
            promote_lag_max=(5, 1000)[shape.below(2)],
            defer_commits=SeededRandom(f"{seed}/commits").below(2) == 0,
        )
        self.spills = SeededRandom(f"{seed}/spills").below(2) == 0
        """Entries that members still need go to files; in other runs those get the state."""
        self.first = {
            1: Config({1: 1, 2: 1, 3: 1}),
            2: Config(dict.fromkeys(((3, 4, 5), (2, 3, 4, 5), (1, 2, 3, 4, 5))[shape.below(3)], 1)),
        }
        self.checker = Checker(self.first)
        self.groups = list(self.first)
        self.net = TwinNet(root.fork("net"), self._deliver_later)
        self.stalled: set[tuple[int, int]] = set()
        """Links that hold back what they carry, as a connection does that is not cut for good."""
        self.held: list[tuple[int, Packet]] = []
        self.echoes: list[Echo] = []
        self.traps: list[Trap] = []
        self.rare: deque[Packet] = deque(maxlen=RARE_MAX)
        self.clients = root.fork("clients")
        self.nodes = {number: StoreNode(self, number) for number in range(1, 6)}
        self.victim = 1 + shape.below(5)

    # -- time -----------------------------------------------------------------

    def after(self, delay_us: int, action: Callable[..., None], *args: object) -> None:
        self._order += 1
        heapq.heappush(self._events, (self.now_us + delay_us, self._order, action, args))

    def next_moment(self) -> int:
        """Order of what clients see."""
        self.moment += 1
        return self.moment

    def step(self) -> None:
        when, order, action, args = heapq.heappop(self._events)
        self.now_us = when
        action(*args)
        self.trace = hash((self.trace, when, order))

    # -- network --------------------------------------------------------------

    def send(self, packet: Packet) -> None:
        packet.messages.sort(key=lambda m: not is_beat(m, packet.boot))  # as on the wire
        if self._order % 16 == 0:
            again = decode_packet(encode_packet(packet))
            if again != packet:
                raise Violation("a packet changes on the wire")
        if is_rare(packet):
            self.rare.append(packet)
        for each in self.echoes:
            each.record(packet)
        self.net.send(packet.sender, packet.to, packet)

    def _deliver_later(self, delay_us: int, to: int, packet: object) -> None:
        self.after(delay_us, self._deliver, to, packet)

    def _deliver(self, to: int, packet: Packet) -> None:
        if (packet.sender, to) in self.stalled:
            if len(self.held) < HELD_MAX:
                self.held.append((to, packet))
        elif (packet.sender, to) not in self.net.cut:
            self.nodes[to].receive(packet)

    def hear(self, packet: Packet) -> None:
        """A packet arrives at its node, again maybe."""
        self._deliver(packet.to, packet)

    def written(self, node: SimNode, raft: Raft, ready: Ready) -> None:
        """A node has written a batch that is not durable yet."""
        self.checker.written(raft, ready.entries)
        for each in list(self.traps):
            each.written(node, raft, ready)

    def mend(self, links: set[tuple[int, int]]) -> None:
        self.net.cut -= links

    def unstall(self, links: set[tuple[int, int]]) -> None:
        """What was held back arrives, in order and all at once."""
        self.stalled -= links
        held, self.held = self.held, []
        for to, packet in held:
            self._deliver(to, packet)

    def calm(self) -> None:
        self.net.weather = Weather()

    # -- what faults ask ------------------------------------------------------

    def start_again(self, node: SimNode) -> None:
        if not node.up:
            node.start()

    def leader(self, group: int) -> Raft | None:
        """The leader of the greatest term."""
        found = None
        for node in self.nodes.values():
            if node.up and not node.paused:
                raft = node.multi_raft.groups.get(group)
                if raft is not None and raft.is_leader and (not found or raft.term > found.term):
                    found = raft
        return found

    def touch(self, raft: Raft) -> None:
        node = self.nodes[raft.node]
        node.multi_raft.touch(raft)
        node.pump()

    def sound(self, number: int) -> bool:
        """Whether nobody else's disk is in doubt and the groups run: one loss at a time."""
        return all(self.leader(group) is not None for group in self.groups)

    # -- clients --------------------------------------------------------------

    def client(self, group: int) -> None:
        """One call, and when the next one is due."""
        chance = self.clients
        busy = self.now_us // 2_000_000 % 4 != 3
        if self.rivals(group):
            self.after(2000 + chance.below(3000), self.client, group)
            return
        self.after(2000 + chance.below(20_000) * (1 if busy else 40), self.client, group)
        node = self.nodes[1 + chance.below(len(self.nodes))]
        key = KEYS[chance.below(len(KEYS))]
        dice = chance.below(10)
        if not node.up or node.paused or (dice < 8 and not (node := self._ask_leader(group, node))):
            return
        raft = node.multi_raft.groups[group]
        if dice < 6:
            self.write(node, raft, key, dice)
        else:
            self.read(node, raft, key)

    def burst(self, number: int, group: int) -> None:
        """A write at this node, when it believes that it leads."""
        node = self.nodes[number]
        if node.up and not node.paused and node.multi_raft.groups[group].is_leader:
            self.write(node, node.multi_raft.groups[group], "a", 9)

    def ask_all(self, group: int) -> None:
        """Whoever is up is asked for the newest value."""
        for node in self.nodes.values():
            if node.up and not node.paused and node.multi_raft.groups[group].leader:
                self.read(node, node.multi_raft.groups[group], "a")

    def ask(self, node: SimNode) -> None:
        """A node is asked for the newest values that it leads."""
        for raft in list(node.multi_raft.groups.values()) if node.up and not node.paused else ():
            if raft.is_leader:
                self.read(node, raft, "a")

    def rivals(self, group: int) -> bool:
        """Several nodes think that they lead: write through the newest, and read from all."""
        believers = [
            node
            for node in self.nodes.values()
            if node.up and not node.paused and node.multi_raft.groups[group].is_leader
        ]
        newest = self.leader(group)
        if len(believers) < 2 or newest is None:
            return False
        self.write(self.nodes[newest.node], newest, "a", 9)
        for node in believers:
            raft = node.multi_raft.groups[group]
            if raft.is_leader:
                self.read(node, raft, "a")
        return True

    def _ask_leader(self, group: int, node: SimNode) -> SimNode | None:
        raft = node.multi_raft.groups[group]
        if raft.is_leader:
            return node
        hinted = self.nodes.get(raft.leader)
        return hinted if hinted is not None and hinted.up and not hinted.paused else None

    def write(self, node: SimNode, raft: Raft, key: str, dice: int) -> None:
        expected = node.machines[raft.group].last_for(key) if dice == 0 else -1
        calls, datas = [], []
        for _ in range(1 + self.clients.below(4)):
            call = self.history.begin(raft.group, key, "write", self.next_moment(), expected)
            calls.append(call)
            datas.append(Op(call.number, key, expected).encode())
        try:
            term, index = raft.propose(datas)
        except RaftError:
            for call in calls:
                call.kind = "failed"
            return
        self.checker.require(not raft.transfer.target, "a proposal is taken during a handover")
        for offset, call in enumerate(calls):
            node.calls[raft.group, index + offset] = (term, datas[offset], call)
        self.touch(raft)

    def read(self, node: SimNode, raft: Raft, key: str) -> None:
        call = self.history.begin(raft.group, key, "read", self.next_moment())
        node.reads[call.number] = (raft.group, call, None)
        self.checker.asks(call.number, raft.group)
        node.clock.true_ns = self.now_us * 1000
        try:
            raft.read(call.number, node.clock.monotonic_ns())
        except RaftError:
            del node.reads[call.number]
            return
        self.touch(raft)

    # -- a run ----------------------------------------------------------------

    def run(self) -> Outcome:
        """Raises `Violation`, or whatever the product raises."""
        try:
            for node in self.nodes.values():
                node.start()
            for group in self.groups:
                self.after(500_000, self.client, group)
            waiting = list(reversed(self.plan))
            for number in range(self.steps):
                while waiting and waiting[-1].at <= number:
                    faults.strike(self, waiting.pop())
                self.step()
            self.recover()
            judged = self.history.check()
        except InvariantBroken as broken:
            raise Violation(f"the product's own check: {broken}") from broken
        return Outcome(
            self.steps,
            self.now_us // 1000,
            len(self.history.calls),
            judged,
            self.history.undecided,
            self.checker.checks,
            len(self.plan),
            self.trace,
        )

    def recover(self) -> None:
        """Faults stop: soon every group must take writes, and all members must be equal."""
        self.net.cut.clear()
        self.unstall(set(self.stalled))
        self.net.weather = Weather()
        for node in self.nodes.values():
            node.sync_us = 300
            node.disk.lying = node.disk.full = node.disk.unreadable = False
            node.disk.sync_fails = False
            node.disk.flush()
            node.clock.freeze(False)
            node.resume()
            self.start_again(node)
        self._events = [e for e in self._events if e[2] != self.client and not late(e[2])]
        self.echoes.clear()
        self.traps.clear()
        heapq.heapify(self._events)
        calm.after_faults(self)

    def pass_time(self, us: int) -> None:
        until = self.now_us + us
        while self._events and self._events[0][0] <= until:
            self.step()
        self.now_us = until

    def settle(self, missing: set[int], when: str) -> list[int]:
        """Let time pass until every group has taken a write where the others are a majority that
        has forgotten nothing. Returns these groups."""
        deadline = self.now_us + CALM_US
        groups = [group for group in self.groups if self.has_majority(group, missing)]
        proposed = dict.fromkeys(groups, 0)
        while not all(self.settled(group, proposed, missing) for group in groups):
            if self.now_us > deadline:
                raise Violation(f"liveness: {when}{self.describe()}")
            self.pass_time(100_000)
        return groups

    def has_majority(self, group: int, missing: set[int]) -> bool:
        """Whether a majority is up and not in doubt, as the node says that knows most."""
        rafts = [node.multi_raft.groups[group] for node in self.nodes.values()]
        voters = max(rafts, key=lambda r: (r.log.last_term, r.log.last)).log.config.voters
        doubtful = {raft.node for raft in rafts if raft.recovering} if missing else set()
        return 2 * len(voters.keys() - missing - doubtful) > len(voters)

    def settled(self, group: int, proposed: dict[int, int], missing: set[int]) -> bool:
        """Whether a write made after the faults is applied by every member but those missing."""
        raft = self.leader(group)
        if raft is None:
            return False
        if not proposed[group]:
            last = raft.log.last
            self.write(self.nodes[raft.node], raft, "a", 9)
            proposed[group] = raft.log.last if raft.log.last > last else 0
            return False
        members = [n for n in raft.log.config.members() if n not in missing]
        back = raft.log.config.returning - missing
        doubtful = any(self.nodes[n].multi_raft.groups[group].recovering for n in members)
        if back or doubtful or raft.log.last < proposed[group]:
            proposed[group] = min(proposed[group], raft.log.last)
            return False
        applied = {self.nodes[n].machines[group].applied for n in members}
        digests = {self.nodes[n].machines[group].digest for n in members}
        if len(applied) > 1 or min(applied) < raft.log.last:
            return False
        if len(digests) > 1:
            raise Violation(f"digests of group {group} differ at the end")
        contents = [self.nodes[n].machines[group].content() for n in members]
        if None in contents:
            return False
        if any(content != contents[0] for content in contents):
            raise Violation(f"stores of group {group} differ at the end")
        return True

    def describe(self) -> str:
        """Where everybody stands."""
        lines = []
        for node in self.nodes.values():
            for group, raft in node.multi_raft.groups.items() if node.up else ():
                log = raft.log
                lines.append(
                    f"node {node.number} group {group}: {raft.role.value} term {raft.term}"
                    f" log {log.base_index}..{log.applied}/{log.committed}/{log.last}"
                    f" inc {raft.incarnation}{' recovering' if raft.recovering else ''}"
                    f"{' removed' if raft.removed else ''}"
                    f"{' asleep' if raft.sleep.asleep else ''} floor {raft.vote_floor}"
                    f" barrier {raft.barrier} config {raft.log.config}"
                )
        return "\n".join(lines)
