"""When a batch that gathers messages ends, so that blocks of 512 bytes are full."""

import pytest

from headwater.edge.storage.log.block_fit import fits_best

BLOCK = 512


def cost(record: int, count: int, footers: int) -> float:
    """Bytes of the device per record in a batch of `count`."""
    return -(-(record * count + footers) // BLOCK) * BLOCK / count


@pytest.mark.parametrize("record", range(72, 1200, 8))
@pytest.mark.parametrize("footers", [208, 256])
def test_a_batch_ends_where_no_later_end_is_cheaper(record: int, footers: int) -> None:
    """Of ends at 1 to `last` records, which come one by one, none is cheaper than the one that is
    taken and could still be reached."""
    last = 10
    taken = last
    for count in range(1, last):
        more = record * (last - count)
        if more <= 8 * BLOCK and fits_best(record * count, count, footers, more):
            taken = count
            break
    later = [cost(record, count, footers) for count in range(taken, last + 1)]
    assert cost(record, taken, footers) == min(later)
    assert cost(record, taken, footers) <= cost(record, last, footers)


@pytest.mark.parametrize(
    ("size", "records", "more", "fits"),
    [
        (2720, 10, 272.0, True),  # an eleventh would begin a block for itself
        (2448, 9, 272.0, False),  # the tenth has room
        (2304, 8, 576.0, True),
        (2304, 8, 100.0, False),  # nothing more comes: the timer ends it
        (2304, 8, 60_000.0, False),  # so much comes that a block does not matter
        (0, 0, 500.0, False),
    ],
)
def test_what_is_expected_decides(size: int, records: int, more: float, fits: bool) -> None:
    assert fits_best(size, records, 208, more) is fits


def test_what_is_there_once_counts_no_record() -> None:
    """Eight messages in four blocks cost as much as ten in five: no reason to wait, as the tenth
    may come too late. With the header in each of them, ten would seem to be cheaper."""
    once, each = 93, 216
    assert fits_best(once + 8 * each, 8, 208, 2.0 * each, once)
    assert not fits_best(once + 7 * each, 7, 208, 3.0 * each, once)


def test_a_message_that_may_come_too_late_is_not_waited_for() -> None:
    """Nine have come, each as long after the one before. The tenth is due in time and would cost a
    block of its own; with the eleventh all would cost less, but that is due too late."""
    once, each = 64, 232
    assert fits_best(once + 9 * each, 9, 208, 1.5 * each, once)
    assert not fits_best(once + 9 * each, 9, 208, 2.0 * each, once)
