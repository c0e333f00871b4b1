"""Random lives of a node's store on a bad disk, compared with a model after every step.

The suite takes a share; `make damage` takes many more.
"""

import logging
import os
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.edge.storage.whole.node_machine import NodeMachine

WHOLE = os.environ.get("HEADWATER_DAMAGE") == "all"
LIVES = int(os.environ.get("HEADWATER_LIVES", "1500" if WHOLE else "12"))
STEPS = 60 if WHOLE else 40


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("packed", [False, True])
def test_any_life(packed: bool, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)

    class Machine(NodeMachine):
        sealed = packed
        compressed = packed

    chosen: dict[str, Any] = {"phases": (Phase.explicit, Phase.generate)}
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=LIVES,
            stateful_step_count=STEPS,
            deadline=None,
            database=None,
            derandomize=not WHOLE,
            suppress_health_check=list(HealthCheck),
            **chosen,
        ),
    )
