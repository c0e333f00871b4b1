"""What can go wrong, as a list that comes from the seed and can be shortened."""

from dataclasses import dataclass

from headwater.edge.ports.twins.chance import SeededRandom
from headwater.edge.ports.twins.network import Weather
from headwater.hub.raft import membership, transfer
from headwater.hub.raft.model.errors import RaftError
from headwater.hub.raft.raft import Raft
from tests.sim.checks.echo import Echo
from tests.sim.node import SimNode
from tests.sim.trap import Trap
from tests.sim.world import World

KINDS = (
    "crash", "crash", "crash", "crash_all", "stop", "stop_all", "split", "one_way", "flap",
    "isolate_leader", "loss", "storm", "slow_disk", "pause", "pause_leader", "clock_jump",
    "clock_freeze", "transfer", "transfer", "change", "change", "change", "lie", "flip", "replace",
    "crash_leader", "stale_tail", "stale_tail", "stale_tail", "failed_sync", "failed_sync",
    "full_disk", "unreadable", "cut_change", "cut_change", "rejoin", "rejoin", "pair", "pair",
    "stall", "stall", "stall", "replay", "replay", "replay", "trap", "trap", "trap",
)  # fmt: skip


@dataclass(frozen=True)
class Fault:
    """`at` is a step of the run; `a` and `b` are chance for the kind to use."""

    at: int
    kind: str
    a: int
    b: int
    ms: int


def plan(chance: SeededRandom, steps: int) -> list[Fault]:
    """About one fault in 250 steps."""
    kinds = [kind for kind in sorted(set(KINDS)) if chance.below(3)] or ["crash"]
    weighted = [kind for kind in KINDS if kind in kinds]
    return sorted(
        (
            Fault(
                chance.below(steps),
                weighted[chance.below(len(weighted))],
                chance.below(1 << 30),
                chance.below(1 << 30),
                20 + chance.below(1500) // (1 + chance.below(8)),
            )
            for _ in range(max(1, steps // 250))
        ),
        key=lambda fault: (fault.at, fault.kind, fault.a),
    )


def strike(cluster: World, fault: Fault) -> None:
    """Let it happen now."""
    STRIKES[fault.kind](cluster, fault)


def _node(cluster: World, fault: Fault):
    return cluster.nodes[1 + fault.a % len(cluster.nodes)]


def _down(cluster: World, node, ms: int) -> None:
    if node.up:
        node.crash()
        cluster.after(ms * 1000, cluster.start_again, node)


def crash(cluster: World, fault: Fault) -> None:
    _down(cluster, _node(cluster, fault), fault.ms)


def crash_leader(cluster: World, fault: Fault) -> None:
    found = cluster.leader(1 + fault.a % len(cluster.groups))
    if found is not None:
        _down(cluster, cluster.nodes[found.node], fault.ms)


def crash_all(cluster: World, fault: Fault) -> None:
    for node in cluster.nodes.values():
        _down(cluster, node, 1 + fault.ms * (1 + node.number % 3))


def stop(cluster: World, fault: Fault) -> None:
    node = _node(cluster, fault)
    if node.up and not node.paused:
        node.stop()
        cluster.after(fault.ms * 1000, cluster.start_again, node)


def stop_all(cluster: World, fault: Fault) -> None:
    for node in cluster.nodes.values():
        if node.up and not node.paused:
            node.stop()
            cluster.after(fault.ms * 1000, cluster.start_again, node)


def _cut(cluster: World, links: set[tuple[int, int]], ms: int) -> None:
    cluster.net.cut |= links
    cluster.after(ms * 1000, cluster.mend, links)


def split(cluster: World, fault: Fault) -> None:
    side = {node for node in cluster.nodes if fault.a >> node & 1}
    every = set(cluster.nodes)
    links = {(x, y) for x in side for y in every - side}
    _cut(cluster, links | {(y, x) for x, y in links}, fault.ms)


def one_way(cluster: World, fault: Fault) -> None:
    node = _node(cluster, fault).number
    others = set(cluster.nodes) - {node}
    links = {(node, x) for x in others} if fault.b & 1 else {(x, node) for x in others}
    _cut(cluster, {link for link in links if fault.b >> sum(link) & 3}, fault.ms)


def flap(cluster: World, fault: Fault) -> None:
    x, y = 1 + fault.a % len(cluster.nodes), 1 + fault.b % len(cluster.nodes)
    for i in range(6):
        cluster.after(fault.ms * 200 * i, _cut, cluster, {(x, y), (y, x)}, fault.ms // 8)


def isolate_leader(cluster: World, fault: Fault) -> None:
    found = cluster.leader(1 + fault.a % len(cluster.groups))
    if found is not None:
        others = set(cluster.nodes) - {found.node}
        inward = {(x, found.node) for x in others}
        outward = {(found.node, x) for x in others}
        _cut(cluster, (inward, outward, inward | outward)[fault.b % 3], fault.ms)


def stale_tail(cluster: World, fault: Fault) -> None:
    """A leader takes writes that nobody hears of, and may not have them on its disk yet when it is
    back; then the one that took its place falls, or is cut off in turn."""
    found = cluster.leader(1 + fault.a % len(cluster.groups))
    if found is None:
        return
    others = set(cluster.nodes) - {found.node}
    links = {(x, found.node) for x in others} | {(found.node, x) for x in others}
    away = 150 + fault.ms // 4
    _cut(cluster, links, away)
    if fault.a // 7 % 2:
        _slow(cluster, cluster.nodes[found.node], away * 600, away + 300)
    for turn in range(1 + fault.b % 12):
        cluster.after(turn * 4000, cluster.burst, found.node, found.group)
    if fault.b % 3:
        again = Fault(fault.at, "", fault.a, fault.b // 3, 100 + fault.ms // 4)
        after = crash_leader if fault.b % 3 == 1 else isolate_leader
        cluster.after(away * 1000 - fault.a % 90_000, after, cluster, again)


def stall(cluster: World, fault: Fault) -> None:
    """What a leader says, or hears, arrives when another has led for a while."""
    found = cluster.leader(1 + fault.a % len(cluster.groups))
    if found is None:
        return
    others = set(cluster.nodes) - {found.node}
    links = {(found.node, x) for x in others}
    if fault.b % 3:
        links |= {(x, y) for y, x in links}
    cluster.stalled |= links
    for turn in range(fault.b % 8):
        cluster.after(turn * 9000, cluster.burst, found.node, found.group)
    cluster.after(200_000 + fault.ms * 250, cluster.unstall, links)


def replay(cluster: World, fault: Fault) -> None:
    """A leader hands over, or is cut off; when it leads again, everybody hears again what was said
    before."""
    found = cluster.leader(1 + fault.a % len(cluster.groups))
    if found is None or len(cluster.echoes) > 1:
        return
    heard = Echo(cluster, found)
    cluster.echoes.append(heard)
    for turn in range(fault.b % 8):
        cluster.after(turn * 9000, cluster.burst, found.node, found.group)
    away = hand_over if fault.b // 8 % 3 else isolate_leader
    again = Fault(fault.at, "", fault.a, fault.b // 24, 200)
    cluster.after(40_000 + fault.a % 40_000, away, cluster, again)
    cluster.after(200_000 + fault.ms * 100, heard.lead_again)


def set_trap(cluster: World, fault: Fault) -> None:
    """Something fails at the next rare moment."""
    if len(cluster.traps) < 3:
        cluster.traps.append(Trap(cluster, fault.a, fault.b, fault.ms))


def _weather(cluster: World, weather: Weather, ms: int) -> None:
    cluster.net.weather = weather
    cluster.after(ms * 1000, cluster.calm)


def loss(cluster: World, fault: Fault) -> None:
    _weather(cluster, Weather(loss=fault.a % 300, duplicate=fault.b % 100), fault.ms)


def storm(cluster: World, fault: Fault) -> None:
    weather = Weather(
        loss=fault.b % 50,
        duplicate=fault.a % 200,
        delay_spread_us=fault.a % 30_000,
        late=fault.b % 200,
    )
    _weather(cluster, weather, fault.ms)


def slow_disk(cluster: World, fault: Fault) -> None:
    _slow(cluster, _node(cluster, fault), 2000 + fault.b % 60_000, fault.ms)


def _slow(cluster: World, node: SimNode, sync_us: int, ms: int) -> None:
    node.sync_us = sync_us
    cluster.after(ms * 1000, setattr, node, "sync_us", 300)


def _stop_ticks(cluster: World, node, ms: int) -> None:
    """Ticks stop; the clock must go on then, see the assumptions in docs/RAFT.md."""
    if node.up and not node.paused and not node.clock.frozen:
        node.paused = True
        cluster.after(ms * 1000, node.resume)


def pause(cluster: World, fault: Fault) -> None:
    _stop_ticks(cluster, _node(cluster, fault), fault.ms)


def pause_leader(cluster: World, fault: Fault) -> None:
    found = cluster.leader(1 + fault.a % len(cluster.groups))
    if found is not None:
        _stop_ticks(cluster, cluster.nodes[found.node], fault.ms)


def clock_jump(cluster: World, fault: Fault) -> None:
    node = _node(cluster, fault)
    far = (fault.b % 2000 - 1000) * (1_000_000 >> fault.a // 5 % 6)
    node.clock.wall_offset_ns = max(10**15, node.clock.wall_offset_ns + far * 1000)
    if not node.paused:
        node.clock.jump_ns += far
        node.read_clock()
        cluster.ask(node)


def clock_freeze(cluster: World, fault: Fault) -> None:
    node = _node(cluster, fault)
    if not node.paused:
        node.clock.freeze(True)
        cluster.after(fault.ms * 1000, node.clock.freeze, False)


def hand_over(cluster: World, fault: Fault) -> None:
    """To any other, which may be gone at that moment."""
    found = cluster.leader(1 + fault.a % len(cluster.groups))
    if found is None:
        return
    try:
        target = 1 + fault.b % len(cluster.nodes)
        transfer.begin(found, target)
    except RaftError:
        return
    if fault.b // 5 % 4 == 0:
        _down(cluster, cluster.nodes[target], 200 + fault.ms)
    cluster.touch(found)


def change(cluster: World, fault: Fault) -> None:
    """Add or remove a voter."""
    found = cluster.leader(1 + fault.a % len(cluster.groups))
    target = cluster.nodes[1 + fault.b % len(cluster.nodes)]
    if found is not None and target.up:
        _change(cluster, found, target)


def _change(cluster: World, found: Raft, target: SimNode) -> None:
    """Never fewer than three voters, so that a bad disk stays a minority."""
    config = found.log.config
    try:
        if config.incarnation(target.number) is None:
            membership.add_voter(
                found, target.number, target.multi_raft.groups[found.group].incarnation
            )
        elif target.number in config.voters and len(config.voters) > 3:
            membership.remove(found, target.number)
    except RaftError:
        return
    cluster.touch(found)


def cut_change(cluster: World, fault: Fault) -> None:
    """A leader changes the members and nobody, or only some, hear of it; its node may fall before
    it is back."""
    found = cluster.leader(1 + fault.a % len(cluster.groups))
    target = cluster.nodes[1 + fault.b % len(cluster.nodes)]
    if found is None or not target.up:
        return
    hears = fault.b // 5 % (2 * len(cluster.nodes))
    others = set(cluster.nodes) - {found.node, hears}
    links = {(x, found.node) for x in others} | {(found.node, x) for x in others}
    _cut(cluster, links, 150 + fault.ms // 2)
    _change(cluster, found, target)
    if fault.a // 2 % 3 == 0:
        cluster.after(fault.ms * 200, _down, cluster, cluster.nodes[found.node], fault.ms // 4)


def rejoin(cluster: World, fault: Fault) -> None:
    """A member goes and comes back soon, in another incarnation; leaders may change in between."""
    for turn in range(4):
        cluster.after(turn * (20_000 + fault.a % 100_000), change, cluster, fault)
    if fault.b // 5 % 2:
        cluster.after(20_000 + fault.b % 200_000, crash_leader, cluster, fault)


def pair(cluster: World, fault: Fault) -> None:
    """A leader and one other are cut off from the rest, and asked what they know."""
    found = cluster.leader(1 + fault.a % len(cluster.groups))
    if found is None:
        return
    side = {found.node, 1 + fault.b % len(cluster.nodes)}
    rest = set(cluster.nodes) - side
    links = {(x, y) for x in side for y in rest}
    _cut(cluster, links | {(y, x) for x, y in links}, 300)
    for turn in range(40):
        cluster.after(turn * 7000, cluster.ask_all, found.group)


def lie(cluster: World, fault: Fault) -> None:
    disk = cluster.nodes[cluster.victim].disk
    disk.lying = True
    cluster.after(fault.ms * 3000, setattr, disk, "lying", False)
    cluster.after(fault.ms * 2000, _down, cluster, cluster.nodes[cluster.victim], fault.ms)


def flip(cluster: World, fault: Fault) -> None:
    node = cluster.nodes[cluster.victim]
    if not node.up or not cluster.sound(node.number):
        return
    _down(cluster, node, fault.ms)
    names = node.disk.names()
    name = names[fault.a % len(names)]
    size = len(node.disk.files[name].content)
    if size:
        node.disk.flip(name, fault.b % size, fault.a % 8)


def failed_sync(cluster: World, fault: Fault) -> None:
    """Of any node: the next sync fails, the node ends, and maybe the power goes soon after its
    next start."""
    node = _node(cluster, fault)
    node.disk.sync_fails = True
    if fault.b % 2:
        cluster.after(fault.ms * 2000, _down, cluster, node, fault.ms)


def full_disk(cluster: World, fault: Fault) -> None:
    node = _node(cluster, fault)
    node.disk.full = True
    cluster.after(fault.ms * 1000, setattr, node.disk, "full", False)


def unreadable(cluster: World, fault: Fault) -> None:
    """A start finds files that cannot be read; later they can."""
    node = _node(cluster, fault)
    node.disk.unreadable = True
    _down(cluster, node, fault.ms // 2)
    cluster.after(fault.ms * 1000, setattr, node.disk, "unreadable", False)


def replace(cluster: World, fault: Fault) -> None:
    node = cluster.nodes[cluster.victim]
    if node.up and cluster.sound(node.number):
        _down(cluster, node, fault.ms)
        node.disk.wipe()


STRIKES = {
    "crash": crash, "crash_all": crash_all, "stop": stop, "stop_all": stop_all, "split": split,
    "one_way": one_way, "flap": flap, "isolate_leader": isolate_leader, "loss": loss,
    "storm": storm, "slow_disk": slow_disk, "pause": pause, "pause_leader": pause_leader,
    "clock_jump": clock_jump, "clock_freeze": clock_freeze, "transfer": hand_over,
    "change": change, "lie": lie, "flip": flip, "replace": replace, "crash_leader": crash_leader,
    "stale_tail": stale_tail, "failed_sync": failed_sync, "full_disk": full_disk,
    "unreadable": unreadable, "cut_change": cut_change, "rejoin": rejoin, "pair": pair,
    "stall": stall, "replay": replay, "trap": set_trap,
}  # fmt: skip
