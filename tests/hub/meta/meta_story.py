"""Administrators and clients of a whole cluster under faults from a seed, and what must hold.

Streams are made, changed, moved and deleted through the meta group, with one replica or three, and
published to, while nodes fall and links are cut. Checked when faults have stopped: what the meta
group answered is what is known, on every node the same; every stream is on the nodes it is said to
be on, as it was described, and nowhere else; what was acknowledged is there.
"""

import json
from typing import Any

import msgspec

from headwater.edge.ports.twins.chance import SeededRandom
from headwater.hub.meta.assignment import META_GROUP, NO_GROUP, Assignment, Gone
from headwater.hub.meta.meta_group import NoLeader
from headwater.hub.meta.state import Conflict
from headwater.hub.raft.model.errors import RaftError
from tests.hub.meta.meta_cluster import MetaCluster, MetaNode

NAMES = ("A", "B", "C", "D")


class Broken(AssertionError):
    """Something that must hold does not."""


class MetaStory:
    """One run. `steps` is how often something happens."""

    def __init__(self, seed: int, steps: int = 60) -> None:
        self.chance = SeededRandom(seed)
        self.steps = steps
        self.cluster = MetaCluster(3 if seed % 3 else 4, seed, (200, 256 << 10)[seed % 2])
        self.made = 0
        self.versions: dict[tuple[str, int], msgspec.Raw] = {}
        """What the meta group said that a version of a stream is."""
        self.groups: dict[int, str] = {}
        """Whose group a number is."""
        self.wished_gone: set[str] = set()
        """Incarnations whose deletion was asked for."""
        self.gone: set[str] = set()
        """Those whose deletion was confirmed."""
        self.acked: dict[str, dict[int, bytes]] = {}
        """By incarnation: what was acknowledged."""
        self.refused = 0
        self.unanswered: list[Assignment | Gone] = []
        """Creations and deletions that nobody answered: they are asked for again, maybe late."""

    def check(self, holds: bool, what: str) -> None:
        """Raise what does not hold; callbacks raise nothing."""
        if not holds:
            self.cluster.errors.append(Broken(what))
            raise Broken(what)

    # -- administrators -----------------------------------------------------------

    def believers(self) -> list[MetaNode]:
        """Nodes that would decide: during a partition there may be more than one."""
        return [node for node in self.cluster.nodes.values() if node.up and node.group.serves]

    def administer(self) -> None:
        """Ask for something, at a node that believes that it leads."""
        found = self.believers()
        if not found:
            return
        leader = found[self.chance.below(len(found))]
        if self.unanswered and self.chance.below(2):
            self.ask(leader, self.unanswered.pop(0))
            return
        name = NAMES[self.chance.below(len(NAMES))]
        known = leader.state.stream("A", name)
        if known is None or self.chance.below(8) == 0:
            self.ask(leader, self.new(leader, name))
        elif self.chance.below(3) == 0:
            there = known.assignment
            self.wished_gone.add(there.incarnation)
            self.ask(leader, Gone(account="A", name=name, incarnation=there.incarnation))
        else:
            for _ in range(1 + (self.chance.below(3) == 0)):
                # Two at once may both be decided by what was known before.
                self.ask(leader, self.changed(leader, known.assignment))

    def new(self, leader: MetaNode, name: str) -> Assignment:
        """A stream with one replica or three; its subject may be another one's."""
        self.made += 1
        members = sorted(leader.state.members)
        first = self.chance.below(len(members))
        count = 3 if self.chance.below(3) and len(members) > 2 else 1
        peers = [members[(first + n) % len(members)] for n in range(count)]
        subject = NAMES[self.chance.below(8) % 4] if self.chance.below(6) == 0 else name
        return self.cluster.assignment(
            leader, name, peers, f"{self.made:032x}", subjects=[f"{subject.lower()}.>"]
        )

    def changed(self, leader: MetaNode, there: Assignment) -> Assignment:
        """Another configuration, or one replica elsewhere."""
        config = msgspec.structs.replace(
            there.stream_config, max_msgs=100 + self.chance.below(1000)
        )
        peers = list(there.peers)
        spare = [n for n in sorted(leader.state.members) if n not in peers]
        if there.group != NO_GROUP and spare and self.chance.below(2):
            peers[self.chance.below(len(peers))] = spare[self.chance.below(len(spare))]
        return msgspec.structs.replace(
            there,
            config=msgspec.Raw(msgspec.json.encode(config)),
            peers=peers,
            boots=[leader.state.boot_of(number) for number in peers],
            version=there.version + 1,
        )

    def ask(self, leader: MetaNode, wanted: Assignment | Gone) -> None:
        """Propose, and remember the answer."""

        async def work() -> None:
            try:
                answer = await leader.group.submit(wanted)
            except NoLeader:
                if isinstance(wanted, Gone) or not wanted.version:
                    self.unanswered.append(wanted)
                return
            if isinstance(wanted, Gone) or not wanted.version:
                self.again(wanted)
            if isinstance(answer, Conflict):
                self.refused += 1
            elif isinstance(answer, Gone):
                self.gone.add(answer.incarnation)
            else:
                self.took(answer)

        self.cluster.run(work())

    def again(self, wanted: Assignment | Gone) -> None:
        """Some answers get lost, and who asked does it once more, later."""
        if self.chance.below(4) == 0:
            self.unanswered.append(wanted)

    def took(self, there: Assignment) -> None:
        """The meta group has said that this is so."""
        key = (there.incarnation, there.version)
        self.check(
            self.versions.setdefault(key, there.config) == there.config,
            f"version {there.version} of {there.name} is two things",
        )
        self.check(there.incarnation not in self.gone, f"{there.name} is changed behind its end")
        if there.group != NO_GROUP:
            whose = self.groups.setdefault(there.group, there.incarnation)
            self.check(whose == there.incarnation, f"group {there.group} is two streams'")

    # -- clients ------------------------------------------------------------------

    def publish(self) -> None:
        """Publish to a stream where it lives."""
        for node in self.cluster.nodes.values():
            if not node.up or self.chance.below(2):
                continue
            for known in list(node.state.streams.values()):
                there = known.assignment
                stream = node.applier.local(there)
                if stream is not None and there.stream_config.subjects:
                    self.send(node, there)

    def send(self, node: MetaNode, there: Assignment) -> None:
        """One message, and its ack."""
        inbox = f"_INBOX.p.{self.cluster.number()}"
        payload = b"%d" % self.cluster.number()
        life = node.life

        def told(body: bytes) -> None:
            answer = json.loads(body)
            if node.life == life and "error" not in answer and answer.get("stream") == there.name:
                held = self.acked.setdefault(there.incarnation, {})
                self.check(answer["seq"] not in held, f"{answer['seq']} stands for two messages")
                held[answer["seq"]] = payload

        node.listen(inbox, told)
        subject = there.stream_config.subjects[0].replace(">", "x")  # type: ignore[index]
        node.publish(subject, payload, inbox)

    # -- faults -------------------------------------------------------------------

    def fault(self) -> None:
        """Something breaks, or is mended."""
        cluster, chance = self.cluster, self.chance
        up = [node for node in cluster.nodes.values() if node.up]
        down = [node for node in cluster.nodes.values() if not node.up]
        what = chance.below(7)
        leader = cluster.serving()
        if what < 2 and len(up) > 1:
            node = leader if leader is not None and chance.below(2) else up[chance.below(len(up))]
            node.crash(("some", "everything", "nothing")[chance.below(3)])
        elif what == 2 and leader is not None:
            others = [n for n in cluster.nodes if n != leader.number]
            cluster.cut |= {(leader.number, n) for n in others}
            if chance.below(2):
                cluster.cut |= {(n, leader.number) for n in others}
        elif what == 3:
            cluster.cut.clear()
        elif what == 4 and leader is not None:
            try:
                leader.group.step_down(0)
            except RaftError:
                return
        elif what == 5:
            self.squeeze()
        else:
            for node in down:
                if chance.below(2):
                    node.open()

    def squeeze(self) -> None:
        """Let go of entries, so that members that were away need the state."""
        for node in self.cluster.nodes.values():
            for number, raft in node.multi_raft.groups.items() if node.up else ():
                replica = node.store.replicas[number]
                if replica.store is not None and replica.marked == replica.mark.index:
                    node.store.compact(raft)

    # -- the run ------------------------------------------------------------------

    def run(self) -> None:
        """The whole story. Raises Broken or AssertionError."""
        self.cluster.formed()
        for _ in range(self.steps):
            what = self.chance.below(10)
            if what < 5:
                self.administer()
            elif what < 8:
                self.publish()
            else:
                self.fault()
            self.cluster.sleep((1 + self.chance.below(500)) / 1000)
        self.calm()

    def calm(self) -> None:
        """Faults have stopped: everything must come right."""
        cluster = self.cluster
        cluster.cut.clear()
        for node in cluster.nodes.values():
            if not node.up:
                node.open()
        cluster.wait(lambda: cluster.serving() is not None, 60)
        cluster.sleep(5)
        cluster.settle_group(META_GROUP)
        states = {n: self.known(node) for n, node in cluster.nodes.items()}
        for number, state in states.items():
            self.check(state == states[1], f"node {number} knows other streams than node 1")
        self.compare(cluster.nodes[1])
        for known in list(cluster.nodes[1].state.streams.values()):
            self.check_stream(known.assignment)
        self.nothing_else()

    def known(self, node: MetaNode) -> Any:
        """What a node knows of all streams."""
        node.state.load()
        streams = {key: msgspec.json.encode(k.assignment) for key, k in node.state.streams.items()}
        return streams, node.state.members, set(node.state.gone), node.state.rest

    def compare(self, node: MetaNode) -> None:
        """What was answered is so, or was followed by something else."""
        known = {k.assignment.incarnation: k.assignment for k in node.state.streams.values()}
        for incarnation in self.gone:
            self.check(incarnation not in known, f"{incarnation} is there behind its end")
        for incarnation, version in self.versions:
            there = known.get(incarnation)
            if there is None:
                self.check(incarnation in self.wished_gone, f"{incarnation} is forgotten")
            else:
                self.check(there.version >= version, f"a change of {there.name} is forgotten")
        subjects = [s for each in known.values() for s in each.stream_config.subjects or ()]
        self.check(len(set(subjects)) == len(subjects), "two streams have one subject")

    def check_stream(self, there: Assignment) -> None:
        """A stream is where it should be, and what it should be."""
        cluster = self.cluster
        if there.group != NO_GROUP:
            cluster.wait(lambda: self.has_moved(there), 60)
            cluster.settle_group(there.group, there.peers)
            rows = [cluster.nodes[n].replica_rows(there.group) for n in there.peers]
            self.check(all(each == rows[0] for each in rows), f"replicas of {there.name} differ")
        else:
            cluster.wait(lambda: cluster.nodes[there.peers[0]].has(there) is not None)
        for number in there.peers:
            stream = cluster.nodes[number].has(there)
            self.check(stream is not None, f"{there.name} is not on node {number}")
            assert stream is not None
            config = there.stream_config
            self.check(stream.config == config, f"{there.name} on {number} is another one")
            for sequence, payload in self.acked.get(there.incarnation, {}).items():
                held = stream.store.get(sequence)
                self.check(
                    sequence < stream.store.first_seq
                    or (held is not None and bytes(held.payload) == payload),
                    f"{sequence} of {there.name} was acknowledged and is lost",
                )

    def has_moved(self, there: Assignment) -> bool:
        """Whether a group's members and its configuration are those that are wanted."""
        for node in self.cluster.nodes.values():
            stream = node.streams.stream(there.group)
            if stream is not None:
                config = node.multi_raft.groups[there.group].log.config
                members = set(config.voters) == set(there.peers) and not config.learners
                return members and stream.config == there.stream_config
        return False

    def nothing_else(self) -> None:
        """No node has a stream that it is not said to have."""
        cluster = self.cluster
        cluster.sleep(3)
        for number, node in cluster.nodes.items():
            wanted = {
                k.assignment.incarnation
                for k in node.state.streams.values()
                if number in k.assignment.peers
            }
            found = {stream.incarnation for _, stream in node.applier.streams()}
            self.check(found <= wanted, f"node {number} serves {found - wanted} besides")
            groups = {k.assignment.group for k in node.state.streams.values()
                      if number in k.assignment.peers} - {NO_GROUP}  # fmt: skip
            more = node.multi_raft.groups.keys() - groups - {META_GROUP}
            self.check(not more, f"node {number} is in groups {sorted(more)} besides")
