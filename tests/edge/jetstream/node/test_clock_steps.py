"""A running server, killed or not, whose machine's clock is set: nothing ends by mistake."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.faults import clocks
from bench.faults.trial import Script
from bench.servers import headwater

AT_ONCE = 4
EVERY = {
    "ages": "max_age",
    "an own life": "allow_msg_ttl",
    "markers": "subject_delete_marker_ttl",
    "ids": "duplicate_window",
}


def test_nothing_ends_comes_back_or_is_forgotten(tmp_path: Path) -> None:
    script = Script(headwater(), parent=tmp_path)

    def run(course: clocks.Course) -> clocks.Tally:
        return clocks.run_course(script, course, every=course.killed)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        tallies = list(pool.map(run, clocks.COURSES))
    for tally in tallies:
        assert (tally.broken, tally.told) == (0, 0), tally.told_findings()
        assert tally.acknowledged >= 2 * 3 * clocks.MESSAGES
    assert list(tmp_path.iterdir()) == []


def test_the_courses_cover_what_ends_by_time() -> None:
    there = {key for config in clocks.CONFIGS for key in config}
    assert set(EVERY.values()) <= there
    assert {step for course in clocks.COURSES for step in course.steps} >= {
        clocks.EPOCH, 0, 10 * clocks.YEAR, -clocks.HOUR, -clocks.DAY,
    }  # fmt: skip
