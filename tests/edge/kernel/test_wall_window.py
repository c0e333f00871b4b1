"""A window of the time of day on a clock that is set while it is watched."""

import pytest

from headwater.edge.kernel.kernel import Kernel
from headwater.edge.kernel.wall_window import FOR_EVER, LOOK_S, WallWindow
from headwater.edge.ports.twins.loop import TwinLoop

SECOND = 10**9


class Stage:
    """A window, and when (in seconds of the loop) it was left."""

    def __init__(self) -> None:
        self.loop = TwinLoop()
        self.left: list[float] = []
        kernel = Kernel(self.loop, self.loop.clock)
        self.window = WallWindow(kernel, lambda: self.left.append(self.loop.time()))
        self.now = self.window.now_s()

    def set_clock(self, by_s: float) -> None:
        self.loop.clock.wall_offset_ns += int(by_s * SECOND)

    def run(self, seconds: float) -> None:
        """Let so much time pass."""
        passed = self.loop.create_future()
        self.loop.call_later(seconds, passed.set_result, None)
        self.loop.run_until_complete(passed)


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_it_is_left_at_its_end_and_once(stage: Stage) -> None:
    stage.window.watch(0, stage.now + 12)
    stage.run(60)
    assert stage.left == [pytest.approx(12, abs=0.001)]


def test_a_clock_that_is_set_forward_ends_it_soon(stage: Stage) -> None:
    stage.window.watch(0, stage.now + 3600)
    stage.run(20)
    stage.set_clock(3600)
    stage.run(LOOK_S)
    assert len(stage.left) == 1


def test_a_clock_that_is_set_back_ends_it_later_or_before_its_beginning(stage: Stage) -> None:
    stage.window.watch(0, stage.now + 10)
    stage.set_clock(-3600)
    stage.run(3600)
    assert stage.left == []
    stage.run(11)
    assert stage.left == [pytest.approx(3610, abs=0.001)]
    stage.window.watch(stage.window.now_s(), FOR_EVER)
    stage.run(60)
    assert len(stage.left) == 1
    stage.set_clock(-120)
    stage.run(LOOK_S)
    assert len(stage.left) == 2


def test_another_window_takes_the_place_of_the_one_before(stage: Stage) -> None:
    stage.window.watch(0, stage.now + 2)
    stage.window.watch(0, stage.now + 30)
    stage.run(20)
    assert stage.left == []
    stage.window.watch(0, FOR_EVER)
    stage.run(60)
    assert stage.left == []
    stage.window.watch(0, stage.now + 100)
    stage.window.stop()
    stage.run(60)
    assert stage.left == []


def test_one_that_is_left_already_is_left_at_once(stage: Stage) -> None:
    stage.window.watch(0, stage.now - 1)
    stage.run(0.001)
    assert stage.left == [0]
