"""A small share of the simulation in every test run, with seeds never seen before."""

import secrets

import pytest

from tests.sim.checks.checker import Violation
from tests.sim.checks.history import Call, History
from tests.sim.cluster import Cluster
from tests.sim.planted import mutants
from tests.sim.planted.bug import BUGS, planted
from tests.sim.planted.store_bugs import STORE_BUGS
from tests.sim.runner import SEARCH, STEPS, attempt, explain
from tests.sim.shrink import shrink
from tests.slow import one_in, slow

KNOWN_SEEDS = (
    1,
    2,
    50,
    54,
    1003,
    1012,
    1038,
    1120,
    1476,
    1479,
    1691,
    90008,
    636928150097,
    151436968410,
    614053022076,
    966647868605,
    792378301624,
    544026617872,
    1000097,
    1000217,
    1000259,
    710302,
    720035,
    730154,
    10000026,
    11,
    49,
    70,
    77,
    111,
    150,
    9006,
    22,
    800002,
    810114,
    820003,
    820115,
    829406292537,
    5000383,
    12142300,
)
"""These found bugs, or a check that was too strict."""
FOUND_FROM = {"no-doubt": 16, "install-not-logged": 5, "lease-in-sleep": 4}
"""Seeds from which bugs are found soon that are not when the search begins with 1."""
SAMPLE = (
    "ack-before-sync",
    "two-votes",
    "minority-wins",
    "snapshot-misses-one",
    "half-of-four",
    "change-never-taken-back",
    "removal-forgotten",
    "window-stays-full",
    "reads-lost",
    "one-answer-confirms",
    "leader-sleeps-alone",
    "lease-in-sleep",
    "backlog-for-each-answer",
)


@pytest.mark.fresh
def test_new_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    seed = secrets.randbelow(1 << 40)
    with capsys.disabled():
        print(f"\nsimulation: seed={seed} steps={STEPS}")
        print(SEARCH.run(range(seed, seed + 1000), STEPS, seconds=8))


@pytest.mark.parametrize("seed", one_in(16, KNOWN_SEEDS))
def test_seeds_that_found_bugs(seed: int) -> None:
    outcome = attempt(seed, STEPS)
    assert not isinstance(outcome, str), explain(seed, STEPS, outcome)


def test_a_seed_tells_the_same_story_twice() -> None:
    first, second = Cluster(7, 3000).run(), Cluster(7, 3000).run()
    assert first == second


@pytest.mark.parametrize("name", one_in(2, [*SAMPLE, *(bug.name for bug in STORE_BUGS)]))
def test_planted_bugs_are_found(name: str) -> None:
    assert SEARCH.hunt(BUGS[name], FOUND_FROM.get(name, 1)) is not None


def test_there_are_enough_planted_bugs() -> None:
    assert len(BUGS) >= 100


@slow
def test_the_faults_that_show_a_planted_bug_are_few() -> None:
    with planted(BUGS["conflicts-kept"]):
        seed = next(s for s in range(1, 200) if isinstance(attempt(s, 2500), str))
        whole = Cluster(seed, 2500).plan
        text = explain(seed, 2500, "found")
        few = shrink(whole, lambda plan: isinstance(attempt(seed, 2500, plan), str))
        assert len(few) < len(whole) and isinstance(attempt(seed, 2500, few), str)
    assert f"{len(few)} of {len(whole)} faults are enough" in text
    assert not isinstance(attempt(seed, 2500, few), str), "it is the bug, not the faults"


MUTANTS = (
    ("quorum.py", "yes >= need", "if True"),
    ("replication.py", "r.log.term(index) != r.term", "without part 2"),
    ("log.py", "del self.entries[kept:]", "left out"),
    ("recovery.py", "return (m.log_term, m.index) >= r.barrier", "turned"),
)


@pytest.mark.parametrize(("file", "text", "what"), one_in(2, MUTANTS))
def test_a_share_of_the_mutants_is_noticed(file: str, text: str, what: str) -> None:
    """The others: `make sim-mutants`."""
    lines = (mutants.RAFT / file).read_text().splitlines()
    (found,) = [m for m in mutants.mutants(file) if text in lines[m[2] - 1] and m[3] == what]
    assert mutants.judge(file, found[0], found[1], seed=1, seeds=40)


def test_mutants_can_be_made() -> None:
    for file in mutants.FILES:
        for place, variant, _, _ in mutants.mutants(file)[::60]:
            mutants.compiled(file, place, variant)


def test_a_failure_says_how_to_see_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def strike(cluster: Cluster, fault: object) -> None:
        if getattr(fault, "kind", "") == "crash":
            raise Violation("it crashed")

    monkeypatch.setattr("tests.sim.faults.strike", strike)
    seed = next(s for s in range(1, 50) if isinstance(attempt(s, 1000), str))
    text = explain(seed, 1000, "it crashed")
    assert f"make sim SEED={seed} STEPS=1000" in text
    assert "1 of" in text and "kind='crash'" in text


def write(number: int, begin: int, end: int, sequence: int) -> Call:
    return Call(number, 1, "a", "write", begin, end, sequence)


def read(number: int, begin: int, end: int, sequence: int, seen: int) -> Call:
    return Call(number, 1, "a", "read", begin, end, sequence, seen)


def test_a_stale_read_is_not_linearizable() -> None:
    history = History([write(1, 1, 2, 5), write(2, 3, 4, 6), read(3, 5, 6, 5, 1)])
    with pytest.raises(Violation, match="stale"):
        history.check()


def test_a_read_beside_a_write_may_see_either() -> None:
    for sequence, seen in ((5, 1), (6, 2)):
        calls = [write(1, 1, 2, 5), write(2, 3, 9, 6), read(3, 4, 6, sequence, seen)]
        assert History(calls).check() == 3


def test_reads_do_not_go_back() -> None:
    calls = [write(1, 1, 2, 5), write(2, 3, 20, 6), read(3, 4, 6, 6, 2), read(4, 7, 8, 5, 1)]
    with pytest.raises(Violation, match="stale"):
        History(calls).check()
