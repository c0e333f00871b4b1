"""Clients and faults over replicated streams, from a seed, and what must hold at every moment.

Checked while it runs: no sequence is acknowledged for two messages, no message id for two
sequences, nothing is delivered again whose ack was confirmed, no direct get at any node shows less
than what was acknowledged or read before it was asked for. Checked when faults have stopped:
what was acknowledged is there on every replica, replicas are equal, the stream takes writes.
"""

import json
from typing import Any

from headwater.edge.kernel.kernel import CallbackSink
from headwater.edge.ports.twins.chance import SeededRandom
from headwater.hub.raft import transfer
from tests.hub.streams.stream_cluster import ClusterNode, StreamCluster

GROUP = 2
KINDS = ("limits", "bounded", "workqueue")
NEXT = "$JS.API.CONSUMER.MSG.NEXT.S.C"
RETRY_S = 1.0
"""After which a publisher that heard nothing sends its message again, under the same id."""


class Broken(AssertionError):
    """Something that must hold does not."""


class StreamStory:
    """One run. `steps` is how often something happens."""

    def __init__(self, seed: int, steps: int = 60) -> None:
        self.chance = SeededRandom(seed)
        self.in_memory = ("false", "true")[seed % 5 == 3]
        """Whether the consumer has `mem_storage`."""
        self.steps = steps
        self.kind = KINDS[self.chance.below(len(KINDS))]
        parts = (200, 256 << 10)[seed % 2]
        self.cluster = StreamCluster(3, seed, parts, leases=seed % 3 != 0)
        fields: dict[str, Any] = {"duplicate_window": 60_000_000_000, "allow_direct": True}
        if self.kind == "bounded":
            fields["max_msgs"] = 20
        if self.kind == "workqueue":
            fields["retention"] = "workqueue"
        self.cluster.make(**fields)
        self.acked: dict[int, bytes] = {}
        self.ids: dict[bytes, int] = {}
        self.waiting: dict[bytes, float] = {}
        self.sent = 0
        self.confirmed: set[int] = set()
        self.newest: dict[str, int] = {}
        """By subject: the last sequence that somebody knows of."""
        self.gets = 0
        """Direct gets that were answered."""
        self.done: list[str] = []

    def check(self, holds: bool, what: str) -> None:
        """Note, and raise, what does not hold: callbacks of sinks may raise nothing."""
        if not holds:
            self.cluster.errors.append(Broken(what))
            raise Broken(what)

    # -- clients ----------------------------------------------------------------

    def living(self) -> ClusterNode | None:
        """The node that clients find: where the stream lives in the greatest term."""
        found = [
            node
            for node in self.cluster.nodes.values()
            if node.up and node.streams.stream(GROUP) is not None
        ]
        return max(found, key=lambda node: node.streams.groups[GROUP].raft.term, default=None)

    def publish(self, node: ClusterNode, name: bytes) -> None:
        """Publish the message of an id, and note its ack."""
        inbox = f"_INBOX.p.{self.cluster.number()}"
        self.waiting[name] = self.cluster.loop.time()

        subject = f"s.{name[-1] % 4}"

        def told(payload: bytes) -> None:
            answer = json.loads(payload)
            if "error" not in answer:
                self.took(answer["seq"], name)
                self.knows(subject, answer["seq"])

        node.listen(inbox, told)
        block = b"NATS/1.0\r\nNats-Msg-Id: " + name + b"\r\n\r\n"
        node.publish(subject, name, inbox, block)

    def knows(self, subject: str, sequence: int) -> None:
        """Somebody has heard that a message is the last one of a subject, or was."""
        self.newest[subject] = max(self.newest.get(subject, 0), sequence)

    def get(self, node: ClusterNode, at_once: bool = False) -> None:
        """A client of some node gets the last message of a subject; `at_once`: before the node does
        anything else."""
        subject = f"s.{self.chance.below(4)}"
        inbox = f"_INBOX.g.{self.cluster.number()}"
        before: list[int] = []

        def told(s: bytes, r: bytes, block: bytes, payload: bytes, o: object) -> None:
            words = block.split()
            if block.startswith(b"NATS/1.0 404"):
                gone = self.kind != "limits" or not before[0]
                self.check(gone, f"nothing on {subject}, where {before[0]} was before")
                self.gets += 1
            elif b"Nats-Sequence:" in words:
                sequence = int(words[words.index(b"Nats-Sequence:") + 1])
                text = f"{sequence} is the last of {subject}, where {before[0]} was before"
                self.check(sequence >= before[0] or self.kind == "workqueue", text)
                self.knows(subject, sequence)
                self.gets += 1

        def ask() -> None:
            before.append(self.newest.get(subject, 0))
            name = f"$JS.API.DIRECT.GET.S.{subject}".encode()
            node.account.send(name, b"", inbox.encode(), b"", own=True)
            node.kernel.turn()

        node.account.insert(CallbackSink(inbox.encode(), told))
        if at_once:
            ask()
        else:
            node.loop.call_later(self.chance.below(30) / 1000, ask)

    def took(self, sequence: int, name: bytes) -> None:
        """A message was acknowledged."""
        self.check(self.acked.get(sequence, name) == name, f"{sequence} stands for two messages")
        self.check(self.ids.get(name, sequence) == sequence, f"{name!r} was stored twice")
        self.acked[sequence] = name
        self.ids[name] = sequence
        self.waiting.pop(name, None)

    def write(self) -> None:
        """Publish some messages, new ones and those that nobody has acknowledged."""
        node = self.living()
        if node is None:
            return
        now = self.cluster.loop.time()
        for name, since in list(self.waiting.items()):
            if now - since > RETRY_S:
                self.publish(node, name)
        for _ in range(1 + self.chance.below(8)):
            self.sent += 1
            self.publish(node, b"m%d" % self.sent)

    def read(self) -> None:
        """Fetch some messages, and acknowledge them with a wish to hear of it. Some clients are at
        a node that does not know yet that another one leads."""
        for each in self.cluster.nodes.values():
            if each.up and self.chance.below(2):
                self.get(each)
        node = self.living()
        if self.chance.below(3) == 0:
            believers = [n for n in self.cluster.nodes.values() if n.up and n.streams.stream(GROUP)]
            node = believers[self.chance.below(len(believers))] if believers else None
        if node is not None:
            self.read_at(node)

    def read_at(self, node: ClusterNode) -> None:
        """A client of one node fetches some messages."""
        inbox, request = self.listen_for_messages(node)
        node.publish(NEXT, request, inbox)

    def read_of_both(self, cut_off: ClusterNode) -> None:
        """Clients of a leader that is cut off, and of the one that takes its place, fetch."""
        now = self.living()
        for each in self.cluster.nodes.values():
            if each.up:
                self.get(each)
        for node in (now, cut_off):
            if node is not None and node.up and node.streams.stream(GROUP) is not None:
                self.read_at(node)

    def listen_for_messages(self, node: ClusterNode) -> tuple[str, bytes]:
        """An inbox for messages, and what to ask for them."""
        inbox = f"_INBOX.c.{self.cluster.number()}"
        node.account.insert(
            CallbackSink(inbox.encode(), lambda s, r, h, payload, o: self.got(node, r, payload))
        )
        return inbox, b'{"batch":%d,"no_wait":true}' % (1 + self.chance.below(10))

    def read_first(self, node: ClusterNode) -> None:
        """The first thing that a node hears when its process goes on is a request for messages."""
        inbox, request = self.listen_for_messages(node)
        node.account.send(NEXT.encode(), request, inbox.encode(), b"", own=True)
        node.kernel.turn()
        self.get(node, at_once=True)

    def got(self, node: ClusterNode, reply: bytes, payload: bytes) -> None:
        """A message was delivered."""
        if not reply:
            return
        sequence = int(reply.split(b".")[5])
        again = sequence in self.confirmed
        self.check(not again, f"{sequence} is delivered behind its confirmed ack")
        self.check(self.acked.get(sequence, payload) == payload, f"{sequence} is another message")
        if self.chance.below(4) == 0:
            return
        inbox = f"_INBOX.a.{self.cluster.number()}"
        node.listen(inbox, lambda _: self.confirmed.add(sequence))
        node.publish(reply.decode(), b"+ACK", inbox)

    def make_consumer(self) -> None:
        """Make the consumer that all reads go by."""
        node = self.cluster.leader(GROUP)
        config = '{"durable_name":"C","ack_policy":"explicit","ack_wait":2000000000'
        config += f',"mem_storage":{self.in_memory}}}'
        node.ask("$JS.API.CONSUMER.CREATE.S.C", f'{{"stream_name":"S","config":{config}}}'.encode())

    # -- faults -----------------------------------------------------------------

    def fault(self) -> None:
        """Something breaks, or is mended."""
        up = [node for node in self.cluster.nodes.values() if node.up]
        down = [node for node in self.cluster.nodes.values() if not node.up]
        what = self.chance.below(11)
        if what < 2 and len(up) > 1:
            node = self.living() if self.chance.below(2) else None
            node = node or up[self.chance.below(len(up))]
            self.done.append(f"crash {node.number}")
            node.crash(("some", "all", "none")[self.chance.below(3)])
        elif what == 2:
            leader = self.living()
            if leader is not None:
                others = [number for number in self.cluster.nodes if number != leader.number]
                pairs = {(leader.number, n) for n in others}
                if self.chance.below(2):
                    pairs |= {(n, leader.number) for n in others}
                self.done.append(f"cut {sorted(pairs)}")
                self.cluster.cut |= pairs
                self.write()
                for turn in range(16):
                    self.cluster.loop.call_later(0.3 + turn * 0.1, self.read_of_both, leader)
        elif what == 3:
            self.done.append("mend")
            self.cluster.cut.clear()
            self.cluster.slow.clear()
        elif what == 10:
            self.slow_down((1 + self.chance.below(3), 1 + self.chance.below(3)))
        elif what == 4 and len(down) == 0:
            leader = self.living()
            other = 1 + self.chance.below(3)
            leads = leader is not None and leader.streams.groups[GROUP].raft.is_leader
            if leader is not None and leads and other != leader.number:
                self.done.append(f"hand over to {other}")
                raft = leader.streams.groups[GROUP].raft
                if other not in raft.log.config.voters:
                    return
                if len(self.done) % 2:
                    leader.streams.transfer(GROUP, other)
                else:
                    # One that waits for nothing, as for a full storage.
                    transfer.begin(raft, other)
                    leader.streams.driver.touch(raft)
        elif what == 5 and len(down) == 0 and self.chance.below(3) == 0:
            self.done.append("all without power")
            for node in up:
                node.crash("all")
        elif what == 6 and len(down) == 0:
            self.wipe()
        elif what == 7:
            leader = self.living()
            if leader is not None:
                self.done.append(f"stop {leader.number}")
                leader.stop_process()
        elif what == 8:
            self.done.append("all go on")
            self.go_on()
        else:
            for node in down:
                if self.chance.below(2):
                    self.done.append(f"open {node.number}")
                    node.open()

    def slow_down(self, pair: tuple[int, int]) -> None:
        """Frames from one node to another take longer."""
        self.done.append(f"slow {pair}")
        self.cluster.slow[pair] = self.chance.below(100) / 1000

    def go_on(self) -> None:
        """Processes that were stopped run again."""
        for node in self.cluster.nodes.values():
            if node.up and node.loop.stopped is not None:
                lives = node.streams.stream(GROUP) is not None
                first = self.read_first if lives else lambda n: self.get(n, at_once=True)
                node.go_on(lambda n=node, act=first: act(n))

    def wipe(self) -> None:
        """Take a follower's disk away, when all members are as good as new and it has everything.
        Another follower may be behind: then the leader alone has what both had."""
        leader = self.living()
        if leader is None:
            return
        groups = {n: node.streams.groups[GROUP] for n, node in self.cluster.nodes.items()}
        rafts = {n: group.raft for n, group in groups.items() if group.raft is not None}
        voters = rafts[leader.number].log.config.voters
        if len(rafts) < 3 or any(
            raft.recovering or voters.get(n) != raft.incarnation for n, raft in rafts.items()
        ):
            return
        for number, raft in rafts.items():
            if number != leader.number and raft.log.durable == rafts[leader.number].log.last:
                self.done.append(f"wipe {number}")
                self.cluster.nodes[number].crash("all")
                self.cluster.nodes[number].wipe()
                self.cluster.nodes[number].open()
                return

    def squeeze(self) -> None:
        """Let go of most entries, so that members that were away need a snapshot."""
        for node in self.cluster.nodes.values():
            group = node.streams.groups.get(GROUP) if node.up else None
            if group is not None and group.raft is not None and group.replica.store is not None:
                node.store.trim(group.raft, 200, 400)

    # -- the run ------------------------------------------------------------------

    def run(self) -> None:
        """The whole story. Raises Broken or AssertionError."""
        self.make_consumer()
        for _ in range(self.steps):
            what = self.chance.below(10)
            if what < 4:
                self.write()
            elif what < 7:
                self.read()
            elif what == 7:
                self.squeeze()
            else:
                self.fault()
            self.cluster.sleep((1 + self.chance.below(400)) / 1000)
        self.calm()

    def calm(self) -> None:
        """Faults have stopped: everything must come right."""
        self.cluster.cut.clear()
        self.cluster.slow.clear()
        self.go_on()
        for node in self.cluster.nodes.values():
            if not node.up:
                node.open()
        self.cluster.sleep(3)
        leader = self.cluster.leader(GROUP)
        for name in list(self.waiting):
            self.publish(leader, name)
        self.cluster.wait(lambda: not self.waiting, 30)
        self.cluster.settle(GROUP)
        for node in self.cluster.nodes.values():
            self.cluster.wait(lambda n=node: self.answers(n), 10)
        rows = {n: node.replica_rows(GROUP) for n, node in self.cluster.nodes.items()}
        for number, found in rows.items():
            self.check(found == rows[1], f"node {number} has another replica than node 1")
            held = {row[0]: row[4] for row in found[1:] if isinstance(row[0], int)}
            self.compare(found[0], held)
        keys = [row[0] for row in rows[1][1:]]
        self.check(b"consumer/C" in keys, "the consumer is gone")

    def answers(self, node: ClusterNode) -> bool:
        """Whether a node answers direct gets; it is asked again and again."""
        before = self.gets
        for _ in range(4):
            self.get(node)
        self.cluster.sleep(0.2)
        return self.gets > before

    def compare(self, state: tuple[Any, ...], held: dict[int, bytes]) -> None:
        """One replica against what clients know."""
        names = list(held.values())
        self.check(len(set(names)) == len(names), "a message is stored twice")
        if self.kind == "bounded":
            self.check(len(held) == min(20, state[1]), f"{len(held)} messages, the limit is 20")
        for sequence, name in self.acked.items():
            if self.kind == "workqueue" and sequence not in held:
                continue
            if self.kind == "bounded" and sequence < state[0]:
                continue
            self.check(held.get(sequence) == name, f"{sequence} was acknowledged and is lost")
        if self.kind == "workqueue":
            left = self.confirmed & set(held)
            self.check(not left, f"{sorted(left)} are there behind their confirmed acks")
