"""A few lines of a kind are logged, and the others are counted and told once."""

from headwater.edge.logging.few_lines import FewLines


def test_a_few_are_logged_and_the_rest_is_counted_once() -> None:
    lines = FewLines(2, 60.0)
    assert [lines.has_room(now) for now in (5.0, 5.0, 6.0, 64.9)] == [True, True, False, False]
    assert lines.left_out(64.9) == 0
    assert lines.left_out(65.0) == 2
    assert lines.left_out(65.0) == 0
    assert lines.has_room(65.0)


def test_what_was_left_out_is_still_told_when_the_next_while_has_begun() -> None:
    lines = FewLines(1, 60.0)
    assert [lines.has_room(now) for now in (0.0, 1.0, 70.0, 71.0)] == [True, False, True, False]
    assert lines.left_out(129.0) == 0
    assert lines.left_out(130.0) == 2
