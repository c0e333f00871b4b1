"""Operations of the disk that fail, one or a dozen in a row: no wrong ack, and it comes back."""

import errno

import pytest

from tests.edge.storage.whole.faulty_history import FaultyHistory, check

# Every how many-th operation of the script begins to fail, up to the end of the script.
STRIDE = 48
LAST = 720


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("count", [1, 12])
def test_failing_operations(count: int, number: int) -> None:
    for begin in range(1, LAST, STRIDE):
        history = FaultyHistory(begin, count, number)
        history.run()
        check(history)
        assert history.met or begin > LAST // 2
