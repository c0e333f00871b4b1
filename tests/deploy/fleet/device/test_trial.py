"""Whether a new version is kept: joined in time, or taken back."""

from typing import Any

import pytest

from headwater.deploy.fleet.device import trial

BOOT = "boot-1"


def status(at: float, **more: Any) -> dict[str, Any]:
    """What a node on trial says at a time."""
    return {"slot": "b", "at": at, "ready": True, "joined": True, **more}


def begun(**more: Any) -> dict[str, Any]:
    """A trial that began at second 100."""
    return {**trial.begin("b", "a", BOOT, 100.0, 60.0, True), **more}


def test_a_node_that_is_joined_for_a_while_is_kept() -> None:
    trying = begun()
    assert trial.judge(trying, status(101), BOOT, 101)[0] == trial.WAIT
    assert trial.judge(trying, status(102), BOOT, 102)[0] == trial.WAIT
    assert trial.judge(trying, status(104), BOOT, 104)[0] == trial.COMMIT


def test_a_link_that_comes_and_goes_is_not_joined() -> None:
    trying = begun()
    for second in range(101, 160, 2):
        joined = second % 4 == 1
        verdict, _ = trial.judge(trying, status(second, joined=joined), BOOT, second)
        assert verdict == trial.WAIT
    verdict, why = trial.judge(trying, status(161, joined=False, why="refused"), BOOT, 161)
    assert verdict == trial.BACK
    assert "refused" in why


@pytest.mark.parametrize(
    ("more", "said", "boot", "why"),
    [
        ({"ends": 3}, status(110), BOOT, "ended 3 times"),
        ({}, status(110), "boot-2", "started anew"),
        ({"since": 0.0}, {}, BOOT, "not come up"),
        ({"since": 0.0}, status(80), BOOT, "says nothing any more"),
        ({"since": 0.0}, status(110, slot="a"), BOOT, "not come up"),
        ({"since": 0.0}, status(110, ready=False), BOOT, "not ready"),
    ],
)
def test_what_takes_it_back(
    more: dict[str, Any], said: dict[str, Any], boot: str, why: str
) -> None:
    verdict, reason = trial.judge(begun(**more), said, boot, 110.0)
    assert verdict == trial.BACK
    assert why in reason


def test_without_a_hub_local_health_decides() -> None:
    trying = begun(join=False)
    trial.judge(trying, status(101, joined=False), BOOT, 101)
    assert trial.judge(trying, status(104, joined=False), BOOT, 104)[0] == trial.COMMIT


def test_the_end_of_a_trial_is_noted() -> None:
    state: dict[str, Any] = {"committed": "a", "trying": begun(), "last": None}
    trial.finish(state, "rolled_back", "why", "1.0", 5.0)
    assert state["committed"] == "a"
    assert state["trying"] is None
    assert state["last"]["reason"] == "why"
    state["trying"] = begun()
    trial.finish(state, "committed", "joined", "1.0", 5.0)
    assert state["committed"] == "b"
