"""Every file of small stores, cut off at every byte: told, and no sequence given out twice.

The suite takes a share; `make damage` takes every length.
"""

import logging
import os

import pytest

from headwater.edge.ports.twins.files import TwinFiles
from headwater.edge.ports.twins.inode import resize
from tests.edge.storage.twin_harness import readable
from tests.edge.storage.whole.small_stores import Truth, go_on, stopped

# Every how many-th length the suite takes.
WHOLE = os.environ.get("HEADWATER_DAMAGE") == "all"
STRIDE = int(os.environ.get("HEADWATER_DAMAGE_STRIDE", "1" if WHOLE else "1201"))


def cut(truth: Truth, parts: tuple[str, ...], size: int) -> TwinFiles:
    disk = truth.disk.copy()
    file = disk.file(parts)
    resize(file.content, size)
    resize(file.durable, size)
    return disk


def check(truth: Truth, parts: tuple[str, ...], size: int) -> bool:
    """Open a store of which a file was cut off; whether that was told."""
    where = ("/".join(parts), size)
    harness = truth.harness(cut(truth, parts, size))
    found = harness.open()
    got = {incarnation: readable(store) for incarnation, store in found.items()}
    problems = harness.node.problems
    assert found.keys() == truth.rows.keys(), where
    for incarnation, want in truth.rows.items():
        assert harness.node.meta_of(found[incarnation]) == truth.metas[incarnation], where
        assert found[incarnation].last_seq >= truth.last[incarnation], where
        for sequence in want.keys() & got[incarnation].keys():
            assert got[incarnation][sequence] == want[sequence], where
        missing = want.keys() - got[incarnation].keys()
        assert problems or not missing, where
        if parts[-1].endswith(".seg"):
            assert missing <= found[incarnation].lost.keys(), where
    if truth.states != {key: harness.node.log.states(truth.owner).get(key) for key in truth.states}:
        assert problems, where
    go_on(harness, got, where)
    return bool(problems)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("clean", [False, True])
def test_every_length(clean: bool, packed: bool, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    truth = stopped("clean" if clean else "power", packed)
    checked = told = 0
    for parts, file in truth.disk.walk():
        for size in range(0, len(file.content), STRIDE):
            checked += 1
            told += check(truth, parts, size)
    print(f"{checked} lengths, {told} told")
