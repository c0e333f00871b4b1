"""Since when hard states hold, and what a device that refuses them costs."""

import errno
import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from headwater.edge.ports.twins.chance import SeededRandom
from headwater.edge.ports.twins.files import TwinFiles
from headwater.edge.ports.twins.loop import TwinLoop
from headwater.hub.raft.model.hard_state import HardState
from headwater.hub.stored.directory_disk import DirectoryDisk
from headwater.hub.stored.hard_state_file import COPY_BYTES, NAME, HardStateFile
from headwater.hub.stored.hard_states import HardStates
from headwater.hub.stored.start import BOOT_GROUP

FIRST, SECOND, THIRD = HardState(2, 1, 0, 1), HardState(3, 2, 0, 1), HardState(4, 3, 0, 1)
Done = Callable[[Any, BaseException | None], None]


class Stage:
    """Hard states on a disk in memory, whose background works when it is asked to."""

    def __init__(self) -> None:
        self.disk = TwinFiles()
        self.loop = TwinLoop()
        self.syncs: list[tuple[Callable[[], None], Done]] = []
        self.refused: set[str] = set()
        """Operations that the device refuses."""
        self.disk.watch = self._watch
        node: Any = SimpleNamespace(
            background=SimpleNamespace(submit=lambda work, done: self.syncs.append((work, done))),
            kernel=SimpleNamespace(loop=self.loop),
        )
        self.states = HardStates(DirectoryDisk(self.disk.root / "raft"), node)
        self.states.write(BOOT_GROUP, FIRST)
        self.states.sync_now()
        self.states.file.disk.sync_names()
        self.heard: list[str] = []

    def _watch(self, what: str, path: str) -> None:
        if what in self.refused:
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    def wait(self, name: str) -> None:
        """Hear when what is written until now is durable."""
        self.states.when_durable(
            lambda error: self.heard.append(f"{name}: {'durable' if error is None else 'waits'}")
        )

    def work(self) -> None:
        """The background does the oldest sync that it was asked for."""
        work, done = self.syncs.pop(0)
        try:
            work()
        except OSError as error:
            done(None, error)
        else:
            done(None, None)

    def after_a_cut(self) -> dict[int, HardState]:
        """What is found of groups when the power was cut now."""
        self.refused = set()
        self.disk.power_cut(SeededRandom(1), "all")
        found = HardStateFile(DirectoryDisk(self.disk.root / "raft")).found
        assert found.pop(BOOT_GROUP) == FIRST
        return found


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_what_is_written_while_a_sync_runs_is_durable_with_the_next(stage: Stage) -> None:
    stage.states.write(7, FIRST)
    stage.wait("first")
    work, done = stage.syncs.pop()
    work()
    stage.states.write(7, SECOND)
    stage.wait("second")
    done(None, None)
    assert stage.heard == ["first: durable"] and not stage.states.synced
    stage.work()
    assert stage.heard == ["first: durable", "second: durable"] and stage.states.synced
    assert stage.after_a_cut() == {7: SECOND}


def test_the_same_state_is_written_once(stage: Stage) -> None:
    stage.states.write(7, FIRST)
    stage.states.sync_now()
    stage.states.write(7, HardState(2, 1, 90, 1))
    stage.wait("the same")
    assert stage.syncs == [] and stage.heard == ["the same: durable"]


def test_after_a_sync_that_failed_a_new_file_has_everything(stage: Stage) -> None:
    """Another sync of the old one would say nothing, and what it lost may be in memory only."""
    stage.states.write(7, FIRST)
    stage.states.sync_now()
    stage.states.write(7, SECOND)
    stage.wait("second")
    stage.refused = {"sync"}
    stage.work()
    stage.states.write(8, THIRD)
    stage.states.sync()
    assert stage.heard == ["second: waits"] and stage.syncs == [] and not stage.states.synced
    with pytest.raises(OSError, match="not durable"):
        stage.states.sync_now()
    # A second refusal is heard, too, and then there is a device again.
    stage.loop.run_until(lambda: len(stage.heard) == 2)
    stage.refused = set()
    stage.loop.run_until(lambda: stage.states.synced)
    assert stage.heard == ["second: waits", "second: waits", "second: durable"]
    assert stage.after_a_cut() == {7: SECOND, 8: THIRD}


def test_a_group_that_is_made_again_is_written_again(stage: Stage) -> None:
    stage.states.write(7, FIRST)
    stage.states.sync_now()
    stage.states.erase(7)
    stage.states.write(7, FIRST)
    stage.states.sync_now()
    assert stage.after_a_cut() == {7: FIRST}


def test_who_is_gone_is_erased_when_the_device_works_again(stage: Stage) -> None:
    """It was forgotten before the device had it, so the next order did nothing: the state of a
    group that is no more came back at every start, and its place was lost."""
    stage.states.write(7, FIRST)
    stage.states.write(8, SECOND)
    stage.states.sync_now()
    stage.refused = {"write"}
    with pytest.raises(OSError, match="Input/output"):
        stage.states.erase(7)
    stage.refused = set()
    stage.states.erase(7)
    stage.work()
    stage.states.write(9, THIRD)
    stage.states.sync_now()
    assert stage.after_a_cut() == {8: SECOND, 9: THIRD}
    assert len(stage.states.file.disk.read(NAME)) <= 6 * COPY_BYTES


def test_nothing_is_made_again_behind_the_end(stage: Stage) -> None:
    """The next start has the same folder, and would write to a file that has no name any more."""
    stage.states.write(7, FIRST)
    stage.wait("first")
    stage.refused = {"sync"}
    stage.work()
    stage.states.close()
    stage.refused = set()
    before = stage.disk.operations
    stage.loop.run_until_complete(_a_second(stage.loop))
    assert stage.disk.operations == before


async def _a_second(loop: TwinLoop) -> None:
    passed = loop.create_future()
    loop.call_later(1, passed.set_result, None)
    await passed
