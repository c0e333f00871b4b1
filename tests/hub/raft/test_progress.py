"""What a leader notes about a member, step by step."""

from headwater.hub.raft.progress import MemberProgress, State

BYTES = 1 << 20


def fed(*lasts: int, match: int = 4) -> MemberProgress:
    """A member that is sent appends of 10 bytes that end at these indexes."""
    member = MemberProgress(1, match + 1, match)
    member.to_replicate()
    for last in lasts:
        member.sent(last, 10)
    return member


def test_a_probe_is_one_message_at_a_time() -> None:
    member = MemberProgress(1, 9, 4)
    assert not member.full(1, BYTES)
    member.sent(12, 10)
    assert member.full(64, BYTES)
    assert (member.next, list(member.inflight), member.inflight_bytes) == (9, [], 0)


def test_in_replicate_next_runs_ahead_and_the_window_fills_by_messages_and_by_bytes() -> None:
    member = fed(6, 8)
    assert (member.next, list(member.inflight), member.inflight_bytes) == (
        9,
        [(6, 10), (8, 10)],
        20,
    )
    assert member.full(2, BYTES) and member.full(64, 20)
    assert not member.full(3, 21)


def test_an_ack_empties_the_window_as_far_as_it_goes() -> None:
    member = fed(6, 8, 10)
    assert member.accepted(8)
    assert (member.match, member.next) == (8, 11)
    assert (list(member.inflight), member.inflight_bytes) == ([(10, 10)], 10)


def test_an_ack_that_was_heard_before_is_no_news_and_takes_nothing_back() -> None:
    member = fed(6, 8)
    member.accepted(8)
    assert not member.accepted(8) and not member.accepted(6)
    assert (member.match, member.next) == (8, 9)


def test_an_ack_beyond_what_was_sent_moves_next() -> None:
    member = MemberProgress(1, 5, 0)
    assert member.accepted(9)
    assert (member.match, member.next) == (9, 10)


def test_a_refusal_in_replicate_leads_back_to_what_is_known() -> None:
    member = fed(6, 8)
    assert member.refused(6, 5)
    assert (member.state, member.next, member.paused) == (State.PROBE, 5, False)
    assert (list(member.inflight), member.inflight_bytes) == ([], 0)


def test_a_refusal_of_what_is_known_to_be_there_is_old() -> None:
    member = fed(6, 8)
    assert not member.refused(4, 0)
    assert (member.state, member.next) == (State.REPLICATE, 9)


def test_a_refused_probe_goes_on_behind_the_hint() -> None:
    member = MemberProgress(1, 20, 4)
    member.sent(20, 10)
    assert member.refused(19, 11)
    assert (member.next, member.paused) == (12, False)


def test_a_refused_probe_goes_back_by_one_at_least_and_not_below_what_is_known() -> None:
    member = MemberProgress(1, 20, 4)
    assert member.refused(19, 30)
    assert member.next == 19
    assert member.refused(18, 1)
    assert member.next == 5


def test_a_refusal_of_another_probe_is_old() -> None:
    member = MemberProgress(1, 20, 4)
    member.sent(20, 10)
    assert not member.refused(12, 3)
    assert (member.next, member.paused) == (20, True)


def test_when_the_logs_agree_everything_behind_is_sent_again() -> None:
    member = MemberProgress(1, 9, 4)
    member.to_snapshot(1)
    member.snapshot_index = 7
    member.sent(9, 10)
    member.accepted(7)
    member.next = 30
    member.to_replicate()
    assert (member.state, member.next, member.snapshot_index) == (State.REPLICATE, 8, 0)
    assert not member.paused


def test_a_state_begins_where_the_member_says() -> None:
    member = fed(6, 8)
    member.position, member.snapshot_index = 500, 7
    member.to_snapshot(2)
    assert (member.state, member.session, member.position) == (State.SNAPSHOT, 2, -1)
    assert (member.snapshot_index, list(member.inflight), member.inflight_bytes) == (0, [], 0)
    assert member.arrived(300)
    assert (member.position, member.position_sent) == (300, 300)


def test_parts_that_are_answered_are_under_way_no_more() -> None:
    member = fed(6)
    member.to_snapshot(1)
    assert member.arrived(0)
    member.flying.extend([100, 200, 300])
    member.position_sent = 300
    member.silent = 3
    assert member.arrived(200)
    assert (list(member.flying), member.position_sent, member.silent) == ([300], 300, 0)
    assert not member.arrived(100), "an old answer"
    member.rewind(200)
    assert (list(member.flying), member.position, member.position_sent) == ([], 200, 200)


def test_of_a_node_that_started_again_nothing_is_certain() -> None:
    member = fed(6, 8)
    member.round, member.asleep, member.commit_sent, member.snapshot_index = 3, True, 4, 7
    member.forget()
    assert (member.match, member.next, member.state) == (0, 9, State.PROBE)
    assert (member.round, member.asleep, member.commit_sent) == (0, False, 0)
    assert (member.snapshot_index, list(member.inflight), member.inflight_bytes) == (0, [], 0)


def test_a_probe_after_a_snapshot_begins_behind_it() -> None:
    member = fed(6)
    member.to_snapshot(1)
    member.snapshot_index = 7
    member.to_probe()
    assert (member.state, member.next, member.snapshot_index) == (State.PROBE, 8, 0)
