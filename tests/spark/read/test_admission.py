"""Limits of microbatches, shared out to many streams."""

from headwater.spark.read.admission import Admission, Backlog


def backlogs(**lengths: int) -> dict[str, Backlog]:
    return {name: Backlog(100, 100 + length, 10) for name, length in lengths.items()}


def test_no_limit_takes_everything() -> None:
    assert Admission().share(backlogs(a=3, b=0, c=9), None, None) == {"a": 3, "c": 9}


def test_what_a_short_backlog_leaves_goes_to_the_longer_ones() -> None:
    assert Admission().share(backlogs(a=1000, b=2, c=30), 50, None) == {"a": 24, "b": 2, "c": 24}
    assert Admission().share(backlogs(a=4, b=2, c=0), 50, None) == {"a": 4, "b": 2}


def test_who_waited_longest_goes_first() -> None:
    admission, waiting = Admission(), backlogs(**{f"s{n}": 5 for n in range(7)})
    turns = [set(admission.share(waiting, 3, None)) for _ in range(3)]
    assert all(len(turn) == 3 for turn in turns)
    assert set.union(*turns) == set(waiting)


def test_bytes_are_shared_by_the_mean_size() -> None:
    assert Admission().share(backlogs(a=1000, b=2), None, 120) == {"a": 10, "b": 2}
    assert Admission().share(backlogs(a=1000, b=2), None, 1) == {"a": 1, "b": 1}
    assert Admission().share(backlogs(a=1000, b=1000), 8, 60) == {"a": 3, "b": 3}
