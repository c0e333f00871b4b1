"""A process that was stopped finds packets that came meanwhile, and no tick told it the time."""

from random import Random

from headwater.hub.raft.model.config import Config
from headwater.hub.raft.model.message import Kind
from headwater.hub.raft.model.options import Options
from headwater.hub.raft.model.ready import bootstrap
from headwater.hub.raft.raft import Raft

TICK_NS = 10_000_000


def pump(nodes: dict[int, Raft]) -> None:
    while any(raft.has_ready() for raft in nodes.values()):
        for raft in nodes.values():
            if raft.has_ready():
                ready = raft.ready()
                for m in ready.messages + raft.synced(ready.number):
                    nodes[m.to].step(m)


def led() -> tuple[dict[int, Raft], Raft, int]:
    """A group, its leader, which has a lease, and what time it is."""
    config = Config({1: 1, 2: 1, 3: 1})
    options = Options(tick_ns=TICK_NS, lease_reads=True, hibernate_ticks=0)
    chance = Random(3).randrange
    nodes = {n: Raft(1, n, 1, bootstrap(config, n), chance, options) for n in config.voters}
    for tick in range(60):
        for raft in nodes.values():
            raft.tick(tick * TICK_NS)
        pump(nodes)
    return nodes, next(raft for raft in nodes.values() if raft.is_leader), 59 * TICK_NS


def test_a_read_of_a_follower_does_not_count_on_the_lease() -> None:
    nodes, leader, now = led()
    leader.read(7, now)
    assert [state.context for state in leader.ready().reads] == [7], "the lease holds"
    asker = next(node for node in nodes if node != leader.node)
    leader.step(nodes[asker].read(8, now) or nodes[asker].ready().messages[0])
    ready = leader.ready()
    said = ready.messages + leader.synced(ready.number)
    assert Kind.READ_REPLY not in [m.kind for m in said]
    assert Kind.HEARTBEAT in [m.kind for m in said], "it asks whether it leads still"


def test_a_read_of_a_follower_counts_on_the_lease_as_of_the_moment_it_is_taken() -> None:
    nodes, leader, now = led()
    asker = nodes[next(node for node in nodes if node != leader.node)]
    for passed, kind in ((TICK_NS, Kind.READ_REPLY), (9 * TICK_NS, Kind.HEARTBEAT)):
        asker.read(8, now)
        leader.moment_ns = now + passed
        leader.step(asker.ready().messages[0])
        ready = leader.ready()
        said = ready.messages + leader.synced(ready.number)
        assert [m.kind for m in said if m.to == asker.node] == [kind]
