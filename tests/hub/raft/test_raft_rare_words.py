"""What members say seldom, each rule alone: no simulated story depends on them."""

from random import Random

import pytest

from headwater.hub.raft.model.config import Config
from headwater.hub.raft.model.message import Kind, Message
from headwater.hub.raft.model.options import Options
from headwater.hub.raft.model.ready import bootstrap
from headwater.hub.raft.multi_raft import LOOK_TICKS, MultiRaft
from headwater.hub.raft.progress import State
from headwater.hub.raft.raft import Raft
from tests.hub.raft.stage import Stage


def stage_with(*commands: str, options: str = "options") -> tuple[Stage, Raft]:
    """Three members, and the first of them, which leads in term 2."""
    stage = Stage()
    for command in (options, "group 1 2 3", "campaign 1", "settle", *commands):
        stage.run(command)
    leader = stage.actors[1].raft
    assert leader.is_leader
    return stage, leader


def said(kind: Kind, sender: int, leader: Raft, **rest: int) -> Message:
    """A word of a member in its first start, to the leader."""
    known = {"term": leader.term, "boot": 1, "incarnation": 1, "to_boot": leader.boot}
    return Message(kind, sender, leader.node, leader.group, **(known | rest))


@pytest.mark.parametrize("later", range(LOOK_TICKS))
def test_what_ends_with_a_tick_is_told_with_that_tick(later: int) -> None:
    """A follower is looked at now and then; its read that nobody answers ends in time."""
    options = Options(hibernate_ticks=0)
    multi = MultiRaft(1, 1, lambda n: n - 1, options)
    raft = multi.add(1, bootstrap(Config({1: 1, 2: 1, 3: 1}), 1))
    heartbeat = Message(Kind.HEARTBEAT, 2, 1, 1, term=2, boot=1, incarnation=1)
    for _ in range(later):
        multi.tick()
    raft.step(heartbeat)
    raft.read(7)
    multi.touch(raft)
    ended = -1
    for number in range(1, options.election_ticks + 2 + LOOK_TICKS):
        while multi.has_ready():
            for _, ready in multi.ready().groups:
                if ready.reads:
                    ended = number - 1
                raft.synced(ready.number)
        raft.step(heartbeat)
        multi.tick()
    assert ended == options.election_ticks + 1


def test_the_present_incarnation_is_never_fenced() -> None:
    """A learner that stopped in order speaks for the incarnation that it was taken in as."""
    config = Config({1: 1}, {2: 5})
    assert not config.fenced(1, 1) and not config.fenced(2, 5)
    assert config.fenced(1, 0) and config.fenced(2, 4)
    assert config.with_learner(2, 5, returning=True).returning == {2}


def test_a_learner_that_stopped_in_order_is_heard_under_its_next_start() -> None:
    """It is the same member, and its start has another number."""
    raft = Raft(1, 1, 1, bootstrap(Config({1: 1}, {2: 5}), 1), Random(1).randrange)
    word = Message(Kind.HELLO, 2, 1, 1, boot=9, incarnation=5)
    raft.step(word)
    ready = raft.ready()
    answers = [m.kind for m in [*ready.messages, *raft.synced(ready.number)] if m.to == 2]
    assert answers == [Kind.HELLO_REPLY]


def test_who_hears_that_it_was_removed_writes_that_down() -> None:
    """It says nothing then, so nothing else makes it write."""
    _, leader = stage_with()
    follower = Raft(1, 3, 4, bootstrap(leader.log.config, 3), Random(1).randrange)
    follower.synced(follower.ready().number)
    assert not follower.has_ready()
    gone = Message(Kind.GONE, 1, 3, 1, term=2, boot=1, incarnation=1, to_boot=4, context=1)
    follower.step(gone)
    assert follower.removed and follower.has_ready()
    hard = follower.ready().hard_state
    assert hard is not None and hard.removed


def test_an_ack_of_what_was_never_written_counts_for_nothing() -> None:
    """A peer that says so is broken; its log is not fed as if it were ahead."""
    _, leader = stage_with()
    before = leader.log.committed
    for node in (2, 3):
        leader.step(said(Kind.APPEND_REPLY, node, leader, index=leader.log.last + 90))
    assert leader.log.committed == before
    for node in (2, 3):
        member = leader.progress[node]
        assert (member.match, member.next) == (leader.log.last, leader.log.last + 1)


def test_a_state_is_sent_again_from_where_the_member_lost_it() -> None:
    """It has thrown away what it acknowledged, because that was damaged."""
    behind = ("propose 1 a b c", "settle drop=3", "compact 1 5", "tick 1 times=2")
    stage, leader = stage_with(*behind, options="options snapshot_part_bytes=2")
    member = leader.progress[3]
    while member.position_sent == 0:
        stage.run("deliver")
    stage.run("forget")
    has_come = said(Kind.SNAPSHOT_REPLY, 3, leader, context=member.session, offset=4)
    leader.step(has_come)
    leader.ready()
    assert (member.state, member.position) == (State.SNAPSHOT, 4)
    lost = said(Kind.SNAPSHOT_REPLY, 3, leader, context=member.session, offset=0, reject=True)
    leader.step(lost)
    assert (member.position, member.position_sent, list(member.flying)) == (0, 0, [])
    (wanted,) = leader.ready().wanted
    assert (wanted.node, wanted.position) == (3, 0)
