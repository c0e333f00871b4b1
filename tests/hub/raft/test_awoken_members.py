"""A member that stood still answers all heartbeats of that time at once. Its leader sends what it
lacks about once all the same."""

from headwater.hub.raft import election
from headwater.hub.raft.model.config import Config
from headwater.hub.raft.model.message import Kind, Message
from headwater.hub.raft.model.options import Options
from headwater.hub.raft.model.ready import bootstrap
from headwater.hub.raft.raft import Raft

CONFIG = Config({1: 1, 2: 1, 3: 1})
ENTRIES = 200


class Group:
    """Three members. What is said to node 3 waits while it stands still, and its disk is slow when
    it goes on. All other disks are instant."""

    def __init__(self, options: Options) -> None:
        self.members = {
            node: Raft(1, node, 1, bootstrap(CONFIG, 1), lambda n: 0, options)
            for node in CONFIG.voters
        }
        self.leader = self.members[1]
        self.still = False
        self.slow = False
        self.unsynced: list[int] = []
        self.waiting: list[Message] = []
        self.entries = 0
        """Sent to node 3 since it goes on."""

    def deliver(self, m: Message) -> None:
        """To its receiver, which may stand still."""
        if m.to == 3 and self.still:
            self.waiting.append(m)
            return
        self.entries += len(m.entries) if m.to == 3 else 0
        self.members[m.to].step(m)

    def talk(self) -> None:
        """Until nobody has anything to say."""
        while any(raft.has_ready() for raft in self.members.values()):
            for raft in self.members.values():
                ready = raft.ready()
                said = list(ready.messages)
                if raft.node == 3 and self.slow:
                    self.unsynced.append(ready.number)
                else:
                    said += raft.synced(ready.number)
                for m in said:
                    self.deliver(m)

    def elect(self) -> None:
        """Node 1."""
        election.campaign(self.leader, force=True)
        self.talk()

    def stand_still(self, options: Options) -> None:
        """Node 3 hears nothing of hundreds of entries and heartbeats."""
        for n in range(ENTRIES):
            self.leader.propose([b"%d" % n])
            for _ in range(options.heartbeat_ticks):
                self.leader.tick()
            self.talk()
        assert sum(m.kind is Kind.HEARTBEAT for m in self.waiting) >= ENTRIES

    def go_on(self) -> None:
        """Node 3 votes, hears all that has come, and answers what needs no disk."""
        self.still = False
        waiting, self.waiting = self.waiting, []
        for m in waiting:
            self.slow = m.kind is not Kind.VOTE
            self.deliver(m)
            if not self.slow:
                self.talk()
        self.entries = 0
        self.talk()

    def sync(self) -> None:
        """The disk of node 3 has written, and is instant from now on."""
        self.slow = False
        unsynced, self.unsynced = self.unsynced, []
        for number in unsynced:
            for m in self.members[3].synced(number):
                self.deliver(m)
        for _ in range(2 * ENTRIES):
            self.leader.tick()
            self.talk()
        assert self.members[3].log.last == self.leader.log.last


def test_late_answers_to_a_new_leader_send_the_backlog_once() -> None:
    options = Options(hibernate_ticks=0)
    group = Group(options)
    group.still = True
    group.elect()
    group.stand_still(options)
    group.go_on()
    assert group.entries <= 2 * ENTRIES
    group.sync()
    assert group.entries <= 4 * ENTRIES


def test_late_answers_open_a_full_window_by_one_append() -> None:
    options = Options(hibernate_ticks=0, append_bytes_max=1, inflight_max=4)
    group = Group(options)
    group.elect()
    group.still = True
    group.stand_still(options)
    group.go_on()
    assert group.entries <= 1
    group.sync()
    assert group.entries <= 2 * ENTRIES
