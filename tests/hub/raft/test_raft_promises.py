"""What is held back until it is durable, and what recovery asks for again."""

from headwater.hub.raft.model.config import Config
from headwater.hub.raft.model.entry import Entry
from headwater.hub.raft.model.hard_state import HardState
from headwater.hub.raft.model.message import Kind, Message
from headwater.hub.raft.model.options import Options
from headwater.hub.raft.model.ready import Restored, bootstrap
from headwater.hub.raft.model.snapshot import Snapshot
from headwater.hub.raft.raft import Raft

CONFIG = Config({1: 1, 2: 1, 3: 1})
OPTIONS = Options(hibernate_ticks=0)


def follower(restored: Restored | None = None, boot: int = 1) -> Raft:
    return Raft(1, 1, boot, restored or bootstrap(CONFIG, 1), lambda n: 0, OPTIONS)


def append(leader: int, term: int, before: tuple[int, int], *entries: Entry) -> Message:
    return Message(
        Kind.APPEND,
        leader,
        1,
        1,
        term,
        1,
        1,
        index=before[1],
        log_term=before[0],
        entries=list(entries),
    )


def hello(sender: int) -> Message:
    return Message(Kind.HELLO, sender, 1, 1, incarnation=9, boot=9)


def answer(sender: int, term: int, log_term: int, index: int, boot: int) -> Message:
    return Message(
        Kind.HELLO_REPLY,
        sender,
        1,
        1,
        incarnation=1,
        boot=1,
        to_boot=boot,
        index=index,
        log_term=log_term,
        context=term,
        config=CONFIG,
    )


def test_the_end_of_the_log_is_told_when_it_is_on_disk() -> None:
    """Others refuse logs that end before it: it must not be lost."""
    raft = follower()
    raft.step(append(2, 2, (1, 1), Entry(2, 2, 0, b"x")))
    first = raft.ready()
    raft.step(hello(3))
    second = raft.ready()
    assert first.writes and not [m for m in second.messages if m.kind is Kind.HELLO_REPLY]
    (told,) = [m for m in raft.synced(second.number) if m.kind is Kind.HELLO_REPLY]
    assert (told.index, told.log_term, told.context, told.to_boot) == (2, 2, 2, 9)


def test_an_ack_of_an_earlier_term_is_dropped() -> None:
    """While its entry was being written, another leader replaced it."""
    raft = follower()
    raft.step(append(2, 2, (1, 1), Entry(2, 2, 0, b"x")))
    first = raft.ready()
    raft.step(append(3, 3, (1, 1), Entry(3, 2, 0, b"y")))
    second = raft.ready()
    assert second.entries == [Entry(3, 2, 0, b"y")]
    assert raft.synced(first.number) == []
    (ack,) = raft.synced(second.number)
    assert (ack.kind, ack.to, ack.term, ack.index) == (Kind.APPEND_REPLY, 3, 3, 2)


def test_a_sync_of_entries_that_were_replaced_makes_nothing_durable() -> None:
    raft = follower()
    raft.step(append(2, 2, (1, 1), Entry(2, 2, 0, b"x"), Entry(2, 3, 0, b"x")))
    first = raft.ready()
    raft.step(append(3, 3, (1, 1), Entry(3, 2, 0, b"y"), Entry(3, 3, 0, b"y")))
    raft.synced(first.number)
    assert raft.log.durable == 1
    second = raft.ready()
    raft.synced(second.number)
    assert raft.log.durable == 3


def in_doubt() -> Raft:
    """Recovered by answers; node 2 told of an end that this log has not reached."""
    hard = HardState(term=2, commit=1, incarnation=1)
    raft = follower(Restored(Snapshot(1, 1, CONFIG), [], hard), boot=5)
    assert raft.recovering
    raft.step(answer(2, 4, 3, 8, boot=5))
    raft.step(answer(3, 4, 1, 1, boot=5))
    return raft


def asks(raft: Raft, ticks: int) -> list[int]:
    """Whom it asks meanwhile."""
    asked = []
    for _ in range(ticks):
        raft.tick()
        ready = raft.ready()
        said = ready.messages + raft.synced(ready.number)
        asked += [m.to for m in said if m.kind is Kind.HELLO]
    return asked


def test_the_barrier_is_kept_until_the_log_reaches_it() -> None:
    raft = in_doubt()
    assert not raft.recovering and raft.barrier == (3, 8) and raft.vote_floor == 5
    assert raft.below_barrier and raft.hard_state().barrier_index == 8


def test_the_barrier_is_asked_for_again_when_there_is_no_leader() -> None:
    """Node 2 lost what it told of, in its turn: what counts is what the others have now."""
    raft = in_doubt()
    assert set(asks(raft, 2 * OPTIONS.election_ticks)) == {2, 3}
    raft.step(answer(2, 5, 1, 1, boot=5))
    assert raft.below_barrier, "one answer is not enough"
    raft.step(answer(3, 5, 1, 1, boot=5))
    assert not raft.below_barrier and raft.vote_floor == 6


def test_the_barrier_is_not_asked_for_under_a_leader() -> None:
    raft = in_doubt()
    raft.step(append(2, 5, (1, 1)))
    assert raft.leader == 2 and asks(raft, OPTIONS.election_ticks - 1) == []


def votes(raft: Raft, sender: int, term: int) -> list[Message]:
    """What is said to a candidate."""
    raft.step(Message(Kind.VOTE, sender, 1, 1, term, 1, 1, index=9, log_term=term - 1))
    ready = raft.ready()
    said = ready.messages + raft.synced(ready.number)
    return [m for m in said if m.kind is Kind.VOTE_REPLY and not m.reject]


def test_a_greater_term_does_not_end_the_silence_that_a_lease_counts_on() -> None:
    """A late answer tells of term 7; the leader of term 2 does not know it and may hold a lease."""
    options = Options(hibernate_ticks=0, lease_reads=True)
    raft = Raft(1, 1, 1, bootstrap(CONFIG, 1), lambda n: 0, options)
    for _ in range(2 * OPTIONS.election_ticks):
        raft.tick()
    raft.step(append(2, 2, (1, 1)))
    late = Message(Kind.PRE_VOTE_REPLY, 3, 1, 1, 7, 1, 1, to_boot=1, reject=True)
    raft.step(late)
    assert (raft.term, raft.leader) == (7, 0)
    assert votes(raft, 3, 8) == []
    for _ in range(OPTIONS.election_ticks):
        raft.tick()
    assert len(votes(raft, 3, raft.term + 1)) == 1
