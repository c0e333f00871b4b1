"""Nodes tick at the pace of the slowest one that is heard: load alone makes no elections."""

import random
from dataclasses import dataclass

import pytest

from headwater.hub.raft.codec import decode_packet, encode_packet
from headwater.hub.raft.model.config import Config
from headwater.hub.raft.model.options import Options
from headwater.hub.raft.model.ready import bootstrap
from headwater.hub.raft.multi_raft import STANDING_MAX, MultiRaft, Packet
from headwater.hub.raft.pace import LATE_TICKS, SLOWEST, Pace

TICK = 50_000_000
NODES = (1, 2, 3)


def late(pace: Pace, ns: int, ticks: int = LATE_TICKS) -> None:
    """So many ticks are late."""
    for _ in range(ticks):
        pace.ticked(ns)


def test_a_node_that_is_always_late_tells_so_and_slows_down() -> None:
    pace = Pace(TICK)
    late(pace, 2 * TICK, LATE_TICKS - 1)
    assert (pace.own_ns, pace.interval_ns()) == (0, TICK)
    pace.ticked(3 * TICK)
    assert (pace.own_ns, pace.interval_ns()) == (2 * TICK, 4 * TICK)
    pace.ticked(0)
    assert (pace.own_ns, pace.interval_ns()) == (0, TICK)


def test_the_slowest_node_that_is_heard_sets_the_pace_within_bounds() -> None:
    pace = Pace(TICK)
    pace.hear(2, TICK)
    pace.hear(3, 100 * TICK)
    assert pace.interval_ns() == SLOWEST * TICK
    pace.forget(3)
    assert pace.interval_ns() == 2 * TICK
    pace.hear(2, 0)
    assert pace.interval_ns() == TICK


@dataclass
class Node:
    """A node that is held up for `stall` ns in each tick."""

    multi: MultiRaft
    stall: int = 0
    due: int = TICK


def run(nodes: dict[int, Node], ticks: int, paced: bool) -> None:
    """Time passes; packets take no time, and wait while their receiver is held up."""
    waiting: dict[int, list[Packet]] = {number: [] for number in nodes}
    end = ticks * TICK + min(node.due for node in nodes.values())
    while True:
        number, node = min(nodes.items(), key=lambda each: each[1].due + each[1].stall)
        now = node.due + node.stall
        if now > end:
            return
        multi = node.multi
        multi.pace.ticked(node.stall)
        node.due = now + (multi.pace.interval_ns() if paced else TICK)
        multi.tick(now)
        busy = [number]
        while busy:
            number = busy.pop()
            multi = nodes[number].multi
            received, waiting[number] = waiting[number], []
            for packet in received:
                multi.receive(packet)
            while multi.has_ready():
                work = multi.ready()
                for packet in [*work.packets, *multi.synced(work.number)]:
                    packet.pace_ns = multi.pace.own_ns
                    waiting[packet.to].append(decode_packet(encode_packet(packet)))
                    if not nodes[packet.to].stall and packet.to not in busy:
                        busy.append(packet.to)


def cluster(groups: int) -> dict[int, Node]:
    """Three nodes with so many groups, which never sleep."""
    chance = random.Random(5)
    options = Options(hibernate_ticks=0)
    members = Config({number: 100 + number for number in NODES})
    nodes = {}
    for number in NODES:
        multi = MultiRaft(number, 100 + number, chance.randrange, options)
        for group in range(1, groups + 1):
            multi.add(group, bootstrap(members, number))
        nodes[number] = Node(multi)
    return nodes


def terms(nodes: dict[int, Node]) -> list[int]:
    """The term of each group, at its newest."""
    groups = nodes[1].multi.groups
    return [max(node.multi.groups[each].term for node in nodes.values()) for each in groups]


@pytest.mark.parametrize("paced", [True, False])
def test_leaders_stay_when_their_node_is_held_up(paced: bool) -> None:
    nodes = cluster(12)
    run(nodes, 60, paced)
    before = terms(nodes)
    leader = nodes[1].multi.groups[1].leader
    assert leader
    # Not at once: a machine gets busy by and by.
    for stall in (1, 2, 3, 5, 7):
        nodes[leader].stall = stall * TICK
        run(nodes, 40, paced)
    assert (terms(nodes) == before) is paced


def test_elections_of_many_groups_are_spread() -> None:
    nodes = cluster(8 * STANDING_MAX)
    for node in nodes.values():
        for raft in node.multi.groups.values():
            raft.timeout = raft.options.election_ticks
    stood = []
    multi = nodes[1].multi
    for tick in range(20):
        multi.tick(tick * TICK)
        stood.append(sum(bool(raft.votes) for raft in multi.groups.values()))
        while multi.has_ready():
            multi.ready()
    steps = [after - before for before, after in zip(stood, stood[1:], strict=False)]
    assert max(steps) <= STANDING_MAX
    assert stood[-1] == 8 * STANDING_MAX
