"""Every operation of the disk in a scripted history as a crash point, with several outcomes each.

The suite takes a share; `make damage` takes them all.
"""

import os
from collections.abc import Iterator

import pytest

from tests.edge.storage.whole.crash_history import History, check
from tests.slow import one_in

WHOLE = os.environ.get("HEADWATER_DAMAGE") == "all"
# Every how many-th crash point the suite takes, and the seeds of power cuts that keep a part.
STRIDE = 1 if WHOLE else 16
SEEDS = range(1, 17) if WHOLE else range(1, 3)
# Moments that are kept in memory at once.
CHUNK = 200


def outcomes(number: int) -> Iterator[tuple[object, str]]:
    yield 0, "everything"
    yield 0, "nothing"
    for seed in SEEDS:
        yield f"{number}/{seed}", "some"


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("gathered", one_in(2, [True, False]))
def test_every_crash_point(gathered: bool) -> None:
    history = History(gathered=gathered)
    history.run()
    total = history.harness.disk.operations
    assert history.rewritten and history.retired
    checked = 0
    for begin in range(1, total + 1, CHUNK):
        stride = STRIDE if WHOLE or not gathered else 2 * STRIDE
        wanted = range(begin, min(begin + CHUNK, total + 1), stride)
        history = History(wanted, gathered)
        history.run()
        assert len(history.moments) == len(wanted)
        for moment in history.moments:
            for seed, lose in outcomes(moment.number):
                check(moment, history, seed, lose)
                checked += 1
    print(f"{total} operations, {checked} crashes checked")
