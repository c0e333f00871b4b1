"""Flipped bits of every file of small stores, one at a time.

`make damage` takes one bit of every byte, every bit of one record of each kind and of what files
begin with, and of long runs of zeros, which are padding, one bit in so many bytes. The suite takes
a share. HEADWATER_DAMAGE=every takes every bit there is (hours).
"""

import logging
import os
import random
from collections.abc import Iterator

import pytest

from tests.edge.storage.whole.small_stores import Harm, Truth, examine, stopped
from tests.slow import one_in

DAMAGE = os.environ.get("HEADWATER_DAMAGE", "")
# Every how many-th bit the suite takes: no multiple of eight, so that all bits of bytes are met.
STRIDE = int(os.environ.get("HEADWATER_DAMAGE_STRIDE", "1" if DAMAGE else "443"))
# Bytes around that are zero, too, where a byte is padding; and how many bytes one bit stands for.
PADDING = 32
PADDING_STRIDE = 61
MAGIC = b"HWR1"
HEADER_BYTES = 64
# Headers of files and of copies in them.
BEGIN_BYTES = 88


def whole_bytes(data: bytes) -> set[int]:
    """Bytes of which every bit is flipped."""
    found = {at for begin in (0, 256, 4096) for at in range(begin, begin + BEGIN_BYTES)}
    kinds = set()
    at = data.find(MAGIC)
    while at >= 0:
        kind = data[at + 5 : at + 8]
        if kind not in kinds:
            kinds.add(kind)
            found.update(range(at, at + HEADER_BYTES))
        at = data.find(MAGIC, at + 1)
    return found


def bits(data: bytes) -> Iterator[tuple[int, int]]:
    chance = random.Random(len(data))
    whole = range(len(data)) if DAMAGE == "every" else whole_bytes(data)
    for at in range(len(data)):
        if not any(data[max(at - PADDING, 0) : at + PADDING + 1]):
            if at % PADDING_STRIDE == 0:
                yield at, chance.randrange(8)
        elif at in whole:
            yield from ((at, bit) for bit in range(8))
        else:
            yield at, chance.randrange(8)


def places(truth: Truth) -> Iterator[tuple[tuple[str, ...], int, int]]:
    count = 0
    for parts, file in truth.disk.walk():
        for at, bit in bits(bytes(file.content)):
            count += 1
            if count % STRIDE == 0:
                yield parts, at, bit


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("clean", one_in(2, [True, False]))
def test_every_bit(clean: bool, packed: bool, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    truth = stopped("clean" if clean else "power", packed)
    harms: list[Harm] = []
    for parts, at, bit in places(truth):
        disk = truth.disk.copy()
        disk.flip(parts, at, bit)
        harms.append(examine(truth, disk, ("/".join(parts), at, bit)))
    told = sum(harm.told for harm in harms)
    assert not any(harm.back for harm in harms), "removed messages are there again"
    missing = sum(harm.missing for harm in harms)
    print(f"{len(harms)} bits, {told} told, {missing} of them cost a message")
    assert told > len(harms) // 20
    assert missing
