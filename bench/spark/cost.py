"""What a piece of Spark's work takes: processor time of JVM and Python workers together."""

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass

import psutil


def server_cpu(pid: int) -> float:
    """Seconds of processor time of a server and of all below it."""
    process = psutil.Process(pid)
    times = [one.cpu_times() for one in [process, *process.children(recursive=True)]]
    return sum(one.user + one.system for one in times)


@dataclass(frozen=True)
class Cost:
    """Seconds of processors, and of the clock."""

    cpu: float
    wall: float


def spark_processes() -> list[psutil.Process]:
    """The driver's JVM and all below it."""
    found = []
    for jvm in psutil.Process().children():
        if jvm.name() == "java":
            with contextlib.suppress(psutil.Error):
                found += [jvm, *jvm.children(recursive=True)]
    return found


def spark_cpu() -> float:
    """Seconds of processor time of the driver's JVM and of all below it, ended ones included."""
    total = 0.0
    for one in spark_processes():
        with contextlib.suppress(psutil.Error):
            times = one.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def cost_of(work: Callable[[], object]) -> Cost:
    """Run it once."""
    cpu, clock = spark_cpu(), time.monotonic()
    work()
    return Cost(spark_cpu() - cpu, time.monotonic() - clock)


def cheapest(work: Callable[[], object], rounds: int) -> Cost:
    """Run it some times; what disturbs only adds, so the least counts."""
    costs = [cost_of(work) for _ in range(rounds)]
    return Cost(min(one.cpu for one in costs), min(one.wall for one in costs))
