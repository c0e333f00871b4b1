"""Batches of 1,000 small entries through three nodes in memory; the records' bytes stay as they
are. The full figure is for a quiet machine: `HEADWATER_BENCH=1`."""

import os
import time
from random import Random

import pytest

from headwater.hub.raft.model.config import Config
from headwater.hub.raft.model.ready import bootstrap
from headwater.hub.raft.multi_raft import MultiRaft, Packet
from headwater.hub.raft.raft import Raft
from tests.measuring import within

BENCH = os.environ.get("HEADWATER_BENCH") == "1"
BATCHES = 1000 if BENCH else 60
GROUPS = 2000 if BENCH else 300
PER_SECOND_MIN = 500_000 if BENCH else 50_000


def three() -> dict[int, Raft]:
    config = Config({1: 1, 2: 1, 3: 1})
    chance = Random(1).randrange
    return {n: Raft(1, n, 1, bootstrap(config, n), chance) for n in config.voters}


def pump(nodes: dict[int, Raft], applied: dict[int, list]) -> None:
    busy = True
    while busy:
        busy = False
        for raft in nodes.values():
            while raft.has_ready():
                busy = True
                ready = raft.ready()
                applied[raft.node] += ready.committed
                for m in ready.messages + raft.synced(ready.number):
                    nodes[m.to].step(m)


def test_batches_of_thousand() -> None:
    nodes = three()
    applied: dict[int, list] = {1: [], 2: [], 3: []}
    while not any(raft.is_leader for raft in nodes.values()):
        for raft in nodes.values():
            raft.tick()
        pump(nodes, applied)
    leader = next(raft for raft in nodes.values() if raft.is_leader)
    records = [b"%0128d" % i for i in range(1000)]
    begin = time.process_time()
    for _ in range(BATCHES):
        leader.propose(records)
        pump(nodes, applied)
    rate = BATCHES * 1000 / (time.process_time() - begin)
    print(f"{rate:,.0f} entries/s")
    for entries in applied.values():
        assert len(entries) == BATCHES * 1000 + 1
        assert all(e.data is records[i % 1000] for i, e in enumerate(entries[1:]))
    assert rate > PER_SECOND_MIN


@pytest.mark.alone
def test_thousands_of_idle_groups_cost_next_to_nothing() -> None:
    chance = Random(1).randrange
    config = Config({1: 1, 2: 1, 3: 1})
    nodes = {n: MultiRaft(n, 1, chance) for n in config.voters}
    for group in range(1, GROUPS + 1):
        for node, multi_raft in nodes.items():
            multi_raft.add(group, bootstrap(config, node))

    def settle() -> None:
        packets: list[Packet] = []
        busy = True
        while busy:
            busy = False
            for multi_raft in nodes.values():
                while multi_raft.has_ready():
                    busy = True
                    write_set = multi_raft.ready()
                    packets += write_set.packets + multi_raft.synced(write_set.number)
            for packet in packets:
                nodes[packet.to].receive(packet)
            busy |= bool(packets)
            packets = []

    for _ in range(90):
        for multi_raft in nodes.values():
            multi_raft.tick()
        settle()
    assert all(not multi_raft.awake for multi_raft in nodes.values())
    begin = time.perf_counter()
    for _ in range(100):
        for multi_raft in nodes.values():
            multi_raft.tick()
        settle()
    assert within(time.perf_counter() - begin, 1.0)
    silent = next(r.leader for r in nodes[1].groups.values() if r.leader != 1)
    led = [g for g, r in nodes[silent].groups.items() if r.is_leader]
    gone = nodes.pop(silent)
    assert gone.groups
    for _ in range(150):
        for multi_raft in nodes.values():
            multi_raft.tick()
        for multi_raft in list(nodes.values()):
            while multi_raft.has_ready():
                write_set = multi_raft.ready()
                for packet in write_set.packets + multi_raft.synced(write_set.number):
                    if packet.to in nodes:
                        nodes[packet.to].receive(packet)
    assert all(any(h.groups[g].is_leader for h in nodes.values()) for g in led)
