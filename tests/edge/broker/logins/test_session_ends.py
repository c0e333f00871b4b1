"""When the sessions of a registry end, on a clock that the test turns."""

from types import SimpleNamespace
from typing import Any

import pytest

from headwater.edge.broker.logins.registry import ENDED_KEPT, Registry, Session
from headwater.edge.kernel.kernel import Kernel
from headwater.edge.ports.twins.loop import TwinLoop
from headwater.security.identity import Identity

COUNT = 4 * ENDED_KEPT


class Stage:
    """A registry, and who was ended."""

    def __init__(self) -> None:
        self.loop = TwinLoop()
        kernel = Kernel(self.loop, self.loop.clock)
        self.registry = Registry(kernel)
        self.now = kernel.wall_ns() / 1e9
        self.ended: list[int] = []
        self.account: Any = SimpleNamespace(name="A", limits={})

    def enter(self, cid: int, after_s: float) -> None:
        """A session that ends after so many seconds."""

        def end(text: str, reason: str) -> None:
            self.ended.append(cid)
            self.registry.leave(cid)

        conn = SimpleNamespace(cid=cid, closed=False)
        identity = Identity(account="A", expires=self.now + after_s)
        self.registry.enter(
            Session(conn, self.account, identity, end=end, apply_limits=lambda: None)
        )

    def run_until(self, at_s: float) -> None:
        passed = self.loop.create_future()
        self.loop.call_at(at_s, passed.set_result, None)
        self.loop.run_until_complete(passed)


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_all_that_end_at_the_same_time_do(stage: Stage) -> None:
    for cid in range(1, 9):
        stage.enter(cid, 3 if cid % 2 else 7)
    stage.run_until(2)
    assert stage.ended == []
    stage.run_until(4)
    assert sorted(stage.ended) == [1, 3, 5, 7]
    stage.run_until(8)
    assert sorted(stage.ended) == list(range(1, 9))


def test_who_is_left_ends_though_many_others_came_and_went(stage: Stage) -> None:
    """What is kept of those is thrown away now and then."""
    kept = []
    for cid in range(1, COUNT + 1):
        stage.enter(cid, 10)
        if cid % 8:
            stage.registry.leave(cid)
        else:
            kept.append(cid)
    assert len(stage.registry._due) <= 2 * len(kept) + ENDED_KEPT + 2
    stage.run_until(11)
    assert sorted(stage.ended) == kept


def test_a_session_under_another_identity_ends_when_that_does(stage: Stage) -> None:
    stage.enter(1, 3)
    stage.enter(1, 9)
    stage.run_until(4)
    assert stage.ended == []
    stage.run_until(10)
    assert stage.ended == [1]
