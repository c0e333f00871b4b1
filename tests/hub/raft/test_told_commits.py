"""When followers hear of a commit: with the next entries, when the driver says, or with a tick."""

from collections.abc import Callable

import pytest

from headwater.hub.raft import election
from headwater.hub.raft.model.config import Config
from headwater.hub.raft.model.message import Kind, Message
from headwater.hub.raft.model.options import Options
from headwater.hub.raft.model.ready import bootstrap
from headwater.hub.raft.raft import Raft

CONFIG = Config({1: 1, 2: 1, 3: 1})


class Group:
    """Three members on instant disks; everything that is said is delivered, and noted."""

    def __init__(self, defer_commits: bool) -> None:
        options = Options(hibernate_ticks=0, defer_commits=defer_commits)
        self.members = {
            node: Raft(1, node, 1, bootstrap(CONFIG, 1), lambda n: 0, options)
            for node in CONFIG.voters
        }
        self.leader = self.members[1]
        self.said: list[Message] = []
        election.campaign(self.leader, force=True)
        self.talk()
        self.leader.tick()
        self.talk()
        self.said.clear()

    def talk(self) -> None:
        """Until nobody has anything to say."""
        while any(raft.has_ready() for raft in self.members.values()):
            for raft in self.members.values():
                ready = raft.ready()
                for m in [*ready.messages, *raft.synced(ready.number)]:
                    self.said.append(m)
                    self.members[m.to].step(m)

    def commits(self) -> list[int]:
        """Of followers."""
        return [raft.log.committed for raft in self.members.values() if raft is not self.leader]

    def empty(self) -> int:
        """APPENDs that had nothing but a commit to say."""
        return sum(m.kind is Kind.APPEND and not m.entries for m in self.said)


def test_a_commit_is_told_at_once_unless_it_may_wait() -> None:
    group = Group(defer_commits=False)
    group.leader.propose([b"x"])
    group.talk()
    assert group.commits() == [group.leader.log.committed] * 2
    assert group.empty() >= 2


@pytest.mark.parametrize("tell", [Raft.tell_commit, Raft.tick])
def test_a_commit_that_may_wait_is_told_when_the_time_has_come(
    tell: Callable[[Raft], None],
) -> None:
    group = Group(defer_commits=True)
    before = group.leader.log.committed
    group.leader.propose([b"x"])
    group.talk()
    assert group.leader.log.committed == before + 1
    assert group.commits() == [before] * 2
    assert group.empty() == 0
    tell(group.leader)
    group.talk()
    assert group.commits() == [before + 1] * 2
    assert group.empty() == 2
    tell(group.leader)
    group.talk()
    assert group.empty() == 2, "it is told once"


def test_a_commit_goes_with_the_next_entries() -> None:
    group = Group(defer_commits=True)
    for n in range(5):
        group.leader.propose([b"%d" % n])
        group.talk()
        assert group.commits() == [group.leader.log.committed - 1] * 2
    assert group.empty() == 0
    appends = sum(m.kind is Kind.APPEND for m in group.said)
    assert appends == 5 * 2, "an entry costs one message to each follower"


def test_a_leader_that_leads_no_more_tells_nothing() -> None:
    group = Group(defer_commits=True)
    group.leader.propose([b"x"])
    group.talk()
    assert group.leader.commit_due
    group.leader.become_follower(group.leader.term + 1, 0)
    group.leader.tell_commit()
    assert not group.leader.commit_due
    assert group.empty() == 0
