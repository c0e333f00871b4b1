"""All groups of one node: they share ticks, batches of writes, and packets to other nodes.

A group costs something only when it has something to do: `tick` visits those that are awake, and
`ready` those that were touched. Between nodes that share sleeping groups one small ping per
heartbeat stands for all of them; a node that goes silent wakes the groups it led.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from headwater.hub.raft import election
from headwater.hub.raft.model.errors import invariant
from headwater.hub.raft.model.message import Message
from headwater.hub.raft.model.options import Options
from headwater.hub.raft.model.ready import Ready, Restored
from headwater.hub.raft.pace import Pace
from headwater.hub.raft.raft import Raft

LOOK_TICKS = 4
"""After which the driver looks at a follower that has a leader and nothing to do."""

STANDING_MAX = 32
"""Groups of a node whose election timeouts may pass in one tick; the others' pass a tick later.
After a start, or a loss of a node with many leaders, elections do not all come at once."""

WRITE_SETS_MAX = 64
"""Batches under sync at a time; with more the disk is too slow and `can_write` says so."""

BOOT_STEP = 1 << 30
"""About a second, as numbers of starts are nanoseconds."""


@dataclass(slots=True)
class Packet:
    """Everything for one node at one moment. Without messages it is a ping."""

    sender: int  # number of the node
    to: int  # number of the node
    boot: int  # the sender's start, a number that grows
    messages: list[Message] = field(default_factory=list)  # of all groups, in order
    known_boot: int = 0
    """The receiver's newest start that the sender knows, when it is newer than the one it heard."""
    pace_ns: int = 0
    """How late the sender's ticks are; see `pace`."""


@dataclass(slots=True)
class WriteSet:
    """The work of all groups at one moment: write and sync it with one sync, then
    `MultiRaft.synced`."""

    number: int  # grows by one
    groups: list[tuple[Raft, Ready]] = field(
        default_factory=list
    )  # what each has to write, by group
    packets: list[Packet] = field(default_factory=list)  # to send before the sync

    @property
    def writes(self) -> bool:
        return any(ready.writes for _, ready in self.groups)


def raise_fault(raft: Raft, error: Exception) -> None:
    """A group that breaks ends the work of all: what tests want."""
    raise error


class MultiRaft:
    """Not thread-safe. `chance(n)` gives a number below n."""

    def __init__(
        self, node: int, boot: int, chance: Callable[[int], int], options: Options | None = None
    ) -> None:
        self.node = node  # this node's number
        self.boot = boot  # the sender's start, a number that grows
        self.chance = chance  # see the class
        self.options = options or Options()  # of all groups
        self.pace = Pace(self.options.tick_ns)  # how long ticks last
        self.groups: dict[int, Raft] = {}  # what each has to write, by group
        self.awake: dict[int, Raft] = {}  # groups that count ticks
        self._touched: dict[int, Raft] = {}  # groups that may have something to do
        self._heard: dict[int, int] = {}  # by node: the tick of its last packet
        self._boots: dict[int, int] = {}  # by node: its newest start
        self.stale_boot = 0
        """Others know a later start of this node: its disk was replaced and its clock was set
        back. Nobody listens; start again with a greater number than this one. A random step
        keeps it apart from a start that the teller has not heard of."""
        self._ticks = 0  # since the start
        self._number = 0  # of the newest write set
        self._unsynced: deque[tuple[int, list[tuple[Raft, Ready]]]] = (
            deque()
        )  # write sets on their way to the disk
        self._pings: list[Packet] = []  # packets without messages, for the next `ready`
        self.on_fault: Callable[[Raft, Exception], None] = raise_fault
        """A group broke, whatever it was doing: `drop` it, so that the others go on."""
        self.strangers: dict[int, set[int]] = {}
        """By group: nodes that have something else under its number, and are not listened to."""

    def add(self, group: int, restored: Restored, tag: int = 0) -> Raft:
        """Start a group of this node; `tag` says of what it is."""
        invariant(group not in self.groups, f"group {group} runs already")
        raft = Raft(group, self.node, self.boot, restored, self.chance, self.options)
        raft.tag = tag
        self.groups[group] = raft
        self.touch(raft)
        return raft

    def drop(self, group: int) -> None:
        """Stop a group here; its storage is the driver's business."""
        self.groups.pop(group, None)
        self.awake.pop(group, None)
        self._touched.pop(group, None)
        self.strangers.pop(group, None)

    def touch(self, raft: Raft) -> None:
        """Something was asked of the group (`propose`, `read`, a change): look at it in `ready`."""
        if raft.group in self.groups:
            self._touched[raft.group] = raft
            self.awake[raft.group] = raft

    def tick(self, now_ns: int = 0) -> None:
        """One tick for every group that is awake. Whoever leads or has no leader is looked at
        with each tick, the others now and then."""
        self._ticks += 1
        standing = 0
        for raft in list(self.awake.values()):
            if election.is_due(raft):
                standing += 1
                if standing > STANDING_MAX:
                    election.postpone(raft)
            try:
                raft.tick(now_ns)
            except Exception as error:
                self.on_fault(raft, error)
                continue
            led_elsewhere = raft.leader not in (0, self.node)
            if not led_elsewhere or raft.ticks % LOOK_TICKS == 0 or raft.has_ready():
                self._touched[raft.group] = raft
            if raft.sleep.asleep or raft.removed:
                self._touched[raft.group] = raft
                del self.awake[raft.group]
        if self._ticks % self.options.heartbeat_ticks == 0:
            self._ping()
            self._watch()

    def _ping(self) -> None:
        """A word to every node that shares a sleeping group with this one."""
        for node in self._heard:
            self._pings.append(Packet(self.node, node, self.boot))

    def _watch(self) -> None:
        """Wake what was led by a node that is silent."""
        late = self._ticks - self.options.election_ticks
        for node, heard in list(self._heard.items()):
            if heard < late:
                del self._heard[node]
                self.pace.forget(node)
                self._wake_with(node)

    def _wake_with(self, node: int) -> None:
        for raft in self.groups.values():
            sleeps = raft.sleep.asleep
            if sleeps and (raft.leader == node or (raft.is_leader and node in raft.progress)):
                raft.wake()
                self.touch(raft)

    def receive(self, packet: Packet, now_ns: int | None = None) -> None:
        """A packet of another node. `now_ns` is this moment by the monotonic clock, read when the
        packet was at hand: without it a leader answers no read of a follower by its lease."""
        known = self._boots.get(packet.sender, 0)
        if packet.known_boot > max(self.boot, self.stale_boot):
            self.stale_boot = packet.known_boot + self.chance(BOOT_STEP)
        if packet.boot < known:
            self._pings.append(Packet(self.node, packet.sender, self.boot, known_boot=known))
            return
        self._heard[packet.sender] = self._ticks
        self.pace.hear(packet.sender, packet.pace_ns)
        if packet.boot > known:
            self._boots[packet.sender] = packet.boot
            if known:
                self._wake_with(packet.sender)
        for m in packet.messages:
            raft = self.groups.get(m.group)
            if raft is None:
                continue
            if self._is_strange(raft, m):
                continue
            raft.moment_ns = now_ns
            try:
                raft.step(m)
            except Exception as error:
                self.on_fault(raft, error)
            raft.moment_ns = None
            self._heard_something(raft)

    def _is_strange(self, raft: Raft, m: Message) -> bool:
        """Whether a message is of something else that has the number of this group."""
        if not m.tag or not raft.tag:
            return False
        strange = m.tag != raft.tag
        if strange:
            self.strangers.setdefault(m.group, set()).add(m.sender)
        elif self.strangers:
            self.strangers.get(m.group, set()).discard(m.sender)
        return strange

    def _heard_something(self, raft: Raft) -> None:
        """A group counts ticks again; it is looked at when there is something to do. (Most of what
        a leader hears is the ack of an entry that is committed already.)"""
        if raft.group in self.groups:
            self.awake[raft.group] = raft
            if raft.has_ready():
                self._touched[raft.group] = raft

    def touched(self) -> list[Raft]:
        """Groups that something happened to since they were last looked at."""
        return list(self._touched.values())

    def can_write(self) -> bool:
        """Whether the disk keeps up."""
        return len(self._unsynced) < WRITE_SETS_MAX

    def has_ready(self) -> bool:
        """Whether `ready` would give anything to do. Groups without work are forgotten until they
        are touched again, so that they are asked once."""
        if self._pings:
            return True
        for group, raft in list(self._touched.items()):
            if raft.has_ready():
                return True
            del self._touched[group]
        return False

    def ready(self) -> WriteSet:
        """The work of every group that has some."""
        self._number += 1
        write_set = WriteSet(self._number, packets=self._pings)
        self._pings = []
        messages: list[Message] = []
        touched, self._touched = self._touched, {}
        for group, raft in touched.items():
            if self.groups.get(group) is not raft or not raft.has_ready():
                continue
            try:
                said = raft.drain_messages()
                if said is not None:
                    messages += said
                    continue
                ready = raft.ready()
            except Exception as error:
                self.on_fault(raft, error)
                continue
            write_set.groups.append((raft, ready))
            messages += ready.messages
            if raft.has_ready():
                self._touched[group] = raft
        write_set.packets += self._pack(messages)
        if write_set.groups:
            self._unsynced.append((write_set.number, write_set.groups))
        return write_set

    def synced(self, number: int) -> list[Packet]:
        """Batches up to `number` are durable. Returns what may be sent now."""
        messages: list[Message] = []
        while self._unsynced and self._unsynced[0][0] <= number:
            for raft, ready in self._unsynced.popleft()[1]:
                if self.groups.get(raft.group) is not raft:
                    continue
                try:
                    messages += raft.synced(ready.number)
                except Exception as error:
                    self.on_fault(raft, error)
                self._heard_something(raft)
        return self._pack(messages)

    def _pack(self, messages: list[Message]) -> list[Packet]:
        packets: dict[int, Packet] = {}
        for m in messages:
            packet = packets.get(m.to)
            if packet is None:
                packet = packets[m.to] = Packet(self.node, m.to, self.boot)
            packet.messages.append(m)
        return list(packets.values())
