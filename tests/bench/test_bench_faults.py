"""The fault scripts, tiny, against real processes, and the book that they keep."""

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from bench.faults import crash, filling, flips
from bench.faults.promise_book import PromiseBook, Stored, make_payload
from bench.faults.tally import TITLES, Tally, table
from bench.faults.trial import Script
from bench.servers import Recipe, anchor, headwater
from tests.small_device import small_device

ROOT = Path(__file__).resolve().parents[2]


def stored(subject: str, ident: str) -> Stored:
    """A message as it was published."""
    return Stored(subject, make_payload(subject, ident, 60))


def book(last_only: bool = False) -> PromiseBook:
    """With messages 1 to 3 acknowledged."""
    made = PromiseBook("S", Tally("script", "server"), last_only)
    for sequence in (1, 2, 3):
        made.ack("s", f"m{sequence}", sequence)
    return made


def everything() -> dict[int, Stored]:
    """What `book` promises."""
    return {sequence: stored("s", f"m{sequence}") for sequence in (1, 2, 3)}


def test_a_payload_proves_itself():
    made = book()
    made.check(everything(), set(), False)
    assert made.tally.broken == made.tally.told == 0
    found = everything()
    found[2] = Stored("s", found[2].payload[:-1] + b"!")
    made.check(found, set(), False)
    assert (made.tally.wrong, made.tally.silent) == (1, 0)
    made.check({**everything(), 3: stored("t", "m3")}, set(), False)
    assert made.tally.reused == 1
    found = {**everything(), 4: stored("s", "m1")}
    book_of_twice = book()
    book_of_twice.check(found, set(), False)
    assert book_of_twice.tally.wrong == 1


@pytest.mark.parametrize(("told", "named"), [(set(), False), ({2}, False), (set(), True)])
def test_losses_are_told_or_not_and_counted_once(told: set[int], named: bool):
    made = book()
    found = everything()
    del found[2]
    for _ in range(2):
        made.check(found, told, named)
    silent = not told and not named
    assert (made.tally.silent, made.tally.told) == (silent, not silent)


def test_removals_hold_and_may_be_unsure():
    made = book()
    made.maybe_removed.add(1)
    made.remove({2})
    made.refused.add("m4")
    found = {3: stored("s", "m3")}
    made.check(found, set(), False)
    assert made.tally.broken == 0
    made.check({**everything(), 4: stored("s", "m4")}, set(), False)
    assert made.tally.back == 2


def test_the_last_of_a_subject_is_due():
    made = book(last_only=True)
    assert made.due() == {3}
    made.check({}, set(), False)
    assert made.tally.silent == 1


def test_a_sequence_for_two_messages_is_found():
    made = book()
    made.ack("s", "other", 3)
    assert made.tally.reused == 1
    made.check({**everything(), 3: stored("s", "other"), 4: stored("s", "m4")}, set(), False)
    assert made.tally.reused == 1
    made.ack("s", "late", 4)
    assert made.tally.reused == 2


def test_the_table_has_a_row_for_everyone():
    tallies = [Tally("a", "x", rounds=1000, ready=[0.5, 1.0, 4.0]), Tally("a", "y", told=3)]
    tallies[0].lose("one")
    lines = table(tallies).split("\n")
    assert [line.count("|") for line in lines] == [len(TITLES) + 1] * 4
    assert "1,000" in lines[2] and "1.00 / 4.00" in lines[2]
    assert tallies[0].told_findings() == ["a, x: [] missing in silence x1: one"]


@pytest.mark.parametrize("choose", [headwater, anchor], ids=["headwater", "real"])
def test_a_tiny_storm_of_kills(choose: "type[Recipe]", tmp_path: Path):
    storm = crash.Storm(connections=2, longest=0.15)
    tally = crash.run(Script(choose(), rounds=2, seed=3, parent=tmp_path), storm)
    assert (tally.rounds, tally.silent, tally.wrong, tally.reused) == (2, 0, 0, 0), tally.findings
    assert tally.acknowledged > 100
    if choose is headwater:
        assert tally.broken == tally.told == 0, tally.findings
    assert list(tmp_path.iterdir()) == []


def test_tiny_damage(tmp_path: Path):
    tally = flips.run(Script(headwater(), rounds=4, seed=5, parent=tmp_path))
    assert (tally.rounds, tally.broken) == (4, 0), tally.findings
    assert len(tally.ready) >= 2 * 4
    assert list(tmp_path.iterdir()) == []


def test_damage_is_one_bit_or_one_cut(tmp_path: Path):
    data = random.Random(1).randbytes(1000) + bytes(1000)
    chance = random.Random(2)
    kinds = set()
    for _ in range(40):
        (tmp_path / "file").write_bytes(data)
        what = flips.damage(tmp_path, chance)
        found = (tmp_path / "file").read_bytes()
        if len(found) < len(data):
            assert data.startswith(found) and f"cut to {len(found)} of 1000" in what
            kinds.add("cut")
        else:
            differing = [n for n in range(len(data)) if data[n] != found[n]]
            assert len(differing) == 1 and differing[0] < 1000
            assert (data[differing[0]] ^ found[differing[0]]).bit_count() == 1
            kinds.add("flip")
    assert kinds == {"cut", "flip"}


def test_a_device_that_fills_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(filling, "MEBIBYTES", 24)
    monkeypatch.setattr(filling, "FOREIGN_BYTES", 6 << 20)
    with small_device(tmp_path, 1) as device:  # or skip
        assert device.is_dir()
    tally = filling.run(Script(headwater(), rounds=1, seed=1, parent=tmp_path))
    assert (tally.rounds, tally.broken, tally.told) == (1, 0, 0), tally.findings
    assert tally.acknowledged > 200
    assert list(tmp_path.iterdir()) == []


def test_the_command_prints_a_table_and_decides_the_exit_code(tmp_path: Path):
    command = [sys.executable, "-m", "bench.faults", "kills", "--rounds", "1", "--dir"]
    done = subprocess.run(
        [*command, str(tmp_path), "--server", "headwater", "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    assert (made["script"], made["server"], made["silent"]) == ("kills", "headwater", 0)
