"""When a group may sleep, and what wakes it, rule by rule."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from headwater.hub.raft import hibernation
from headwater.hub.raft.model.entry import Entry
from headwater.hub.raft.model.message import Kind, Message
from headwater.hub.raft.model.state import Pending, Round
from headwater.hub.raft.progress import State
from headwater.hub.raft.raft import Raft
from tests.hub.raft.stage import Stage

TICKS = 3


def group(*nodes: int) -> dict[int, Raft]:
    """Members of which the first leads; they have everything."""
    stage = Stage()
    stage.run(f"options hibernate_ticks={TICKS}")
    stage.run("group " + " ".join(map(str, nodes)))
    stage.run("campaign 1")
    stage.run("settle")
    return {node: actor.raft for node, actor in stage.actors.items()}


def said(raft: Raft, kind: Kind) -> list[Message]:
    return [m for m in raft.ready().messages if m.kind is kind]


def member_returns(raft: Raft) -> None:
    index, config = raft.log.configs[-1]
    raft.log.configs[-1] = (index, replace(config, returning=frozenset({2})))


SPOILERS: dict[str, Callable[[Raft], object]] = {
    "not committed": lambda r: setattr(r.log, "committed", r.log.last - 1),
    "not durable": lambda r: setattr(r.log, "durable", r.log.last - 1),
    "a read waits": lambda r: r.reading.pending.append(Pending(1, 1, 1, None)),
    "a handover": lambda r: setattr(r.transfer, "target", 2),
    "a member returns": member_returns,
    "a member lacks something": lambda r: setattr(r.progress[2], "match", r.log.last - 1),
    "a member is asked": lambda r: setattr(r.progress[2], "state", State.PROBE),
}


@pytest.mark.parametrize("what", SPOILERS)
def test_nobody_sleeps_before_all_is_done(what: str) -> None:
    leader = group(1, 2, 3)[1]
    assert hibernation.is_quiet(leader)
    SPOILERS[what](leader)
    assert not hibernation.is_quiet(leader)
    for each in leader.progress.values():
        each.asleep = True
    hibernation.fall_asleep(leader)
    assert not leader.sleep.asleep
    leader.sleep.quiet_last, leader.sleep.quiet_ticks = leader.log.last, 1
    hibernation.tick(leader)
    assert leader.sleep.quiet_ticks == 0


def test_sleep_is_proposed_after_quiet_ticks_and_counted_anew() -> None:
    leader = group(1, 2, 3)[1]
    leader.sleep.quiet_last = leader.log.last
    leader.progress[2].asleep = True
    for _ in range(TICKS - 1):
        hibernation.tick(leader)
    assert said(leader, Kind.HEARTBEAT) == []
    hibernation.tick(leader)
    assert [m.force for m in said(leader, Kind.HEARTBEAT)] == [True, True]
    assert leader.sleep.quiet_ticks == 0
    assert not leader.progress[2].asleep and not leader.sleep.asleep


def test_an_entry_begins_the_quiet_time_anew() -> None:
    leader = group(1, 2, 3)[1]
    leader.sleep.quiet_last, leader.sleep.quiet_ticks = leader.log.last - 1, TICKS - 1
    hibernation.tick(leader)
    assert (leader.sleep.quiet_last, leader.sleep.quiet_ticks) == (leader.log.last, 0)


def test_without_a_time_for_it_nobody_sleeps() -> None:
    leader = group(1)[1]
    leader.options = replace(leader.options, hibernate_ticks=0)
    for _ in range(TICKS + 1):
        hibernation.tick(leader)
    assert not leader.sleep.asleep


def test_a_leader_that_is_awake_is_not_woken() -> None:
    leader = group(1, 2, 3)[1]
    leader.elapsed = 7
    hibernation.wake(leader)
    assert leader.elapsed == 7
    assert said(leader, Kind.HEARTBEAT) == []


def test_a_follower_proposes_nothing() -> None:
    follower = group(1, 2, 3)[2]
    follower.sleep.quiet_last = follower.log.last
    hibernation.tick(follower)
    assert follower.sleep.quiet_ticks == 0


def test_a_group_of_one_sleeps_when_it_is_proposed() -> None:
    leader = group(1)[1]
    for _ in range(TICKS + 1):
        hibernation.tick(leader)
    assert leader.sleep.asleep


def test_a_follower_agrees_when_it_has_all_and_forgot_nothing() -> None:
    follower = group(1, 2, 3)[2]
    last = follower.log.last
    proposal = Message(Kind.HEARTBEAT, 1, 2, commit=last, force=True)
    assert hibernation.agrees(follower, proposal) and follower.sleep.asleep
    assert not hibernation.agrees(follower, replace(proposal, force=False))
    assert not follower.sleep.asleep
    assert not hibernation.agrees(follower, replace(proposal, commit=last - 1))
    follower.recovering = True
    assert not hibernation.agrees(follower, proposal)
    follower.recovering = False
    follower.log.append([Entry(follower.term, last + 1, 0, b"new")])
    assert not hibernation.agrees(follower, proposal)


def test_a_leader_sleeps_when_all_agreed_and_its_lease_is_over() -> None:
    leader = group(1, 2, 3)[1]
    leader.reading.confirmed = Round(1, leader.ticks, 0)
    answer = Message(Kind.HEARTBEAT_REPLY, 2, 1, force=True)
    hibernation.agreed(leader, leader.progress[2], answer)
    assert not leader.sleep.asleep and leader.progress[2].asleep
    hibernation.agreed(leader, leader.progress[2], replace(answer, force=False))
    assert not leader.progress[2].asleep
    for each in leader.progress.values():
        hibernation.agreed(leader, each, answer)
    assert leader.sleep.asleep
    assert leader.reading.confirmed is None


def test_a_leader_that_wakes_lets_the_others_know() -> None:
    leader = group(1, 2, 3)[1]
    leader.sleep.asleep, leader.sleep.quiet_ticks, leader.elapsed = True, 2, 7
    for each in leader.progress.values():
        each.active, each.asleep = False, True
    hibernation.wake(leader)
    assert (leader.sleep.asleep, leader.sleep.quiet_ticks, leader.elapsed) == (False, 0, 0)
    assert [(each.active, each.asleep) for each in leader.progress.values()] == [(True, False)] * 2
    assert len(said(leader, Kind.HEARTBEAT)) == 2


def test_a_follower_that_wakes_says_nothing() -> None:
    follower = group(1, 2, 3)[2]
    follower.sleep.asleep, follower.elapsed = True, 7
    hibernation.wake(follower)
    assert (follower.sleep.asleep, follower.elapsed) == (False, 0)
    assert said(follower, Kind.HEARTBEAT) == []


@pytest.mark.parametrize(
    ("kind", "force", "sender", "wakes"),
    [
        (Kind.HEARTBEAT, False, 1, True),
        (Kind.HEARTBEAT, True, 1, False),
        (Kind.HEARTBEAT_REPLY, True, 1, False),
        (Kind.VOTE, True, 1, True),
        (Kind.APPEND, False, 1, True),
        (Kind.VOTE_REPLY, False, 2, False),
    ],
)
def test_what_wakes(kind: Kind, force: bool, sender: int, wakes: bool) -> None:
    follower = group(1, 2, 3)[2]
    follower.sleep.asleep = True
    hibernation.wake_on(follower, Message(kind, sender, 2, force=force))
    assert follower.sleep.asleep is not wakes


def test_a_word_to_one_that_is_awake_does_not_keep_it_awake() -> None:
    leader = group(1, 2, 3)[1]
    leader.sleep.quiet_ticks = 2
    hibernation.wake_on(leader, Message(Kind.HEARTBEAT_REPLY, 2, 1))
    assert leader.sleep.quiet_ticks == 2
