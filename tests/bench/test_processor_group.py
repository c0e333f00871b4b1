"""A cgroup of processors, in which the bench of Spark holds Spark."""

import subprocess
import sys

import psutil
import pytest

from bench.spark.processor_group import V1, V2, processor_group

SHARE = 0.1
SECONDS = 1.0
SPIN = f"""
import sys, time
sys.stdin.readline()
before, end = time.process_time(), time.monotonic() + {SECONDS}
while time.monotonic() < end:
    pass
print(time.process_time() - before)
"""


def test_a_process_has_its_share_and_no_more() -> None:
    command = [sys.executable, "-c", SPIN]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    process = subprocess.Popen(command, text=True, **pipes)
    with processor_group([psutil.Process(process.pid)]) as group:
        if group is not None:
            group.allow(SHARE)
        used = float(process.communicate("go\n", timeout=60)[0])
    if group is None:
        pytest.skip("no cgroup of processors can be made here")
    assert used < 2 * SHARE * SECONDS
    assert not [*V1.glob("headwater-*"), *V2.glob("headwater-*")]
