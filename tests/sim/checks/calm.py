"""What must go well when nothing goes wrong: every read and every write is answered, and soon."""

from contextlib import suppress

from headwater.hub.raft import membership, transfer
from headwater.hub.raft.model.errors import ChangeRefused
from headwater.hub.raft.raft import Raft
from tests.sim.checks.checker import Violation
from tests.sim.node import SimNode
from tests.sim.world import World

ROUNDS = 12
"""Writes one after the other, and as many reads of each member."""
ANSWER_US = 400_000
"""In which a write or a read is answered, two election timeouts included; or else asked again."""
TRIES = 8
SLEEP_US = 1_500_000
"""Groups that may sleep do so in this time."""
PACE_US = 9_000
"""In which most writes are answered: two ways through the network and two syncs, and not the time
of a heartbeat."""


def answered(cluster: World, node: SimNode, call: int) -> bool:
    """Let time pass until a call of this node has ended, one way or the other."""
    until = cluster.now_us + ANSWER_US
    while cluster.now_us < until:
        waits = any(each.number == call for _, _, each in node.calls.values())
        if not waits and call not in node.reads:
            return True
        cluster.step()
    return False


def talk(cluster: World, group: int, missing: set[int], when: str) -> None:
    """Writes to the leader, and reads of every member, each after the other. Raises `Violation`
    when one is never answered, or when writes take turns with heartbeats."""
    for kind, count in (("write", ROUNDS), ("read", 3)):
        took = []
        for _ in range(count):
            begin = cluster.now_us
            if asked := insist(cluster, group, missing, kind, when):
                took.append((cluster.now_us - begin) // asked)
        if took and sorted(took)[len(took) // 2] > PACE_US:
            raise Violation(f"liveness: {when}{kind}s of group {group} took {took} us")


def hand_over(cluster: World, group: int, missing: set[int], when: str) -> None:
    """Another voter leads when it is asked to, unless there is none that could."""
    for _ in range(TRIES):
        leader = cluster.leader(group)
        voters = set(leader.log.config.voters) - missing if leader is not None else set()
        if leader is not None and voters - {leader.node}:
            target = min(voters - {leader.node})
            with suppress(ChangeRefused):
                transfer.begin(leader, target)
            cluster.touch(leader)
            cluster.pass_time(100_000)
            if (now := cluster.leader(group)) is not None and now.node == target:
                return
        elif leader is not None:
            return
    raise Violation(f"liveness: {when}nobody takes group {group} over: {cluster.describe()}")


def change_members(cluster: World, group: int, when: str) -> None:
    """One that is no member becomes a voter, or else one that is goes, the leader maybe."""
    for _ in range(TRIES):
        leader = cluster.leader(group)
        if leader is None:
            cluster.pass_time(50_000)
            continue
        voters = leader.log.config.voters
        outside = sorted(set(cluster.nodes) - set(leader.log.config.members()))
        number = outside[0] if outside else sorted(voters)[cluster.clients.below(len(voters))]
        wanted = number not in voters
        try:
            if wanted:
                incarnation = cluster.nodes[number].multi_raft.groups[group].incarnation
                membership.add_voter(leader, number, incarnation)
            else:
                membership.remove(leader, number)
        except ChangeRefused:
            cluster.pass_time(50_000)
            continue
        cluster.touch(leader)
        cluster.pass_time(ANSWER_US)
        now = cluster.leader(group)
        if now is not None and (number in now.log.config_at(now.log.committed).voters) == wanted:
            return
    raise Violation(f"liveness: {when}group {group} cannot change: {cluster.describe()}")


def insist(cluster: World, group: int, missing: set[int], kind: str, when: str) -> int:
    """Ask until everybody has answered. Returns how many did when once was enough, 0 otherwise."""
    done: set[int] = set()
    for count in range(TRIES):
        leader = cluster.leader(group)
        todo = [] if leader is None else askable(leader, missing, kind)
        for number in todo:
            if number not in done and ask(cluster, group, number, kind):
                done.add(number)
        if todo and done >= set(todo):
            return 0 if count else len(todo)
        cluster.pass_time(50_000)
    raise Violation(f"liveness: {when}a {kind} in group {group} is not answered by all")


def askable(leader: Raft, missing: set[int], kind: str) -> list[int]:
    """Who is to answer."""
    if kind == "write":
        return [leader.node]
    return [node for node in leader.log.config.members() if node not in missing]


def ask(cluster: World, group: int, number: int, kind: str) -> bool:
    """Whether one call was answered with what was asked for."""
    node = cluster.nodes[number]
    count = len(cluster.history.calls)
    if kind == "write":
        cluster.write(node, node.multi_raft.groups[group], "a", 9)
    else:
        cluster.read(node, node.multi_raft.groups[group], "a")
    call = cluster.history.calls[-1]
    if not answered(cluster, node, call.number) and kind == "read":
        raise Violation(f"liveness: node {number}, group {group}: a read never ends")
    return len(cluster.history.calls) > count and call.sequence >= 0


def after_faults(cluster: World) -> None:
    """Everything gets well; and, in half of the runs, again without one node, while another one
    comes back from a power cut, maybe out of a long sleep."""
    chance = cluster.clients
    check(cluster, set(), "")
    if not chance.below(2):
        return
    sleepy = chance.below(2)
    if sleepy:
        silence_strangers(cluster)
        cluster.pass_time(SLEEP_US)
    leader = cluster.leader(1 + chance.below(2))
    chosen = leader is not None and (sleepy or chance.below(2))
    number = leader.node if leader is not None and chosen else 1 + chance.below(5)
    cluster.nodes[number].crash()
    check(cluster, {number}, f"without node {number}: ")
    if chance.below(2):
        doubtful = cluster.nodes[1 + (number + chance.below(4)) % 5]
        doubtful.crash()
        doubtful.start()
        check(cluster, {number}, f"without node {number}, and {doubtful.number} in doubt: ")
    cluster.nodes[number].start()
    check(cluster, set(), "after all that: ")


def silence_strangers(cluster: World) -> None:
    """Replicas that are no members ask everybody to take them in, and nobody could sleep."""
    for group in cluster.groups:
        leader = cluster.leader(group)
        for node in cluster.nodes.values() if leader is not None else ():
            if leader is not None and node.number not in leader.log.config.members():
                node.multi_raft.groups[group].recovery.seeds = ()


def check(cluster: World, missing: set[int], when: str) -> None:
    """One state of things."""
    for group in cluster.settle(missing, when):
        talk(cluster, group, missing, when)
        hand_over(cluster, group, missing, when)
        if not missing and cluster.clients.below(2):
            change_members(cluster, group, when)
    none_waits(cluster)


def none_waits(cluster: World) -> None:
    """No node that is up owes an answer to a read for long. One that was asked a moment ago may,
    and so may a replica that was taken out of its group and made silent before it heard of it."""
    asked = {node.number: owed(cluster, node) for node in cluster.nodes.values()}
    cluster.pass_time(ANSWER_US)
    for node in cluster.nodes.values():
        forgotten = asked[node.number] & owed(cluster, node) if node.up else set()
        if forgotten:
            raise Violation(f"liveness: node {node.number} has forgotten reads {forgotten}")


def owed(cluster: World, node: SimNode) -> set[int]:
    """Reads of groups that the node is a member of, as their leaders know."""
    leaders = {group: cluster.leader(group) for group in cluster.groups}
    return {
        number
        for number, (group, *_) in node.reads.items()
        if (leader := leaders[group]) is None or node.number in leader.log.config.members()
    }
