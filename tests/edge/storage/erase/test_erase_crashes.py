"""Power cuts at operations of the disk while messages are erased, and while segments become one.

`make damage` takes every operation; the suite takes a share.
"""

import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from headwater.edge.ports.twins.chance import SeededRandom
from headwater.edge.ports.twins.files import TwinFiles
from tests.edge.storage.twin_harness import TwinHarness, contents

WHOLE = os.environ.get("HEADWATER_DAMAGE") == "all"
OUTCOMES = ((0, "nothing"), (1, "everything"), (2, "some"), (3, "some"), (4, "some"))
SECRET = b"personal-secret-of-nobody-else"
SUBJECT = b"people.jane-doe-only-here"


@dataclass
class Moment:
    """A disk just before an operation, and what was asked for and promised by then."""

    disk: TwinFiles
    asked: set[int]
    gone: set[int]


@dataclass
class Script:
    """Runs once; keeps a moment per operation from `begin` on."""

    harness: TwinHarness = field(default_factory=TwinHarness)
    asked: set[int] = field(default_factory=set)
    gone: set[int] = field(default_factory=set)
    moments: list[Moment] = field(default_factory=list)
    before: dict[int, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.harness.open()
        self.store = self.harness.create()

    def fill(self, count: int) -> None:
        for n in range(count):
            self.store.add_message(b"some.place.%d" % (n % 7), b"%04d" % n + b"x" * 100)
        self.harness.commit()

    def begin(self) -> None:
        """Crashes may come from now on."""
        self.before = contents(self.store)
        disk = self.harness.disk

        def watch(what: str, path: str) -> None:
            if what not in ("read", "list"):
                self.moments.append(Moment(disk.copy(), set(self.asked), set(self.gone)))

        disk.watch = watch

    def crashes(self, stride: int, check: Callable[[TwinHarness, Any, Moment], None]) -> None:
        """Cut the power at every `stride`-th moment, twice, and look at what a start finds."""
        for number in range(0, len(self.moments), 1 if WHOLE else stride):
            moment = self.moments[number]
            for seed, lose in OUTCOMES:
                disk = moment.disk.copy()
                disk.power_cut(SeededRandom(f"{number}:{seed}"), lose)
                for last in (False, True):
                    harness = TwinHarness(disk)
                    store = harness.open()[self.store.incarnation]
                    assert harness.node.problems == []
                    assert store.lost == {}
                    found = contents(store)
                    must = self.before.keys() - moment.asked
                    assert {n: found.get(n) for n in must} == {n: self.before[n] for n in must}
                    assert not moment.gone & found.keys()
                    check(harness, store, moment)
                    assert harness.errors == []
                    if last:
                        harness.close()
                    else:
                        harness.power_cut(f"{number}:{seed}:again", "some")


def traces(disk: TwinFiles, text: bytes) -> list[Any]:
    return [parts for parts, node in disk.walk() if text in bytes(node.content)]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("gathered", [False, True])
def test_while_messages_are_erased(gathered: bool) -> None:
    """One from a segment and one from the log; when a start has come to rest, what is deleted is
    in no file."""
    script = Script(TwinHarness(gathered=gathered))
    script.fill(60)
    old = script.store.add_message(SUBJECT, SECRET + b"-1")
    for _ in range(8):
        script.fill(30)
    script.harness.settle()
    new = script.store.add_message(SUBJECT, SECRET + b"-2", b"NATS/1.0\r\nA: b\r\n\r\n")
    script.harness.commit()
    script.begin()
    for sequence in (old, new):
        script.asked.add(sequence)
        assert script.store.delete(sequence, True)
        script.harness.node.log.hand_over()
        script.harness.loop.run_until(lambda: not script.harness.node.eraser._pending)
        script.gone.add(sequence)
    script.fill(70)
    script.harness.settle()
    assert not traces(script.harness.disk, SECRET)

    def check(harness: TwinHarness, store: Any, moment: Moment) -> None:
        left = [n for n in (old, new) if store.get(n) is not None]
        harness.loop.run_until(lambda: not harness.node.eraser._pending)
        harness.settle()
        for sequence, text in ((old, SECRET + b"-1"), (new, SECRET + b"-2")):
            assert sequence in left or not traces(harness.disk, text)
        assert left or not traces(harness.disk, SUBJECT)

    script.crashes(8 if gathered else 4, check)


@pytest.mark.timeout(600)
def test_while_segments_become_one() -> None:
    script = Script(TwinHarness(segment_bytes=16384))
    for _ in range(20):
        script.fill(40)
    script.harness.settle()
    script.begin()
    rows = [n for n in range(2, 780) if n % 9]
    random.Random(5).shuffle(rows)
    for at in range(0, len(rows), 80):
        part = set(rows[at : at + 80])
        script.asked |= part
        for sequence in part:
            script.store.delete(sequence)
        script.harness.commit()
        script.gone |= part
        script.harness.settle()
    script.harness.loop.run_until(lambda: not script.store.leaving)
    assert script.store.gone_numbers
    script.crashes(12, lambda harness, store, moment: harness.settle())
