"""Parts of the group: quorum, configuration, codec, progress, and refusals."""

import ast
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.hub.raft import membership, transfer
from headwater.hub.raft.codec import (
    OLDEST_VERSION,
    PACE_MS_MAX,
    TAGGED_VERSION,
    VERSION,
    decode_packet,
    encode_packet,
)
from headwater.hub.raft.log import RaftLog
from headwater.hub.raft.model.config import Config, decode_config
from headwater.hub.raft.model.entry import Entry, EntryKind
from headwater.hub.raft.model.errors import (
    ChangeRefused,
    InvariantBroken,
    NotLeader,
    ProposalsFull,
    ReadsFull,
)
from headwater.hub.raft.model.hard_state import HardState, decode_hard_state
from headwater.hub.raft.model.message import Kind, Message
from headwater.hub.raft.model.options import Options
from headwater.hub.raft.model.ready import Restored, bootstrap
from headwater.hub.raft.model.role import Role
from headwater.hub.raft.model.snapshot import Snapshot
from headwater.hub.raft.multi_raft import BOOT_STEP, MultiRaft, Packet
from headwater.hub.raft.quorum import majority_value, quorum_size, vote_result
from headwater.hub.raft.raft import Raft

numbers = st.integers(0, 2**63)
maps = st.dictionaries(st.integers(1, 100), numbers, max_size=5)


def alone(options: Options | None = None) -> Raft:
    """A leader that is its own majority."""
    raft = Raft(1, 1, 1, bootstrap(Config({1: 1}), 1), Random(1).randrange, options)
    while not raft.is_leader or raft.has_ready():
        raft.tick()
        raft.synced(raft.ready().number)
    return raft


@given(st.lists(st.integers(0, 50), min_size=1, max_size=9))
def test_majority_value_is_what_a_naive_count_says(values: list[int]) -> None:
    need = quorum_size(len(values))
    naive = max(v for v in values if sum(other >= v for other in values) >= need)
    assert majority_value(values) == naive


@pytest.mark.parametrize(
    ("votes", "result"),
    [
        ({1: True}, None),
        ({1: True, 2: True}, True),
        ({1: True, 2: False}, None),
        ({2: False, 3: False}, False),
        ({1: True, 9: True}, None),
    ],
)
def test_votes(votes: dict[int, bool], result: bool | None) -> None:
    assert vote_result({1: 1, 2: 1, 3: 1}, votes) is result


@given(maps, maps, maps, st.frozensets(st.integers(1, 9), max_size=4))
def test_configurations_survive_encoding(voters, learners, removed, returning) -> None:
    config = Config(voters, learners, returning, removed)
    assert decode_config(config.encode()) == config
    with pytest.raises(ValueError, match="no configuration"):
        decode_config(config.encode() + b"x")


def test_removed_lives_never_come_back() -> None:
    config = Config({1: 1, 2: 1, 3: 1}).without(2)
    assert config.fenced(2, 1)
    assert not config.fenced(2, 2)
    with pytest.raises(ChangeRefused, match="removed"):
        config.with_learner(2, 1, returning=True)
    again = config.with_learner(2, 2, returning=True).with_voter(2)
    assert again.voters[2] == 2
    with pytest.raises(ChangeRefused, match="last voter"):
        Config({1: 1}).without(1)


@given(st.lists(numbers, min_size=7, max_size=7), st.booleans())
def test_hard_state_survives_encoding(fields: list[int], removed: bool) -> None:
    hard = HardState(*fields, removed)
    assert decode_hard_state(hard.encode()) == hard
    with pytest.raises(ValueError, match="no hard state"):
        decode_hard_state(hard.encode()[:-1])


@given(
    st.sampled_from(list(Kind)),
    st.lists(st.binary(max_size=40), max_size=5),
    numbers,
    st.booleans(),
    st.one_of(st.none(), st.builds(Config, maps)),
    st.binary(max_size=30),
)
def test_packets_survive_the_wire(kind, datas, number, flag, config, part) -> None:
    entries = [Entry(3, 7 + i, i % 3, data) for i, data in enumerate(datas)]
    m = Message(kind, 1, 2, 3, number, index=number, reject=flag, force=not flag, part=part)
    m.entries, m.config = entries, config
    packet = Packet(1, 2, 99, [m, Message(Kind.GONE, 1, 2)], known_boot=5)
    for version in range(OLDEST_VERSION, VERSION + 1):
        assert decode_packet(encode_packet(packet, version)) == packet
    m.tag = number
    assert decode_packet(encode_packet(packet)) == packet
    before = decode_packet(encode_packet(packet, TAGGED_VERSION - 1))
    assert not any(each.tag for each in before.messages)


@given(numbers, numbers, st.booleans(), st.integers(0, PACE_MS_MAX))
def test_heartbeats_are_rows_of_packets_for_those_who_know_them(group, number, flag, ms) -> None:
    beat = Message(Kind.HEARTBEAT, 1, 2, group, 3, number, 99, commit=number, force=flag)
    reply = Message(Kind.HEARTBEAT_REPLY, 1, 2, group, 3, number, 99, 7, context=number)
    beats = [*[beat] * 50, reply]
    gone = Message(Kind.GONE, 1, 2, boot=99)
    packet = Packet(1, 2, 99, [*beats, gone], 5, ms * 1_000_000)
    data = encode_packet(packet)
    assert decode_packet(data) == packet
    assert len(data) < 60 * len(packet.messages)
    old = decode_packet(encode_packet(packet, OLDEST_VERSION))
    assert (old.messages, old.pace_ns) == (packet.messages, 0)
    for cut in (1, 40, 41, 44, 60, len(data) - 1):
        with pytest.raises(ValueError, match="no (packet|message)"):
            decode_packet(data[:cut])
    beat.tag = number
    assert decode_packet(encode_packet(packet)) == packet


@settings(max_examples=200)
@given(st.binary(max_size=300))
def test_garbage_is_no_packet(data: bytes) -> None:
    try:
        decode_packet(data)
    except ValueError:
        return
    assert len(data) >= 37


def test_committed_entries_are_never_cut() -> None:
    log = RaftLog(Snapshot(1, 1, Config({1: 1})), [Entry(1, 2, 0, b"a"), Entry(1, 3, 0, b"b")])
    log.commit_to(2)
    log.cut(3)
    assert log.last == 2
    with pytest.raises(InvariantBroken):
        log.cut(2)


def test_a_single_voter_commits_alone() -> None:
    raft = alone()
    assert raft.propose([b"x", b"y"]) == (raft.term, 3)
    raft.synced(raft.ready().number)
    assert [entry.data for entry in raft.ready().committed] == [b"x", b"y"]
    raft.read(7)
    assert [(each.context, each.index) for each in raft.ready().reads] == [(7, 4)]


def test_what_is_refused() -> None:
    raft = alone(Options(uncommitted_bytes_max=100))
    raft.propose([b"x" * 200])
    with pytest.raises(ProposalsFull):
        raft.propose([b"y"])
    with pytest.raises(ChangeRefused):
        transfer.begin(raft, 2)
    raft.become_follower(raft.term, 0)
    with pytest.raises(NotLeader):
        raft.propose([b"z"])
    with pytest.raises(NotLeader):
        membership.add_learner(raft, 5, 9)
    raft.leader = 2
    with pytest.raises(ReadsFull):
        for context in range(5000):
            raft.read(context)


def test_a_node_without_hard_state_is_recovering_and_silent() -> None:
    config = Config({1: 1, 2: 1, 3: 1})
    raft = Raft(1, 1, 9, Restored(Snapshot(1, 1, config)), Random(1).randrange)
    assert raft.recovering and not raft.whole
    for _ in range(100):
        raft.tick()
    kinds = {m.kind for m in raft.ready().messages} | {m.kind for m in raft.synced(1)}
    assert kinds <= {Kind.HELLO}


def test_an_old_boot_is_told() -> None:
    multi_raft = MultiRaft(1, 5, Random(1).randrange)
    other = MultiRaft(2, 7, Random(1).randrange)
    multi_raft.receive(Packet(2, 1, 9))
    multi_raft.receive(Packet(2, 1, 7))
    (answer,) = multi_raft.ready().packets
    other.receive(answer)
    assert 9 <= other.stale_boot < 9 + BOOT_STEP


def test_the_core_touches_nothing_outside() -> None:
    folder = Path(__file__).resolve().parents[3] / "hub" / "raft"
    for path in folder.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            banned = {"asyncio", "os", "random", "secrets", "socket", "threading", "time"}
            assert not banned & {name.split(".")[0] for name in names}, path


def test_a_clean_start_under_a_number_that_the_group_does_not_know_is_in_doubt() -> None:
    """The record of the stop and the log are newer than the hard state, or the other way round."""
    hard = HardState(term=2, commit=1, incarnation=7)
    restored = Restored(Snapshot(1, 1, Config({1: 1, 2: 1, 3: 1})), [], hard, clean=True)
    assert Raft(1, 1, 9, restored, Random(1).randrange).recovering


def test_a_node_that_was_taken_back_as_a_voter_campaigns_before_that_is_committed() -> None:
    """Its log may be the only one that can lead."""
    back = Config({1: 1, 2: 1, 3: 7}).encode()
    entries = [Entry(3, 2, EntryKind.CONFIG, back)]
    hard = HardState(term=3, commit=1, incarnation=7)
    snapshot = Snapshot(1, 1, Config({1: 1, 2: 1, 3: 1}))
    raft = Raft(1, 3, 9, Restored(snapshot, entries, hard, clean=True), Random(1).randrange)
    for _ in range(40):
        raft.tick()
    assert raft.role is Role.PRE_CANDIDATE and not raft.recovering


def test_a_node_that_was_being_taken_back_asks_again_when_the_leader_is_gone() -> None:
    """The change may be undone, and the group may need the member of before."""
    back = Config({1: 1, 2: 1}, {3: 7}, frozenset({3})).encode()
    entries = [Entry(3, 2, EntryKind.CONFIG, back)]
    hard = HardState(term=3, commit=1, incarnation=7)
    snapshot = Snapshot(1, 1, Config({1: 1, 2: 1, 3: 1}))
    raft = Raft(1, 3, 9, Restored(snapshot, entries, hard, clean=True), Random(1).randrange)
    for _ in range(40):
        raft.tick()
    assert raft.recovering
    for node in (1, 2):
        raft.step(
            Message(
                Kind.HELLO_REPLY,
                node,
                3,
                1,
                boot=1,
                to_boot=9,
                incarnation=1,
                index=1,
                log_term=1,
                context=3,
                config=snapshot.config,
            )
        )
    assert not raft.recovering and raft.incarnation == 1


@pytest.mark.parametrize(("incarnation", "is_member"), [(0, True), (10, False)])
def test_a_replica_made_again_in_the_same_start_is_not_the_member_that_was_removed(
    incarnation: int, is_member: bool
) -> None:
    """It hears the group's log from the beginning, and there it was taken in as incarnation 9, the
    number of its start."""
    restored = Restored(Snapshot(0, 0, Config()), seeds=(1, 2), incarnation_floor=incarnation)
    raft = Raft(1, 3, 9, restored, Random(1).randrange)
    first = Config({1: 1, 2: 1})
    entries = [
        Entry(1, 1, EntryKind.CONFIG, first.encode()),
        Entry(2, 2, EntryKind.CONFIG, first.with_learner(3, 9, returning=True).encode()),
    ]
    append = Message(Kind.APPEND, 1, 3, 1, term=2, boot=1, incarnation=1, entries=entries)
    raft.step(append)
    assert raft.log.last == 2
    assert (raft.incarnation, raft.recovering) == ((9, False) if is_member else (10, True))
