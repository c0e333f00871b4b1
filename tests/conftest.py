"""The suite in several processes: which tests stay together, and which run while no other does.

`make test` runs four workers. The tests of a file stay in one worker, in their order, so that what
is made once for a module is made once; a package in `ONE_WORKER` stays in one worker as a whole.
A test marked `alone` measures time or loads every core: while it runs, no other worker does. All of
them are one worker's first work: elsewhere, each would wait until the others' tests have ended.

What a test that passed has written goes with it. A worker that is stuck where no signal reaches it
shows every thread's stack and ends, so that the rest of the suite goes on.
"""

import contextlib
import faulthandler
import fcntl
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from tests import second_look
from tests.measuring import leave_out_what_is_there

ONE_WORKER = {
    "tests/spark/jobs": "a session of Spark takes ten seconds to start and 1 GiB",
    "tests/spark": "another one: all of tests/spark took longer than everything else",
    "tests/house": "each file of the house is parsed once",
}
"""Packages and why; a test is in the first one that it is below."""
FIRST = [
    "tests/spark",
    "tests/clients",
    "tests/bench",
    "tests/federation",
    "tests/hub",
    "tests/spark/jobs",
    "tests/deploy",
]
"""Work that takes long for its number of tests: begun last, it would be one worker's at the end."""
ALONE = "tests marked alone"
"""Name of the work that these tests are, and of the file in which a worker lists them."""
LOCKS = pytest.StashKey[Path]()
ROOM = pytest.StashKey[IO[str]]()
"""Locked while a test runs; a test that runs alone leaves it to the next one that does."""
PASSED = pytest.StashKey[bool]()
TURN_SECONDS = 1800.0
"""How long a test waits for its turn, at most: longer than the longest test of the suite."""
STUCK_SECONDS = 60.0
"""How long after its own time limit a test may go on before its worker ends."""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "alone: measures time or loads every core; runs by itself")
    config.addinivalue_line("markers", "slow: left to `make slow`; see tests/slow.py")
    config.addinivalue_line("markers", "fresh: draws a new seed; a failure gets no second look")
    config.pluginmanager.register(InternalErrors())
    if given := getattr(config, "workerinput", {}).get("locks"):
        config.stash[LOCKS] = Path(given)
    elif config.getoption("numprocesses", None):
        config.stash[LOCKS] = Path(tempfile.mkdtemp(prefix="headwater-tests-"))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["locks"] = str(node.config.stash[LOCKS])


def pytest_unconfigure(config: pytest.Config) -> None:
    if LOCKS in config.stash and not hasattr(config, "workerinput"):
        shutil.rmtree(config.stash[LOCKS])


def _work_of(nodeid: str) -> str:
    """What stays in one worker: a package of `ONE_WORKER`, or a file."""
    path = nodeid.partition("::")[0]
    return next((name for name in ONE_WORKER if path.startswith(f"{name}/")), path)


class FileScheduling(LoadScopeScheduling):
    """Gives a worker a whole file, or a whole package of `ONE_WORKER`, at a time.

    xdist's own scheduling waits for ever after a worker has crashed: it gives out again files of
    which nothing is left to run, gives them to workers that are not ready, and gives out single
    tests, which a worker keeps back until it is given another one.
    """

    alone: frozenset[str] = frozenset()

    def schedule(self) -> None:
        listed = self.config.stash[LOCKS] / ALONE
        if self.collection is None and listed.exists():
            self.alone = frozenset(listed.read_text().splitlines())
        super().schedule()

    def remove_node(self, node: WorkerController) -> str | None:
        """Give what a crashed worker had left to others; returns the test that it crashed in,
        which is not run again."""
        units = self.assigned_work.pop(node).values()
        left = [test for unit in units for test, done in unit.items() if not done]
        for test in left[1:]:
            self.workqueue.setdefault(self._split_scope(test), {})[test] = False
        for other in self.assigned_work:
            self._reschedule(other)
        return left[0] if left else None

    def _reschedule(self, node: WorkerController) -> None:
        if node not in self.registered_collections:
            return
        # A worker that has crashed too, of which xdist has not heard, keeps what it is given until
        # `remove_node` gives it to others.
        with contextlib.suppress(OSError):
            super()._reschedule(node)
            while self.workqueue and not node.shutting_down and self._pending(node) < 2:
                self._assign_work_unit(node)
            if not self.workqueue and not node.shutting_down:
                node.shutdown()

    def _pending(self, node: WorkerController) -> int:
        return self._pending_of(self.assigned_work[node])

    def _split_scope(self, nodeid: str) -> str:
        if nodeid in self.alone:
            return ALONE
        return _work_of(nodeid)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In a worker: the order in which work is given out, and the list of what runs alone."""
    if LOCKS not in config.stash:
        return
    counts = Counter(_work_of(item.nodeid) for item in items)

    def place(item: pytest.Item) -> tuple[bool, int, int]:
        work = _work_of(item.nodeid)
        package = work if work in ONE_WORKER else "/".join(work.split("/")[:2])
        early = FIRST.index(package) if package in FIRST else len(FIRST)
        return not _runs_alone(item), early, -counts[work]

    items.sort(key=place)
    alone = [item.nodeid for item in items if _runs_alone(item)]
    (config.stash[LOCKS] / ALONE).write_text("\n".join(alone))


def pytest_collection_finish() -> None:
    leave_out_what_is_there()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FileScheduling:
    config.option.loadscopereorder = False
    return FileScheduling(config, log)


def _end_when_stuck(item: pytest.Item, seconds: float) -> None:
    """Let the worker show all stacks and exit if it is still at this in so many seconds."""
    error = item.config.stash.get(fault_handler_stderr_fd_key, 2)
    faulthandler.dump_traceback_later(seconds, file=error, exit=True)


def _limit(item: pytest.Item) -> float:
    marker = item.get_closest_marker("timeout")
    config = item.config
    general = config.getoption("timeout") or config.getini("timeout")
    own = marker.args[0] if marker and marker.args else general
    return float(own) + STUCK_SECONDS


def _runs_alone(item: pytest.Item | None) -> bool:
    return item is not None and item.get_closest_marker("alone") is not None


def _take_turn(item: pytest.Item) -> None:
    """Wait until this test may run: whoever waits for the room keeps the door."""
    stash = item.config.stash
    if ROOM in stash:
        return
    stash[ROOM] = (stash[LOCKS] / "room").open("w")
    with (stash[LOCKS] / "door").open("w") as door:
        fcntl.flock(door, fcntl.LOCK_EX)
        fcntl.flock(stash[ROOM], fcntl.LOCK_EX if _runs_alone(item) else fcntl.LOCK_SH)


def _end_turn(item: pytest.Item, following: pytest.Item | None) -> None:
    if not (_runs_alone(item) and _runs_alone(following)):
        item.config.stash[ROOM].close()
        del item.config.stash[ROOM]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Take turns: waiting for one does not count to a test's time limit."""
    if LOCKS not in item.config.stash:
        return (yield)
    _end_when_stuck(item, TURN_SECONDS)
    _take_turn(item)
    _end_when_stuck(item, _limit(item))
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()
        _end_turn(item, nextitem)


@pytest.hookimpl(optionalhook=True)
def pytest_handlecrashitem(crashitem: str, report: Any, sched: FileScheduling) -> None:
    if cache := getattr(sched.config, "cache", None):
        cache.set(second_look.CRASHED, crashitem)


class InternalErrors:
    """Makes a run fail that an error of pytest itself ended: xdist calls it a success when all
    workers end so."""

    seen = False

    def pytest_internalerror(self) -> None:
        self.seen = True

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Iterator[None]:
        result = yield
        if self.seen:
            session.exitstatus = pytest.ExitCode.INTERNAL_ERROR
        return result


def pytest_runtest_setup(item: pytest.Item) -> None:
    if second_look.VARIABLE in os.environ and item.get_closest_marker("fresh"):
        pytest.fail("it failed with another seed before, see above; that seed counts")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report = yield
    item.stash[PASSED] = item.stash.get(PASSED, True) and report.outcome != "failed"
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """When every fixture has ended, remove the folder of a test that passed.

    pytest's own policy removes it while fixtures that are older than the folder still use it.
    """
    if LOCKS in item.config.stash:
        _end_when_stuck(item, _limit(item))
    result = yield
    folder = getattr(item, "funcargs", {}).get("tmp_path")
    if folder is not None and item.stash.get(PASSED, False):
        shutil.rmtree(folder, ignore_errors=True)
    return result
