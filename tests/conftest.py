"""The suite in several processes: which tests stay together, and which run while no other does.

`make test` runs two workers. The tests of a file stay in one worker, in their order, so that what
is made once for a module is made once; a package in `ONE_WORKER` stays in one worker as a whole.
A test marked `alone` measures time or loads every core: while it runs, no other worker does.
"""

import fcntl
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

ONE_WORKER = {"tests/spark": "a session of Spark takes ten seconds to start and 1 GiB"}
LOCKS = pytest.StashKey[Path]()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "alone: measures time or loads every core; runs by itself")
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


class FileScheduling(LoadScopeScheduling):
    """Gives a worker a whole file, or a whole package of `ONE_WORKER`, at a time."""

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        return next((name for name in ONE_WORKER if path.startswith(f"{name}/")), path)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FileScheduling:
    return FileScheduling(config, log)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Take turns: waiting for one does not count to a test's time limit."""
    if LOCKS not in item.config.stash:
        return (yield)
    folder = item.config.stash[LOCKS]
    with (folder / "door").open("w") as door, (folder / "room").open("w") as room:
        # Whoever waits for the room keeps the door, so that nobody overtakes.
        fcntl.flock(door, fcntl.LOCK_EX)
        alone = item.get_closest_marker("alone")
        fcntl.flock(room, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        fcntl.flock(door, fcntl.LOCK_UN)
        return (yield)
